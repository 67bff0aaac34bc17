"""`doctor` on the state folder: what we left in it goes on wish, what others keep there never does."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.cli.doctor_checks import CheckResult, check_state, foreign, own_files, stale
from tests.kit.command import Done, run_command
from tests.kit.config import demo_server, toolbox, write_config

if sys.platform == "win32":
    pytest.skip("there are no such files and no such rights here", allow_module_level=True)

pytestmark = pytest.mark.usefixtures("no_self_test")

HOURS_AGO = time.time() - 7200
NOBODY_S = 999_999_999  # a process beyond what Linux ever counts to
INTERRUPTED = """
import os, resource, signal, sys
from mcp_workbench.config.state_home import write_whole
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
for statement in sys.argv[1:]:
    if not os.fork():
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        exec(statement)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == -signal.SIGXFSZ
"""


def doctor(*argv: str, cwd: Path, **variables: str) -> Done:
    """With a home of its own, so that nobody's state is looked at, and without a server."""
    write_config(cwd, toolbox())
    home = {"HOME": str(cwd / "home"), "MCP_WORKBENCH_HOME": str(cwd / "state")}
    return run_command("doctor", *argv, cwd=cwd, **(home | variables))


def lines(done: Done) -> list[dict[str, Any]]:
    return [line for line in done.data["lines"] if line["subject"] == "state folder"]


def looked(folder: Path, *, fix: bool = False) -> list[CheckResult]:
    return list(check_state(str(folder), fix=fix))


def interrupted(state: Path, *statements: str) -> list[Path]:
    """What processes leave in the state folder that are killed, each while it writes a file there."""
    before = set(state.rglob("*"))
    subprocess.run([sys.executable, "-c", INTERRUPTED, *statements], timeout=40, check=True)
    left = set(state.rglob("*")) - before
    assert len(left) == len(statements)
    return list(left)


def older(path: Path) -> Path:
    """What versions up to 0.11 left in the same case."""
    left = path.with_name(f".{path.name}.0123456789ab")
    left.touch(0o600)
    return left


