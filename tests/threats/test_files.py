"""A file that decides what is started is this user's own, or the user has named it and is told."""

from __future__ import annotations

import json
import os
import queue
import stat
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

import mcp_workbench
from mcp_workbench.config import file_access
from mcp_workbench.config.file_access import (
    Group,
    OwnedPath,
    check_ownership,
    is_private,
    ownership_warnings,
)
from mcp_workbench.config.load import FileWatch, LoadResult, load_config
from mcp_workbench.config.state_home import NotPrivate
from mcp_workbench.core.errors import ConfigError
from mcp_workbench.hosts.files import replace_file
from mcp_workbench.hosts.journal import Journal
from tests.kit.clock import PATIENCE
from tests.kit.command import COMMAND, TIMEOUT, newcomer, run_command
from tests.kit.config import toolbox, write_config

pytestmark = pytest.mark.skipif(os.name != "posix", reason="owners and rights of POSIX")

STRANGER = 12345
ME = 1000


def touching(mark: Path) -> dict[str, object]:
    """A server that leaves a mark where it is started."""
    return {"command": "sh", "args": ["-c", f"touch {mark}"]}


def of_stranger(config: Path) -> str:
    """Let another user have written this file, or be able to; returns the code of that.

    Only root can give a file away. Everybody can open a folder to all.
    """
    if os.geteuid() == 0:
        os.chown(config, STRANGER, -1)
        return "WB-CONF-008"
    config.parent.chmod(0o1777)
    return "WB-CONF-009"


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    folder = tmp_path / "marks"
    folder.mkdir()
    return folder / "started"


@pytest.fixture
def met(tmp_path: Path, mark: Path) -> Path:
    """A file in a folder where one happens to be."""
    folder = tmp_path / "somewhere"
    folder.mkdir(0o755)
    return write_config(folder, toolbox(evil=touching(mark)))


# The decision


def owned(uid: int, mode: int = 0o755, group: str = "") -> OwnedPath:
    return OwnedPath("/x", uid, mode, group)


@pytest.mark.parametrize(
    ("file", "folders", "codes"),
    [
        (owned(ME), [owned(ME)], []),
        (owned(0), [owned(0)], []),
        (owned(ME), [owned(0), owned(ME)], []),
        (owned(ME, 0o664), [owned(ME, 0o775)], []),  # of private groups
        (owned(ME, 0o664, "team"), [owned(ME)], ["WB-CONF-008"]),
        (owned(ME), [owned(0), owned(ME, 0o2775, "team")], ["WB-CONF-009"]),
        (owned(0, 0o664, "team"), [owned(0, 0o775, "team")], ["WB-CONF-008", "WB-CONF-009"]),
        (owned(STRANGER), [owned(ME)], ["WB-CONF-008"]),
        (owned(ME), [owned(STRANGER)], ["WB-CONF-009"]),
        (owned(ME), [owned(ME, 0o777)], ["WB-CONF-009"]),
        (owned(0), [owned(0, 0o1777)], ["WB-CONF-009"]),
        (owned(ME), [owned(ME), owned(0, 0o1777)], ["WB-CONF-009"]),
        (owned(STRANGER), [owned(STRANGER, 0o777)], ["WB-CONF-008", "WB-CONF-009"]),
    ],
)
@pytest.mark.parametrize("me", [ME, 0])
def test_whose_file_it_is_and_who_can_put_another_there(
    file: OwnedPath, folders: list[OwnedPath], codes: list[str], me: int
) -> None:
    if me == 0:  # the same for root, to whom a file of an ordinary user is a stranger's
        file = file._replace(uid=0 if file.uid == ME else file.uid)
        folders = [one._replace(uid=0 if one.uid == ME else one.uid) for one in folders]

    assert [doubt.code for doubt in ownership_warnings(file, folders, me)] == codes


def test_to_root_a_file_of_an_ordinary_user_is_another_users() -> None:
    assert [doubt.code for doubt in ownership_warnings(owned(ME), [owned(0)], 0)] == ["WB-CONF-008"]


@pytest.mark.parametrize(
    ("group", "private"),
    [
        (Group(ME, "me", frozenset({ME})), True),
        (Group(ME, "other-name", frozenset({ME})), True),
        (Group(500, "me", frozenset({ME})), True),
        (Group(ME, "me", frozenset()), True),  # of numbers that have no names
        (Group(500, "users", frozenset({ME})), False),  # others may join it
        (Group(ME, "me", frozenset({ME, STRANGER})), False),
        (Group(500, "team", frozenset({STRANGER})), False),
    ],
)
def test_a_group_is_private_where_it_is_the_users_own_and_has_no_other_member(
    group: Group, *, private: bool
) -> None:
    assert is_private(group, ME, "me") is private


