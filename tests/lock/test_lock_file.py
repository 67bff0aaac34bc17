"""The lock file: its form, broken and hostile ones, and many writers at once."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.config.expand import Environment
from mcp_workbench.config.load import load_config
from mcp_workbench.config.lock_file import (
    NotWritten,
    change_lock,
    encode_lock,
    parse_lock,
    read_lock,
)
from mcp_workbench.core.spec import (
    LockedServer,
    LockFile,
    ServerAddress,
    ServerSpec,
    StdioCommand,
)
from mcp_workbench.gateway.workbench import Gateway
from mcp_workbench.upstream.definition_locks import MOST_WARNINGS, DefinitionLocks
from tests.kit.clock import PATIENCE, until
from tests.kit.results import error_code, texts
from tests.kit.root import needs_root
from tests.lock.scenes import LOCK, Scene, opened, tool_names

HASH = "sha256:" + "0" * 64
OTHER = "sha256:" + "1" * 64
ENTRY = LockedServer(
    HASH,
    "npx -y some-server",
    "npm:some-server@1.0.0",
    "some 1",
    (("at", "2026-11-16T12:00:00Z"), ("by", "anna"), ("version", "1")),
    {"tools": ("elicitation",)},
    {"instructions": {"": HASH}, "tools": {"b": HASH, "a": OTHER}, "prompts": {}},
    {"tools": {"c": OTHER}, "launch": {"": OTHER}},
    {"prompts": {"d": OTHER}},
    "checked by hand",
)


def test_the_file_is_sorted_with_one_definition_per_line_and_reads_back() -> None:
    servers = {"dev/z": LockedServer(HASH), "dev/a": ENTRY}
    text = encode_lock(servers)

    lines = text.decode().splitlines()
    assert parse_lock("x", text).servers == servers
    assert encode_lock(dict(reversed(servers.items()))) == text
    assert [line.split(":")[0].strip() for line in lines if HASH in line or OTHER in line] == [
        '"launch"', '"launch"', '"c"', '"d"', '"instructions"', '"a"', '"b"', '"launch"',
    ]  # fmt: skip
    assert text.isascii()
    assert text.endswith(b"}\n")


def test_names_of_servers_can_forge_no_line_and_no_direction_of_text() -> None:
    odd = 'a\n"b": \u202e\U000e0041"\x1b[2J'
    text = encode_lock({"dev/s": LockedServer(HASH, lists={"tools": {odd: HASH}})})

    assert "\u202e".encode() not in text
    assert b"\x1b" not in text
    assert parse_lock("x", text).servers["dev/s"].lists["tools"] == {odd: HASH}


def test_comments_and_another_layout_are_read(tmp_path: Path) -> None:
    text = encode_lock({"dev/s": ENTRY}).decode()
    edited = "// ours\n" + text.replace("{\n", "{ /* here */\n", 2).replace("}\n", "},\n", 1)

    lock = parse_lock("x", edited.encode())

    assert lock.problem is None
    assert lock.servers == {"dev/s": ENTRY}


def whole(**entry: Any) -> str:
    return json.dumps({"mcpWorkbenchLock": 1, "servers": {"dev/s": entry}})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "1:1: the text ends too early"),
        ("{", "expected a name"),
        ("[]", "must be an object"),
        ("{}", "the format of the file: must be 1"),
        ('{"mcpWorkbenchLock": 2}', "newer version"),
        ('{"mcpWorkbenchLock": 1, "server": {}}', "(server): this key is not known"),
        (whole(tools={"a": "sha256:12"}), '(servers["dev/s"].tools.a): must be a hash'),
        (whole(tools={"a": 1}), "must be a hash"),
        (whole(tools=["a"]), '(servers["dev/s"].tools): must be an object'),
        (whole(launch=None), '(servers["dev/s"].launch): must be a hash'),
        (whole(approve=True), '(servers["dev/s"].approve): this key is not known'),
        (whole(hostCapabilities={"tools": [1]}), "must be a list of strings"),
        ('{"mcpWorkbenchLock": 1, "servers": []}', "(servers): must be an object"),
        ('{"mcpWorkbenchLock": 1, "servers": {"a/b": 1}}', '(servers["a/b"]): must be an object'),
        *(
            (whole(**{key: 1}), f'(servers["dev/s"].{key}): must be a string')
            for key in ("note", "launchLine", "package", "server")
        ),
        (whole(recorded={"by": 1}), '(servers["dev/s"].recorded.by): must be a string'),
        *(
            (whole(**{key: {"x": {}}}), f'(servers["dev/s"].{key}.x): this key is not known')
            for key in ("recorded", "rejected", "gone", "hostCapabilities")
        ),
        *(
            (whole(**{key: 1}), f'(servers["dev/s"].{key}): must be an object')
            for key in ("recorded", "rejected", "gone", "hostCapabilities")
        ),
        *(
            (whole(**{key: {"tools": {"a": 1}}}), f'(servers["dev/s"].{key}.tools.a): must be a')
            for key in ("rejected", "gone")
        ),
        (
            f'{{"mcpWorkbenchLock": 1, "servers": {{"dev/s": {{"tools": {{"a": "{HASH}",\n"a": "{OTHER}"}}}}}}}}',
            '2:1 (servers["dev/s"].tools.a): this key occurs twice',
        ),
        ("{\n<<<<<<< ours\n}\n=======\n>>>>>>> theirs\n", "2:1: it has conflicts of a merge"),
        ("\udcff", "not UTF-8"),
        ("[" * 100_000, "nested"),
    ],
)
def test_a_broken_file_is_a_problem_with_place_and_fix(text: str, words: str) -> None:
    lock = parse_lock("mcp-workbench.lock", text.encode("utf-8", "surrogateescape"))

    assert lock.servers == {}
    assert lock.problem is not None
    assert words in lock.problem.message
    assert lock.problem.message.startswith("mcp-workbench.lock")
    assert lock.problem.fix
    assert lock.problem.code == "WB-LOCK-001"


def test_a_file_that_everybody_can_change_is_not_used(tmp_path: Path) -> None:
    file = tmp_path / "mcp-workbench.lock"
    file.write_bytes(encode_lock({"dev/s": ENTRY}))
    file.chmod(0o666)

    problem = read_lock(str(file)).problem

    assert problem is not None
    assert problem.fix == f"chmod o-w {file}"


@needs_root("nobody else can give a file away")
def test_a_file_of_another_user_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir()
    (tmp_path / "theirs").mkdir()
    theirs, link = tmp_path / "theirs" / LOCK, tmp_path / "ours" / LOCK
    change_lock(str(theirs), lambda _: {"dev/s": ENTRY})
    for path in (theirs, theirs.parent):
        os.chown(path, 65534, 65534)
    link.symlink_to(theirs)

    problem = read_lock(str(link)).problem

    assert problem is not None
    assert "belongs to another user (65534), who could approve" in problem.message
    assert read_lock(str(theirs)).problem is None  # that of the folder, of which the user was told


def test_a_pipe_a_folder_and_a_huge_file_are_problems(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "huge").touch()
    os.truncate(tmp_path / "huge", 9 << 20)

    for name, words in (("fifo", "no plain file"), (".", "directory"), ("huge", "larger than")):
        problem = read_lock(str(tmp_path / name)).problem
        assert problem is not None
        assert words in problem.message


def test_a_broken_file_is_never_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "mcp-workbench.lock"
    file.write_text("{")

    with pytest.raises(NotWritten, match="expected a name"):
        change_lock(str(file), lambda servers: servers)

    assert file.read_text() == "{"


ADD = """
import sys
from mcp_workbench.config.lock_file import change_lock
from mcp_workbench.core.spec import LockedServer