def abandoned_socket(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    with monkeypatch.context() as there, socket.socket(socket.AF_UNIX) as bound:
        there.chdir(path.parent)  # a socket's path is short
        bound.bind(path.name)
    return path


def rooms(state: Path) -> dict[str, Path]:
    state.mkdir(mode=0o700)
    found = {name: state / name for name in ("catalogues", "daemon", "journal", "backups")}
    for room in found.values():
        room.mkdir(mode=0o700)
    return found


def left_over(state: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """All kinds of files that may be left of ours."""
    room = rooms(state)
    record, copy = room["journal"] / "0001.json", room["backups"] / "0001-0"
    key, catalogue = room["catalogues"] / "key", room["catalogues"] / f"{'0f' * 20}.catalogue"
    files = interrupted(
        state,
        f"write_whole({str(key)!r}, b'x')",
        f"write_whole({str(catalogue)!r}, b'x')",
        f"write_whole({str(record)!r}, b'x', durable=True)",
        f"write_whole({str(copy)!r}, b'x', durable=True)",
    )
    files.append(older(copy))
    for path in files:
        os.utime(path, (HOURS_AGO, HOURS_AGO))
    return [*files, abandoned_socket(room["daemon"] / f"{'0f' * 8}.sock", monkeypatch)]


def test_what_is_left_over_in_the_state_folder_goes_on_wish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    old = left_over(state, monkeypatch)
    [new] = interrupted(state, f"write_whole({str(state / 'catalogues/key')!r}, b'x')")
    state.chmod(0o755)
    told = doctor("--json", cwd=tmp_path)
    assert told.status == 0
    assert {line["state"] for line in lines(told)} == {"doubtful"}
    assert all(path.exists() for path in (*old, new))
    mended = doctor("--json", "--fix", cwd=tmp_path)
    assert [line["fixed"] for line in lines(mended)] == [True] * (1 + len(old))
    assert [path for path in (*old, new) if path.exists()] == [new]
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert [line["state"] for line in lines(doctor("--json", cwd=tmp_path))] == ["good"]


def test_all_that_we_keep_is_known_as_ours(tmp_path: Path) -> None:
    """Made by the commands themselves, so that a new kind of file is missed here first."""
    variables = {"HOME": str(tmp_path / "home"), "MCP_WORKBENCH_HOME": str(tmp_path / "state")}
    (tmp_path / "home").mkdir()
    write_config(tmp_path, toolbox(a=demo_server()))
    write_config(tmp_path, {"mcpServers": {"b": demo_server()}}, "more.json")
    assert run_command("check", "--connect", cwd=tmp_path, **variables).status == 0
    more = ("import", "more.json", "--toolbox", "more", "--yes")
    assert run_command(*more, cwd=tmp_path, **variables).status == 0
    if sys.platform == "linux":
        assert run_command("up", cwd=tmp_path, **variables).status == 0
        assert run_command("down", cwd=tmp_path, **variables).status == 0
    state = tmp_path / "state"
    kept = {path for path, _ in own_files(state)}
    assert kept == {path for path in state.rglob("*") if not path.is_dir()}
    assert {path.parent.name for path in kept} >= {"catalogues", "journal", "backups"}
    assert foreign(state) == ""


def test_files_of_others_are_never_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "state"
    ours = left_over(state, monkeypatch)
    theirs: list[Path] = []
    for folder in (state, state / "work" / "nested", *(path.parent for path in ours)):
        folder.mkdir(parents=True, exist_ok=True)
        draft, number = folder / "draft.tmp", folder / "postgres.pid"
        draft.write_text("my novel")
        number.write_text(f"{NOBODY_S}\n")
        if not (folder / "app.sock").exists():
            theirs.append(abandoned_socket(folder / "app.sock", monkeypatch))
        theirs += [draft, number]
        for path in (draft, number):
            os.utime(path, (HOURS_AGO, HOURS_AGO))
    state.chmod(0o755)
    mended = doctor("--json", "--fix", cwd=tmp_path)
    assert all(path.exists() for path in theirs)
    assert not any(path.exists() for path in ours)
    assert stat.S_IMODE(state.stat().st_mode) == 0o755
    rights = lines(mended)[0]
    assert (rights["state"], rights["fixed"]) == ("doubtful", False)
    assert "which is not ours: its mode is left as it is" in rights["message"]
    assert rights["fix"] == "set MCP_WORKBENCH_HOME to a folder for this program alone"


def test_links_are_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    theirs = left_over(elsewhere, monkeypatch)
    state = tmp_path / "state"
    state.mkdir(mode=0o755)
    for room in elsewhere.iterdir():
        (state / room.name).symlink_to(room)
    assert [(line.state, line.fixed) for line in looked(state, fix=True)] == [("doubtful", False)]
    assert all(path.exists() for path in theirs)


@pytest.mark.parametrize("mode", [0o755, 0o1777])
def test_a_folder_that_is_not_for_us_alone_keeps_its_mode(
    mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(mode)
    if mode == 0o755:
        monkeypatch.setenv("HOME", str(home))
    (line,) = looked(home, fix=True)
    assert (line.state, line.fixed) == ("doubtful", False)
    assert ("it is your home folder" if mode == 0o755 else "for several users") in line.message
    assert stat.S_IMODE(home.stat().st_mode) == mode


def test_the_whole_file_system_is_not_looked_through(tmp_path: Path) -> None:
    before = Path("/").stat().st_mode
    done = doctor("--json", cwd=tmp_path, MCP_WORKBENCH_HOME="/")
    (line,) = lines(done)
    assert line["message"].startswith(("/", "other users can look into /"))
    assert Path("/").stat().st_mode == before


def test_a_socket_is_left_over_when_nobody_listens(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    path = Path("s")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("s")
        listening.listen()
        assert stale(path) == ""
    assert stale(path) == "nobody listens there"


def test_a_state_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    done = doctor(cwd=tmp_path)
    assert done.status == 1
    assert "is no folder" in done.out
