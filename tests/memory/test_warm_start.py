"""A host's first list from what servers offered last time: none is started, and none is believed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kit.clock import PATIENCE, eventually
from tests.kit.command import run_command
from tests.kit.config import config_file, entry, program_entry, write_config
from tests.kit.pipe_host import PipeHost
from tests.kit.processes import pids_in
from tests.kit.results import INITIALIZE, json_text
from tests.kit.servers import ASKER

pytestmark = pytest.mark.usefixtures("forked_commands")

MANY = 3
SECRET = "canary-5d1e77aa90"

Tools = list[dict[str, Any]]


class Shop:
    """Some servers of one toolbox, each with a file of its tools; every process leaves its number."""

    def __init__(self, folder: Path, servers: int = MANY) -> None:
        self._folder = folder
        self._pids = folder / "pids"
        self.names = [f"s{number}" for number in range(servers)]
        for name in self.names:
            self.stock(name, [{"name": f"tool_of_{name}", "inputSchema": {"type": "object"}}])

    def stock(self, name: str, tools: Tools) -> None:
        (self._folder / f"{name}.json").write_text(json.dumps(tools))

    def config(self, **more: Any) -> Path:
        env = {"PIDFILE": str(self._pids), "API_TOKEN": "${CANARY:-none}"}
        servers = {n: entry(f"tools={self._folder / n}.json", env=env) for n in self.names}
        dev = {"mcpServers": servers}
        return write_config(
            self._folder, {"toolMode": "dynamic", "toolboxes": {"dev": dev}, **more}
        )

    @property
    def started(self) -> int:
        return len(pids_in(self._pids))


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def listed(host: PipeHost) -> list[str]:
    names = [tool["name"] for tool in host.result("tools/list")["tools"]]
    return [name for name in names if name not in ("open_toolbox", "use_tool")]


def met(config: Path, **env: str) -> str:
    """Let a host see all servers once; what we said on stderr until we ended."""
    with PipeHost(config, "--toolbox", "dev", env=env) as host:
        host.initialize()
        listed(host)
    return host.stderr


def files(home: Path) -> list[Path]:
    return sorted((home / "catalogues").glob("*.catalogue"))


KINDS: dict[str, tuple[bool, dict[str, Any]]] = {
    "legacy host with an opened toolbox": (False, {}),
    "modern host": (True, {}),
    "legacy host, bare names": (False, {"naming": "bare"}),
    "modern host, bare names": (True, {"naming": "bare"}),
}


@pytest.mark.parametrize(("modern", "more"), KINDS.values(), ids=KINDS)
def test_a_warm_start_answers_the_first_list_and_starts_nobody(
    shop: Shop, modern: bool, more: dict[str, Any]
) -> None:
    config = shop.config(**more)
    met(config)
    assert shop.started == MANY

    with PipeHost(config, "--toolbox", "dev", modern=modern) as host:
        if modern:
            host.result("server/discover")
        else:
            host.initialize()
        names = listed(host)

    prefix = "" if more else "dev__{0}__"
    assert names == [(prefix + "tool_of_{0}").format(name) for name in shop.names]
    assert shop.started == MANY


def test_servers_that_still_offer_what_was_cached_change_no_list(shop: Shop) -> None:
    config = shop.config()
    met(config)

    with PipeHost(config, "--toolbox", "dev") as host:
        host.initialize()
        first: dict[str, Any] = {"id": "tools", "method": "tools/list", "params": {}}
        then: dict[str, Any] = {"id": "resources", "method": "resources/list", "params": {}}
        lines = (json.dumps({"jsonrpc": "2.0", **each}).encode() + b"\n" for each in (first, then))
        host.write(
            b"".join(lines)
        )  # the second one starts the servers whose cache the first one reads
        host.answer("tools")
        host.answer("resources")
        eventually(lambda: shop.started == 2 * MANY, "all servers are started")
        host.close()
        host.rest()

    assert not [line for line in host.lines if b"list_changed" in line]


def test_a_server_that_offers_something_else_changes_the_list(shop: Shop) -> None:
    config = shop.config()
    met(config)
    shop.stock("s2", [{"name": "other", "inputSchema": {}}])

    with PipeHost(config, "--toolbox", "dev") as host:
        host.initialize()
        host.ask("tools/list", id="tools")
        host.ask("resources/list", id="resources")
        host.notice("notifications/tools/list_changed")
        assert "dev__s2__other" in listed(host)


def test_definitions_come_back_as_their_server_wrote_them(tmp_path: Path) -> None:
    shop = Shop(tmp_path, 1)
    odd: Tools = [{"name": "a", "x-new": [1.50, None, {"\u00e4": "\u2028"}], "inputSchema": {}}]
    shop.stock("s0", odd)
    config = shop.config(naming="bare")

    lists: list[bytes] = []
    for _ in range(2):
        with PipeHost(config) as host:
            host.initialize()
            host.result("tools/list")
            lists.append(host.lines[-1])

    assert shop.started == 1
    assert lists[0] == lists[1]
    assert b"1.5" in lists[1]


def test_proxy_mode_reads_and_writes_nothing_at_its_start(shop: Shop, state_home: Path) -> None:
    with PipeHost(shop.config(toolMode="proxy")) as host:
        host.initialize()
        host.result("tools/list")

    assert not state_home.exists()


def test_a_call_starts_its_server_and_is_told_by_it_alone(shop: Shop) -> None:
    config = shop.config()
    met(config)
    shop.stock("s1", [{"name": "other", "inputSchema": {}}])

    with PipeHost(config, "--toolbox", "dev") as host:
        host.initialize()
        assert "dev__s1__tool_of_s1" in listed(host)
        error = host.call("dev__s1__tool_of_s1", {})

        assert error["isError"] is True
        assert "Tool 'tool_of_s1' not found" in error["content"][0]["text"]
        host.notice("notifications/tools/list_changed")
        names = listed(host)
        assert "dev__s1__other" in names
        assert "dev__s1__tool_of_s1" not in names
        assert json_text(host.call("dev__s1__other", {"n": 1}))["arguments"] == {"n": 1}
    assert shop.started == MANY + 1
    assert "dev/s1: tools changed since " in host.stderr
    assert "added other; removed tool_of_s1" in host.stderr


def test_a_server_that_offers_more_to_a_host_that_can_be_asked_has_not_changed(
    tmp_path: Path,
) -> None:
    config = config_file(tmp_path, {"s": program_entry(ASKER, "polite", era="legacy")})

    def opened(**capabilities: Any) -> tuple[set[str], str]:
        with PipeHost(config) as host:
            host.result("initialize", {**INITIALIZE, "capabilities": capabilities})
            host.notify("notifications/initialized")
            names = {tool["name"] for tool in host.open()["tools"]}
        return names, host.stderr

    run_command("tools", "-q", cwd=tmp_path)  # without a host
    few, first = opened()
    more, second = opened(elicitation={}, roots={})
    again, third = opened()

    assert more - few == {"name", "roots"}
    assert again == few
    assert "tools changed" not in first + second + third
    assert "changed" not in run_command("tools", cwd=tmp_path).err


@pytest.mark.parametrize("mode", ["proxy", "dynamic"])
def test_the_example_in_the_instructions_is_a_tool_that_a_server_has(shop: Shop, mode: str) -> None:
    config = shop.config(toolMode=mode)
    wants = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
    shop.stock("s0", [{"name": "get_thing", "inputSchema": wants}])
    with PipeHost(config) as host:
        assert "read_file" in host.initialize()["instructions"], "nothing is known yet"
        host.open()
    started = shop.started

    for modern in (False, True):
        with PipeHost(config, modern=modern) as host:
            hello = host.result("server/discover") if modern else host.initialize()
        text = hello["instructions"]
        call = json.loads(text[text.rindex("\n{") :])
        assert call.pop("arguments") == {"id": "<id>"}
        tool = {"toolbox": "dev", "server": "s0", "tool": "get_thing"}
        assert call == ({"tool": tool} if mode == "proxy" else {"name": "dev__s0__get_thing"})
    assert shop.started == started


def test_a_change_is_told_once_and_what_is_the_same_is_not_told(shop: Shop) -> None:
    config = shop.config(toolMode="proxy")

    def opened() -> str:
        with PipeHost(config) as host:
            host.initialize()
            host.open()
        return host.stderr

    assert "tools changed" not in opened()
    shop.stock("s1", [{"name": "tool_of_s1", "description": "new", "inputSchema": {}}])
    told = opened()
    assert told.count("tools changed") == 1
    assert "dev/s1: tools changed since " in told
    assert "changed tool_of_s1" in told
    assert "tools changed" not in opened()


def test_only_servers_that_are_not_known_are_started(tmp_path: Path) -> None:
    met(Shop(tmp_path, 2).config())
    more = Shop(tmp_path, 3)

    with PipeHost(more.config(), "--toolbox", "dev") as host:
        host.initialize()
        assert len(listed(host)) == 3

    assert more.started == 3


def test_a_server_without_a_value_for_its_variable_is_not_shown(tmp_path: Path) -> None:
    env = {"TOKEN": "${NEEDED}", "PIDFILE": str(tmp_path / "pids")}
    boxes = {"dev": {"mcpServers": {"a": entry(env=env), "b": entry()}}}
    config = write_config(tmp_path, {"toolMode": "dynamic", "toolboxes": boxes})
    met(config, NEEDED="value-of-it")
    assert len(pids_in(tmp_path / "pids")) == 1

    with PipeHost(config, "--toolbox", "dev") as host:
        host.initialize()
        names = listed(host)

    assert not [name for name in names if name.startswith("dev__a__")]
    assert [name for name in names if name.startswith("dev__b__")]


def test_it_can_be_switched_off(shop: Shop, state_home: Path) -> None:
    config = shop.config()
    met(config, MCP_WORKBENCH_CACHE="off")
    assert not state_home.exists()
    met(config)

    met(config, MCP_WORKBENCH_CACHE="off")

    assert shop.started == 3 * MANY


def test_no_secret_is_in_the_folder_nor_in_the_name_of_a_file(shop: Shop, state_home: Path) -> None:
    shop.stock("s2", [{"name": "leaky", "description": f"uses {SECRET}", "inputSchema": {}}])

    met(shop.config(), CANARY=SECRET)

    kept = [path for path in state_home.rglob("*") if path.is_file()]
    assert len(kept) == MANY  # a key, and all servers but the one that repeats the secret
    assert not [path for path in kept if SECRET.encode() in path.read_bytes() + os.fsencode(path)]


# Damage


def test_a_damaged_file_costs_one_warning_and_is_replaced(tmp_path: Path, state_home: Path) -> None:
    shop = Shop(tmp_path, 3)
    config = shop.config()
    met(config)
    bad = files(state_home)[0]
    bad.write_bytes(bad.read_bytes()[:-9])

    told = met(config)
    again = met(config)

    assert told.count("can't be read and is not used: it is incomplete or was changed") == 1
    assert again == ""
    assert shop.started == 3 + 1


@pytest.mark.fault("F43")
def test_a_state_folder_that_can_t_be_written_costs_one_warning_and_no_call(
    tmp_path: Path,
) -> None:
    shop = Shop(tmp_path, 3)
    (tmp_path / "file").touch()
    with PipeHost(
        shop.config(), "--toolbox", "dev", env={"MCP_WORKBENCH_HOME": str(tmp_path / "file")}
    ) as host:
        host.initialize()
        assert len(listed(host)) == 3
        assert json_text(host.call("dev__s0__tool_of_s0", {}))["name"] == "tool_of_s0"

    assert host.stderr.count("can't be kept for the next start") == 1


READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'


def test_a_read_only_folder_is_read_all_the_same(tmp_path: Path, state_home: Path) -> None:
    shop = Shop(tmp_path, 3)
    config = shop.config()
    met(config)
    folder = state_home / "catalogues"
    command = [sys.executable, "-m", "mcp_workbench", "serve", "--config", str(config)]
    if os.geteuid() == 0:  # whom rights alone do not stop
        command = ["unshare", "--mount", "sh", "-c", READ_ONLY, "sh", str(folder), *command]
        if subprocess.run([*command[:7], "true"], capture_output=True).returncode:
            pytest.skip("the system does not let root mount anything here")
    folder.chmod(0o500)
    try:
        done = subprocess.run(
            [*command, "--toolbox", "dev"], input=SESSION, capture_output=True, timeout=PATIENCE
        )
    finally:
        folder.chmod(0o700)

    assert (done.returncode, done.stderr) == (0, b"")
    assert b"dev__s2__tool_of_s2" in done.stdout
    assert shop.started == 3


SESSION = b"""\
{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}
{"jsonrpc":"2.0","id":2,"method":"tools/list"}
"""


LIMITED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
os.execv(sys.executable, [sys.executable, "-m", "mcp_workbench", *sys.argv[1:]])
"""