path, worker, hash = sys.argv[1:]
for number in range(20):
    name = f"dev/{worker}-{number}"
    change_lock(path, lambda servers: {**servers, name: LockedServer(hash)})
"""


def test_many_processes_lose_nothing_of_each_other(tmp_path: Path) -> None:
    path = str(tmp_path / "mcp-workbench.lock")
    workers = [
        subprocess.Popen([sys.executable, "-c", ADD, path, str(number), HASH])
        for number in range(4)
    ]
    while any(worker.poll() is None for worker in workers):
        lock = read_lock(path)  # a reader never sees half of a file
        assert lock.problem is None

    assert [worker.returncode for worker in workers] == [0] * 4
    assert len(read_lock(path).servers) == 80
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["mcp-workbench.lock"]


def test_a_new_file_is_readable_by_all_and_an_old_one_keeps_its_mode_and_its_link(
    tmp_path: Path,
) -> None:
    real, link = tmp_path / "real.lock", tmp_path / "mcp-workbench.lock"
    link.symlink_to(real)
    change_lock(str(link), lambda servers: {"dev/a": LockedServer(HASH)})
    first = stat.S_IMODE(real.stat().st_mode)
    real.chmod(0o600)
    change_lock(str(link), lambda servers: {"dev/b": LockedServer(HASH)})

    assert first == 0o644
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    assert link.is_symlink()
    assert set(read_lock(str(link)).servers) == {"dev/b"}


@pytest.mark.parametrize("level", ["pin", "review"])
def test_a_broken_file_closes_servers_that_need_it(tmp_path: Path, level: str) -> None:
    scene = Scene(tmp_path, level)
    scene.lock.write_text("{\n  oops\n}")
    with scene.host() as host:
        opened(host)
        result = host.use("s", "add")

    text = json.dumps(result)
    assert "quarantined" in text
    assert "mcp-workbench.lock:2:3" in text
    assert scene.lock.read_text() == "{\n  oops\n}"


def test_a_broken_file_is_a_warning_at_the_level_record(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.lock.write_text("{\n  oops\n}")
    with scene.host() as host:
        names = tool_names(opened(host))

    checked = scene.run("check", "--json")
    [problem] = [p for p in checked.data["problems"] if p["code"] == "WB-LOCK-001"]
    assert names == ["add", "announce"]
    assert checked.status == 0
    assert problem["severity"] == "warning"
    assert "mcp-workbench.lock:2:3" in problem["message"]
    for argv in (["lock"], ["lock", "diff"], ["lock", "verify"]):
        failed = scene.run(*argv, "--json")
        assert failed.status == 1
        assert failed.failure["code"] == "WB-LOCK-001"


def test_a_first_sight_that_cannot_be_written_is_not_shown(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "pin")
    scene.lock.symlink_to(tmp_path / "missing" / LOCK)
    with scene.host() as host:
        names = tool_names(opened(host))
        result = host.use("s", "add")

    assert names == []
    assert error_code(result) == "quarantined"
    assert "can't be written" in host.stderr


def test_nor_is_it_shown_from_the_cache(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "pin")
    scene.lock.symlink_to(tmp_path / "missing" / LOCK)
    with scene.host() as host:
        tool_names(opened(host))
    with scene.host() as host:
        found = texts(opened(host).call("search_tools", {"query": "adds two numbers"}))

    assert "announce" not in str(found)
    assert '"add"' not in str(found)


async def test_what_could_not_be_recorded_stays_hidden_when_the_file_changes(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path, "pin")
    scene.lock.symlink_to(tmp_path / "missing" / LOCK)
    configuration = load_config(scene.config)
    [server] = configuration.toolboxes["dev"].servers.values()
    async with asyncio.timeout(PATIENCE), Gateway(configuration) as gateway:
        assert list((await gateway.view.survey(server.address)).tools) == []

        entry = LockedServer(HASH, lists={"tools": {}})
        gateway.pool.relock(LockFile(str(scene.lock), {"dev/other": entry}))
        assert list((await gateway.view.survey(server.address)).tools) == []

        scene.lock.unlink()  # now it can be written
        gateway.pool.relock(LockFile(str(scene.lock)))
        [connection] = gateway.connected
        await until(lambda: bool(connection.tools.catalogue.tools))
        told = await gateway.view.survey(server.address)

    assert [tool.name for tool in told.tools] == ["add", "announce"]
    assert set(scene.locked()["tools"]) == {"add", "announce"}


def test_a_server_that_defines_too_much_does_not_close_the_others(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "pin")
    schema = {"type": "object"}
    many = [{"name": f"{'x' * 1000}{n}", "inputSchema": schema} for n in range(1000)]
    scene.define(tools=many)
    with scene.host() as host:
        names = tool_names(opened(host))
    warned = host.stderr

    scene.define(tools=many[:10])
    with scene.host() as host:
        fewer = tool_names(opened(host))

    assert names == []
    assert "nothing new is shown" in warned
    assert "no room for dev/s" in warned
    assert len(fewer) == 10


def test_what_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / LOCK
    names = [f"{'x' * 4000}{n}" for n in range(225)]
    entry = LockedServer(HASH, lists={"tools": dict.fromkeys(names, HASH)})
    change_lock(str(path), lambda _: {f"dev/s{n}": entry for n in range(9)})
    before = path.read_bytes()

    with pytest.raises(NotWritten, match="would be larger than 8 MiB"):
        change_lock(str(path), lambda servers: {**servers, "dev/t": entry})

    assert path.read_bytes() == before
    assert read_lock(str(path)).problem is None


async def test_warnings_about_changes_end(caplog: pytest.LogCaptureFixture) -> None:
    entry = LockedServer(lists={"tools": {"a": HASH}})
    locks = DefinitionLocks(LockFile("", {"dev/s": entry}), Environment({}))
    server = ServerSpec(ServerAddress("dev", "s"), StdioCommand("true"))

    for number in range(MOST_WARNINGS + 10):
        await locks.admit(server, "tools", {"a": b"%d" % number}, ())

    assert len(caplog.records) == MOST_WARNINGS + 1
    assert "no more warnings" in caplog.text