def open_to_a_group(path: Path) -> None:
    """Let a group of others write here."""
    others = {STRANGER} if os.geteuid() == 0 else set(os.getgroups()) - {os.getgid(), 0}
    if not others:
        pytest.skip("this user is in one group only, and only root can give a file to another")
    os.chown(path, -1, min(others))
    path.chmod(0o775 if path.is_dir() else 0o664)


@pytest.mark.parametrize(("what", "code"), [("file", "WB-CONF-008"), ("folder", "WB-CONF-009")])
def test_what_a_group_can_write_is_refused_where_it_was_met_and_told_where_it_was_named(
    met: Path, mark: Path, what: str, code: str
) -> None:
    open_to_a_group(met if what == "file" else met.parent)

    refused = run_command("tools", cwd=met.parent)
    assert (refused.status, mark.exists()) == (2, False)
    assert code in refused.err
    assert "the group " in refused.err

    used = run_command("tools", "--config", str(met), cwd=met.parent)
    [line] = [line for line in used.err.splitlines() if "used because it was named" in line]
    assert "the group " in line


def test_the_users_private_group_may_write(met: Path) -> None:
    if met.stat().st_gid != os.geteuid():
        pytest.skip("this user's first group is no private one")
    met.chmod(0o664)
    met.parent.chmod(0o775)

    assert check_ownership(str(met), met.stat()) == []


# A file that was met


@pytest.mark.parametrize(
    "words", [["serve"], ["tools"], ["check", "--connect"], ["call", "dev/evil/x"]]
)
def test_a_file_of_another_user_that_was_met_is_refused_and_nothing_of_it_started(
    met: Path, mark: Path, words: list[str]
) -> None:
    code = of_stranger(met)

    done = run_command(*words, cwd=met.parent)

    assert done.status == 2
    assert code in done.err
    assert f"--config {met}" in done.err
    assert not mark.exists()


def test_what_serves_itself_without_a_word_is_refused_as_well(met: Path, mark: Path) -> None:
    code = of_stranger(met)

    done = run_command(cwd=met.parent)

    assert done.status == 2
    assert code in done.err


@pytest.mark.parametrize("words", [["up"], ["serve", "--attach", "always"]])
def test_no_background_process_is_started_with_it(met: Path, mark: Path, words: list[str]) -> None:
    of_stranger(met)

    done = run_command(*words, cwd=met.parent)
    ended = run_command("down", "--config", str(met), cwd=met.parent)

    assert done.status != 0
    assert "another" in done.err or "everybody" in done.err
    assert not mark.exists()
    assert "not running" in ended.out


def test_a_folder_that_everybody_can_write_to_is_no_place_for_a_file_that_is_met(
    met: Path, mark: Path
) -> None:
    met.parent.chmod(0o1777)

    done = run_command("tools", cwd=met.parent)

    assert (done.status, mark.exists()) == (2, False)
    assert "WB-CONF-009" in done.err


def test_a_link_out_of_such_a_folder_is_refused_like_the_folder(met: Path, tmp_path: Path) -> None:
    crossing = tmp_path / "crossing"
    crossing.mkdir()
    (crossing / met.name).symlink_to(met)
    crossing.chmod(0o777)

    with pytest.raises(ConfigError) as caught:
        load_config(crossing / met.name, {}, named=False)

    assert [p.code for p in caught.value.problems] == ["WB-CONF-009"]


# A file that was named


@pytest.mark.parametrize(
    ("words", "by"), [(["tools"], "option"), (["tools"], "variable"), (["serve"], "option")]
)
def test_one_that_was_named_is_used_and_its_user_is_told_in_one_line(
    met: Path, mark: Path, words: list[str], by: str
) -> None:
    of_stranger(met)
    option = ["--config", str(met)] if by == "option" else []
    variables = {} if option else {"WORKBENCH_CONFIG": str(met)}

    done = run_command(*words, *option, cwd=met.parent, **variables)

    [line] = [line for line in done.err.splitlines() if "used because it was named" in line]
    assert line.startswith(f"mcp-workbench: {met}")
    assert done.status == 0 if words == ["serve"] else mark.exists()


@pytest.mark.parametrize("words", [["check"], ["doctor"], ["check", "-q"]])
def test_check_and_doctor_show_it_once(met: Path, words: list[str]) -> None:
    code = of_stranger(met)

    done = run_command(*words, "--config", str(met), cwd=met.parent)

    shown = done.out + done.err
    reason = "who decides what is started" if code == "WB-CONF-008" else "file could be put there"
    assert shown.count(reason) == 1
    assert code in shown or "used because it was named" in shown


# While it is served