@pytest.mark.fault("F43")
def test_a_full_disk_costs_one_warning_and_leaves_no_half_file(
    tmp_path: Path, state_home: Path
) -> None:
    shop = Shop(tmp_path, 3)
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    wish = {"toolbox": "dev", "server": "s0", "tool": "tool_of_s0"}
    called = {**request, "params": {"name": "use_tool", "arguments": {"tool": wish}}}
    opening = {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "x", "version": "1"},
        },
    }
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, "serve", "--config", str(shop.config())],
        input=b"".join(json.dumps(line).encode() + b"\n" for line in (opening, called)),
        capture_output=True,
        timeout=PATIENCE,
    )

    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert json_text(next(a for a in answers if a["id"] == 1)["result"])["name"] == "tool_of_s0"
    assert done.stderr.decode().count("can't be kept for the next start: File too large") == 1
    assert [path.name for path in (state_home / "catalogues").iterdir()] == ["key"]


# Many at once


def test_two_at_once_write_what_either_can_read(tmp_path: Path, state_home: Path) -> None:
    shop = Shop(tmp_path)
    config = shop.config()
    with (
        PipeHost(config, "--toolbox", "dev") as one,
        PipeHost(config, "--toolbox", "dev") as two,
    ):
        for host in (one, two):
            host.initialize()
        for host in (one, two):  # both are at it before either is answered
            host.ask("tools/list", id="list")
        for host in (one, two):
            assert len(host.answer("list")["result"]["tools"]) == MANY + 2

    assert one.stderr + two.stderr == ""
    assert len(files(state_home)) == MANY
    assert not list(state_home.rglob("*.tmp"))
    before = shop.started
    assert met(config) == ""
    assert shop.started == before


ROUNDS = 10  # that each writes or reads while the others do
WRITER = """
import os, sys, time
from mcp_workbench.core.catalogue import Catalogue, Definition, KnownCatalogue
from mcp_workbench.core.spec import ServerAddress
from mcp_workbench.core.spec import ServerSpec, StdioCommand
from mcp_workbench.upstream.cache import CatalogueFiles

spec = ServerSpec(ServerAddress("dev", "s"), StdioCommand("/bin/x"))
files = CatalogueFiles(os.environ)
names = [sys.argv[1] + str(number) for number in range(200)]
raw = b'{"x":"' + sys.argv[1].encode() * 5000 + b'"}'
tools = {name: Definition(name, raw) for name in names}
while os.read(0, 1):  # a byte for each round
    if sys.argv[1] == "reader":
        found = files.read(spec)
        assert found is not None, "there was a whole file before it began"
        assert len({name[0] for name in found.catalogue.tools}) == 1
    else:
        files.write(spec, KnownCatalogue(Catalogue(tools), False, at=time.time()))
    os.write(1, b".")
"""


def begin(role: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, role],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def let(process: subprocess.Popen[bytes], rounds: int) -> None:
    assert process.stdin is not None
    process.stdin.write(b"." * rounds)
    process.stdin.flush()