def outcomes(
    path: Path, *, accepted: bool, optional: bool = False
) -> tuple[FileWatch, queue.Queue[LoadResult]]:
    seen: queue.Queue[LoadResult] = queue.Queue()
    return FileWatch(str(path), seen.put, optional=optional, accepted=accepted), seen


@pytest.mark.parametrize("accepted", [False, True])
def test_a_file_that_changes_hands_is_not_taken_unless_its_user_knew(
    met: Path, *, accepted: bool
) -> None:
    watch, seen = outcomes(met, accepted=accepted)
    watch.start()
    try:
        assert not isinstance(seen.get(timeout=PATIENCE), ConfigError)

        code = of_stranger(met)
        watch.look()
        found = seen.get(timeout=PATIENCE)
    finally:
        watch.end()

    codes = [p.code for p in (found.problems if isinstance(found, ConfigError) else found.warnings)]
    assert codes == [code]
    assert isinstance(found, ConfigError) is not accepted


def test_the_demo_does_not_give_way_to_a_file_of_another_user(met: Path, mark: Path) -> None:
    text = met.read_text()
    met.unlink()
    host = subprocess.Popen(
        [*COMMAND, "serve", "-v"],
        cwd=met.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert host.stdin is not None
    assert host.stdout is not None
    assert host.stderr is not None
    try:
        host.stdin.write('{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
        host.stdin.flush()
        assert host.stdout.readline()  # it serves
        beside = met.with_name("beside")
        beside.write_text(text)
        beside.chmod(0o644)
        of_stranger(beside)
        beside.rename(met)
        for line in host.stderr:
            if "the previous configuration stays in effect" in line:
                break
        else:
            pytest.fail("the file was taken")
    finally:
        host.stdin.close()
        host.stdout.close()
        host.stderr.close()
        host.wait(TIMEOUT)
    assert not mark.exists()


# What else decides what is started


def test_import_passes_over_a_project_file_of_another_user_and_takes_it_where_it_is_named(
    met: Path, mark: Path, tmp_path: Path
) -> None:
    met.unlink()
    theirs = met.with_name(".mcp.json")
    theirs.write_text(json.dumps({"mcpServers": {"evil": touching(mark)}}))
    theirs.chmod(0o644)
    of_stranger(theirs)
    (tmp_path / "person").mkdir()
    wish = ["import", "--yes", "--config", str(tmp_path / "mine.json")]
    home = {"HOME": str(tmp_path / "person")}

    passed = run_command(*wish, cwd=met.parent, **home)
    taken = run_command(*wish, str(theirs), cwd=met.parent, **home)

    assert "skipped" in passed.out
    assert "0 new servers" in passed.out
    assert "1 new server" in taken.out


@pytest.mark.parametrize(
    "words",
    [
        ["./mcp-workbench", "serve"],
        ["./mcp-workbench"],
        ["sh", "./mcp-workbench", "-m", "mcp_workbench", "serve"],
        ["sh", "-c", "./mcp-workbench", "-m", "mcp_workbench", "serve"],
    ],
)
def test_doctor_starts_nothing_that_a_file_of_the_current_folder_names(
    tmp_path: Path, mark: Path, words: list[str]
) -> None:
    person = newcomer(tmp_path)
    program = person.folder / "mcp-workbench"
    program.write_text(f"#!/bin/sh\ntouch {mark}\n")
    program.chmod(0o755)
    theirs = {"mcpServers": {"workbench": {"command": words[0], "args": words[1:]}}}
    (person.folder / ".mcp.json").write_text(json.dumps(theirs))

    done = person.types("doctor", "--json")

    assert not mark.exists()
    assert "its version is not known" in done.out


SHADOWS = ("asyncio", "json", "logging", "mcp_workbench", "msgspec", "uvloop")


def test_modules_that_lie_in_the_current_folder_are_not_loaded_in_the_background(
    tmp_path: Path, mark: Path
) -> None:
    person = newcomer(tmp_path)
    config = write_config(person.home, toolbox(a=touching(mark.with_name("other"))))
    for name in SHADOWS:
        (person.folder / f"{name}.py").write_text(f"open({str(mark)!r}, 'w').close()\n")

    def types(word: str) -> int:
        ours = [sys.executable, "-P", "-m", "mcp_workbench", word, "--config", str(config)]
        done = subprocess.run(
            ours, cwd=person.folder, env=person.environ(), stdin=subprocess.DEVNULL, timeout=TIMEOUT
        )
        return done.returncode

    status = types("up")
    types("down")

    assert not mark.exists()
    assert status == 0


def test_every_python_that_we_start_ignores_the_current_folder() -> None:
    starts = [
        f"{path.name}: {line.strip()}"
        for path in Path(mcp_workbench.__file__).parent.rglob("*.py")
        for line in path.read_text("utf-8").splitlines()
        if '"-m", ' in line and ("mcp_workbench" in line or "ENGINE" in line)
    ]

    assert len(starts) >= 5
    assert [line for line in starts if '"-P", "-m", ' not in line] == []


def test_a_journal_that_others_can_write_is_not_followed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for name in ("journal", "backups"):
        (home / name).mkdir(parents=True)
        (home / name).chmod(0o700)
    record: dict[str, object] = {"id": 1, "command": "install", "time": 0.0, "steps": []}
    (home / "journal" / "0001.json").write_text(json.dumps(record))

    home.chmod(0o755)
    assert [one.id for one in Journal(str(home)).records()] == [1]
    (home / "journal").chmod(0o777)
    with pytest.raises(NotPrivate):
        Journal(str(home)).records()
    (home / "journal").chmod(0o700)
    home.chmod(0o1777)
    with pytest.raises(NotPrivate):
        Journal(str(home)).records()


def test_a_record_behind_a_link_is_none(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "journal").mkdir(parents=True)
    (home / "journal").chmod(0o700)
    home.chmod(0o700)
    record: dict[str, object] = {"id": 1, "command": "install", "time": 0.0, "steps": []}
    (tmp_path / "theirs.json").write_text(json.dumps(record))
    (home / "journal" / "0001.json").symlink_to(tmp_path / "theirs.json")

    assert Journal(str(home)).records() == []


# Pipes


@pytest.mark.parametrize("words", [["check"], ["serve"], ["tools"]])
@pytest.mark.usefixtures("short_deadlines")
def test_a_pipe_to_which_nobody_writes_is_told_instead_of_waited_for(
    tmp_path: Path, words: list[str]
) -> None:
    os.mkfifo(tmp_path / "pipe")

    done = run_command(*words, "--config", "pipe", cwd=tmp_path)

    assert done.status == 2
    assert "WB-CONF-002" in done.err
    assert "nobody has written" in done.err


def test_a_writer_that_never_ends_is_not_waited_for_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    endless = subprocess.Popen(
        ["sh", "-c", "while printf ' '; do sleep 0.05; done > pipe"], cwd=tmp_path
    )
    before = time.monotonic()
    monkeypatch.setattr(file_access, "PIPE_WAIT", 1.0)  # it reads ten, and more come
    try:
        with pytest.raises(ConfigError, match="nobody has written"):
            load_config(pipe, {})
    finally:
        endless.kill()
        endless.wait()

    assert time.monotonic() - before >= 1.0


@pytest.mark.usefixtures("short_deadlines")
def test_import_does_not_wait_at_a_pipe_either(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "env").mkdir()
    os.mkfifo(tmp_path / "env" / ".env")
    servers = {"a": {"command": "x", "envFile": str(tmp_path / "env" / ".env")}}
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": servers}))

    waiting = run_command("import", "pipe", "--dry-run", cwd=tmp_path)
    beside = run_command("import", "servers.json", "--dry-run", cwd=tmp_path)

    assert "nobody has written" in waiting.err
    assert "envFile" in beside.out
    assert "can't be read" in beside.out


class Swapper(threading.Thread):
    """Owns a folder, and puts a link in the place of every new file there whose name starts with this."""

    def __init__(self, folder: Path, start: str, target: Path) -> None:
        super().__init__()
        self._folder = folder
        self._start = start
        self._target = target
        self.stopped = threading.Event()

    def run(self) -> None:
        while not self.stopped.is_set():
            for path in self._folder.iterdir():
                if path.name.startswith(self._start) and not path.is_symlink():
                    with suppress(OSError):  # it is gone already
                        path.unlink()
                        path.symlink_to(self._target)


def test_the_owner_of_a_folder_can_not_have_the_rights_of_other_files_changed(
    tmp_path: Path,
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    secret.chmod(0o600)
    project = tmp_path / "project"
    project.mkdir()
    path = project / "mcp.json"
    swapper = Swapper(project, f".{path.name}.", secret)
    until = time.monotonic() + PATIENCE
    swaps = 0

    swapper.start()
    try:
        while swaps < 20 and time.monotonic() < until:
            with suppress(FileNotFoundError):  # between removing our file and putting a link there
                replace_file(path, None, b"{}", 0o4666)
            swaps += path.is_symlink()
            path.unlink(missing_ok=True)
    finally:
        swapper.stopped.set()
        swapper.join()

    assert swaps == 20
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600


def test_a_file_that_is_replaced_keeps_its_rights_but_not_those_of_its_owner(
    tmp_path: Path,
) -> None:
    path = tmp_path / "mcp.json"

    replace_file(path, None, b"{}", 0o4640)

    assert stat.S_IMODE(path.stat().st_mode) == 0o640