def did(process: subprocess.Popen[bytes], rounds: int) -> None:
    assert process.stdout is not None
    for _ in range(rounds):
        assert process.stdout.read(1) == b".", process.communicate()[1]


def test_no_reader_ever_sees_half_a_file_even_if_writers_are_killed(state_home: Path) -> None:
    with begin("a") as one, begin("b") as two, begin("reader") as reader:
        try:
            for rounds in range(3):
                with begin("c") as third:
                    let(third, 1000)  # more than it does before it is killed
                    did(third, 1)  # it has started: from here on all write and read at once
                    for process in (one, two, reader):
                        let(process, ROUNDS)
                    did(third, rounds)
                    third.send_signal(signal.SIGKILL)
                    assert third.stderr is not None
                    third.stderr.read()
                for process in (one, two, reader):
                    did(process, ROUNDS)
            let(reader, 1)
            did(reader, 1)
            assert reader.poll() is None
        finally:
            for process in (one, two, reader):
                process.kill()
    assert len(files(state_home)) == 1


def test_a_list_that_changes_while_we_serve_is_kept_too(tmp_path: Path, state_home: Path) -> None:
    config = write_config(
        tmp_path,
        {"toolMode": "dynamic", "toolboxes": {"dev": {"mcpServers": {"a": entry()}}}},
    )
    with PipeHost(config, "--toolbox", "dev") as host:
        host.initialize()
        listed(host)
        host.call("dev__a__flip", {"name": "flipped"})
        host.notice("notifications/tools/list_changed")
        eventually(
            lambda: any(b'"flipped"' in path.read_bytes() for path in files(state_home)),
            "the new list is written",
        )
    assert "tools changed" not in host.stderr  # it said so itself: that is no warning
