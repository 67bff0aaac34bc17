"""Hosts that join share servers, and see no difference otherwise."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.daemon.attach import ANSWER
from tests.kit.clock import PATIENCE, eventually
from tests.kit.command import COMMAND
from tests.kit.config import config_file, entry, program_entry, write_config
from tests.kit.pipe_host import PipeHost, parsed
from tests.kit.processes import alive, gone, pids_in, unmeasured
from tests.kit.results import META, json_text
from tests.kit.servers import ASKER
from tests.kit.shared import SHORT, Shared, shared

pytestmark = pytest.mark.usefixtures("forked_commands")

both = pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])


def noted(pids: Path, *flags: str, **more: Any) -> dict[str, Any]:
    return entry(*flags, env={"PIDFILE": str(pids)}, **more)


def test_hosts_of_both_eras_share_one_process(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with shared(config_file(tmp_path, {"a": noted(pids)})) as bench:
        with bench.host() as old, bench.host(modern=True) as new, bench.host() as third:
            old.initialize()
            third.initialize()

            told = {json_text(host.use("a", "stats"))["pid"] for host in (old, new, third)}

            assert told == set(pids_in(pids))
            assert len(told) == 1
            assert [h["revision"] for h in bench.status()["hosts"]].count("2026-07-28") == 1
            assert bench.server("a")["connections"] == 1
        assert (old.stderr, new.stderr) == ("", "")
        bench.hosts(0)
        assert all(map(alive, pids_in(pids))), "the servers are those of the workbench"


@both
@pytest.mark.parametrize("mode", ["proxy", "dynamic"])
def test_answers_are_those_of_a_host_alone(tmp_path: Path, mode: str, modern: bool) -> None:
    """Byte for byte, but for the fixture's own numbers."""
    config = config_file(tmp_path, {"a": entry("stderr=0")}, toolMode=mode)

    def session(host: PipeHost) -> list[bytes]:
        host.handshake()
        host.request("tools/list")
        host.request("ping")
        host.call("open_toolbox", {"toolbox_name": "dev"})
        host.request("tools/list")
        host.request("tools/call", {"name": "use_tool", "arguments": {"tool": 5}})
        host.request("prompts/list")
        host.request("no/such")
        host.request("tools/call", {"name": "dev__a__big", "arguments": {"n": 5}})
        host.write(b"{not json\n")
        host.line()
        return host.lines

    with PipeHost(config, "--attach", "never", modern=modern) as alone:
        expected = session(alone)
    with shared(config) as bench, bench.host(modern=modern) as joined:
        assert session(joined) == expected
        assert len(bench.status()["hosts"]) == 1
    assert joined.stderr == ""


@both
def test_progress_and_cancels_are_each_hosts_own(tmp_path: Path, modern: bool) -> None:
    with (
        shared(config_file(tmp_path, {"a": entry()})) as bench,
        bench.host(modern=modern) as one,
        bench.host(modern=modern) as two,
    ):
        one.handshake()
        two.handshake()
        for host, n in ((one, 3), (two, 2)):  # both with id 2 and the same token
            answer = host.use("a", "progress", {"n": n}, _meta={"progressToken": "t"})
            assert json_text(answer) == n
            assert [m["params"]["progressToken"] for m in host.others] == ["t"] * n
        held = one.begin_use("a", "hold", {"key": "k"})
        kept = two.begin_use("a", "hold", {"key": "other"})
        eventually(lambda: bench.server("a")["callsInFlight"] == 2, "both are under way")

        one.notify("notifications/cancelled", {"requestId": held})

        eventually(lambda: bench.server("a")["callsInFlight"] == 1, "one was taken back")
        one.use("a", "release", {"key": "other"})
        assert json_text(two.answer(kept)["result"]) == "released other"
        assert len(json_text(one.use("a", "stats"))["cancelled"]) == 1


def asker(era: str, **more: Any) -> dict[str, Any]:
    return program_entry(ASKER, era=era, **more)


@both
@pytest.mark.parametrize("server", ["own", "modern"])
def test_questions_reach_the_host_whose_call_it_is(
    tmp_path: Path, modern: bool, server: str
) -> None:
    servers = {"own": asker("legacy", scope="session"), "modern": asker("modern")}
    can: dict[str, Any] = {"elicitation": {"form": {}}}
    with (
        shared(config_file(tmp_path, servers)) as bench,
        bench.host(modern=modern) as one,
        bench.host(modern=modern) as two,
    ):
        for name, host in (("Ada", one), ("Bob", two)):
            if not modern:
                info = {"name": name, "version": "1"}
                params = {"protocolVersion": "2025-11-25", "capabilities": can, "clientInfo": info}
                host.result("initialize", params)
        more = {"_meta": {META + "clientCapabilities": can}} if modern else {}
        calls = [host.begin_use(server, "name", **more) for host in (one, two)]
        for name, host, call in (("Bob", two, calls[1]), ("Ada", one, calls[0])):
            accept = {"action": "accept", "content": {"name": name}}
            if modern:
                result = host.answer(call)["result"]
                [key] = result["inputRequests"]
                answers = {"inputResponses": {key: accept}, "requestState": result["requestState"]}
                result = host.use(server, "name", **answers, **more)
            else:
                question = host.until(lambda m: m.get("method") == "elicitation/create")
                host.send({"id": question["id"], "result": accept})
                result = host.answer(call)["result"]
            assert json_text(result)["a"]["content"] == {"name": name}
        assert bench.server("own")["connections"] == (2 if server == "own" else 0)


def test_each_host_has_its_own_level_and_its_own_opened_toolboxes(tmp_path: Path) -> None:
    servers = {"a": entry()}
    boxes = {"dev": {"mcpServers": servers}, "ops": {"mcpServers": {"b": entry()}}}
    config = write_config(tmp_path, {"toolMode": "dynamic", "toolboxes": boxes})
    with shared(config) as bench, bench.host() as one, bench.host() as two:
        one.handshake()
        two.handshake()
        one.open("dev")
        two.open("ops")

        names = [{t["name"][:3] for t in h.result("tools/list")["tools"]} for h in (one, two)]

        assert names == [{"dev", "ope", "use"}, {"ops", "ope", "use"}]


def test_toolboxes_are_narrowed_for_one_host(tmp_path: Path) -> None:
    boxes = {name: {"mcpServers": {"a": entry()}} for name in ("dev", "ops")}
    with (
        shared(write_config(tmp_path, {"toolboxes": boxes})) as bench,
        bench.host("--toolbox", "ops") as host,
    ):
        host.initialize()
        wrong = host.call("open_toolbox", {"toolbox_name": "dev"})

        assert wrong["content"][0]["text"] == "Toolbox 'dev' not found"
        assert host.open("ops")["servers_connected"] == 1
        assert bench.status()["hosts"][0]["toolboxes"] == ["ops"]


def test_a_changed_file_reaches_joined_hosts(tmp_path: Path) -> None:
    config = config_file(tmp_path, {"a": entry()}, toolMode="dynamic")
    with shared(config) as bench, bench.host() as host:
        host.initialize()
        host.open()
        host.notice("notifications/tools/list_changed")  # of the opening itself
        config_file(tmp_path, {"a": entry(), "b": entry()}, toolMode="dynamic")

        host.notice("notifications/tools/list_changed")

        names = {tool["name"] for tool in host.result("tools/list")["tools"]}
        assert "dev__b__echo" in names
        assert bench.server("b")["state"] == "ready"


JOINED = """
import sys
sys.argv[1:] = ["serve", "--config", sys.argv[1]]
before = set(sys.modules)
import os, atexit
def tell():
    os.write(2, ("MODULES " + " ".join(sorted(set(sys.modules) - before)) + "\\n").encode())
atexit.register(tell)
from mcp_workbench.cli.main import main
main()
"""


def test_an_attached_process_loads_next_to_nothing(tmp_path: Path) -> None:
    config = config_file(tmp_path, {"a": entry()})
    with shared(config) as bench:
        ran = subprocess.run(
            [sys.executable, "-c", JOINED, str(config)],
            input=b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n',
            capture_output=True,
            env={**unmeasured(), **bench.env},
            timeout=PATIENCE,
        )

    assert parsed(ran.stdout)["result"] == {}
    loaded = set(ran.stderr.decode().partition("MODULES ")[2].split())
    assert {name for name in loaded if name.startswith("mcp_workbench")} == {
        "mcp_workbench",
        "mcp_workbench.cli",
        "mcp_workbench.cli.main",
        "mcp_workbench.config",
        "mcp_workbench.config.state_home",
        "mcp_workbench.daemon",
        "mcp_workbench.daemon.attach",
        "mcp_workbench.daemon.control",
        "mcp_workbench.daemon.paths",
        "mcp_workbench.timing",
    }
    tops = {name.partition(".")[0] for name in loaded}
    assert not tops & {"asyncio", "msgspec", "uvloop", "typing", "subprocess", "json", "logging"}


# How a joined host ends


@pytest.mark.fault("F53")
@both
def test_a_host_that_leaves_ends_its_attached_process_and_nothing_else(
    tmp_path: Path, modern: bool
) -> None:
    with shared(config_file(tmp_path, {"a": entry()})) as bench:
        with bench.host(modern=modern) as host:
            host.handshake()
            pid = json_text(host.use("a", "stats"))["pid"]
            host.begin_use("a", "slow", {"seconds": 0.2})
            host.close()  # what is under way still has its moment

            answers = host.rest()

            assert json_text(answers[-1]["result"]) == {"pid": pid}
            assert host.ended() == 0
        bench.hosts(0)
        assert alive(pid)


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)], ids=["TERM", "INT"]
)
def test_an_attached_process_that_is_told_to_end_does(
    tmp_path: Path, number: signal.Signals, status: int
) -> None:
    with shared(config_file(tmp_path, {"a": entry()})) as bench, bench.host() as other:
        other.initialize()
        with bench.host() as host:
            host.initialize()
            held = host.begin_use("a", "hold", {"key": "k"})
            eventually(lambda: bench.server("a")["callsInFlight"] == 1, "it is under way")

            host.signal(number)
            other.use("a", "release", {"key": "k"})

            assert json_text(host.answer(held)["result"]) == "released k"
            assert host.ended() == status
        bench.hosts(1)


def test_an_attached_process_that_is_told_twice_leaves_at_once(tmp_path: Path) -> None:
    with shared(config_file(tmp_path, {"a": entry()}), **SHORT) as bench:
        with bench.host() as host:
            host.initialize()
            host.begin_use("a", "hang")
            eventually(lambda: bench.server("a")["callsInFlight"] == 1, "it is under way")
            host.signal(signal.SIGTERM)
            host.signal(signal.SIGTERM)

            assert host.ended() == 0
        eventually(lambda: bench.server("a")["callsInFlight"] == 0, "its call was taken back")


def test_a_killed_attached_process_takes_its_calls_with_it_and_nothing_else(tmp_path: Path) -> None:
    servers = {"a": entry(), "own": entry(scope="session")}
    with shared(config_file(tmp_path, servers)) as bench, bench.host() as other:
        other.initialize()
        with bench.host() as host:
            host.statuses = (-signal.SIGKILL,)
            host.initialize()
            own = json_text(host.use("own", "stats"))["pid"]
            host.begin_use("a", "hang")
            eventually(lambda: bench.server("a")["callsInFlight"] == 1, "it is under way")

            host.signal(signal.SIGKILL)

            assert host.rest() == [], "the host sees the end of our output"
        eventually(lambda: not alive(own), "its own server has ended")
        eventually(lambda: bench.server("a")["callsInFlight"] == 0, "its call was taken back")
        assert len(json_text(other.use("a", "stats"))["cancelled"]) == 1


def test_a_killed_server_costs_its_own_calls(tmp_path: Path) -> None:
    servers = {"a": entry(), "b": entry()}
    with shared(config_file(tmp_path, servers)) as bench, bench.host() as one, bench.host() as two:
        one.handshake()
        two.handshake()
        victim = json_text(one.use("a", "stats"))["pid"]
        lost = [host.begin_use("a", "hang") for host in (one, two)]
        kept = two.begin_use("b", "hold", {"key": "k"})
        eventually(lambda: bench.status()["callsInFlight"] == 3, "all are under way")

        os.kill(victim, signal.SIGKILL)

        for host, call in zip((one, two), lost, strict=True):
            assert host.answer(call)["result"]["_meta"]["mcp-workbench/code"] == "server_exited"
        one.use("b", "release", {"key": "k"})
        assert json_text(two.answer(kept)["result"]) == "released k"
        assert json_text(two.use("a", "stats"))["pid"] != victim


# Who does not join, and is told why


def alone(bench: Shared, host: PipeHost) -> str:
    """The host is served, by itself; what its attached process has said."""
    with host:
        host.initialize()
        host.use("a", "stats")
        assert bench.status()["hosts"] == []
    return host.stderr


def test_nobody_joins_where_nothing_runs(tmp_path: Path) -> None:
    bench = Shared(config_file(tmp_path, {"a": entry()}))

    with bench.host() as host:
        host.initialize()
        host.use("a", "stats")

    assert host.stderr == ""
    assert not (bench.home / "daemon").exists(), "nothing was written for it"


def test_who_does_not_want_to_join_is_served_alone(tmp_path: Path) -> None:
    with shared(config_file(tmp_path, {"a": entry()})) as bench:
        assert alone(bench, bench.host("--attach", "never")) == ""
        assert alone(bench, bench.host(MCP_WORKBENCH_SERVE_ATTACH="never")) == ""


def test_so_is_another_value_of_a_variable_that_is_inherited_by_its_name(tmp_path: Path) -> None:
    server = entry(inheritEnv=["SOME_KEY", "OTHER_*"])
    first = {"SOME_KEY": "first-value", "OTHER_KEY": "first"}
    with shared(config_file(tmp_path, {"a": server}), **first) as bench:
        told = alone(bench, bench.host(SOME_KEY="second-value", OTHER_KEY="first"))
        assert "variables have another value here: SOME_KEY;" in told
        with bench.host(SOME_KEY="first-value", OTHER_KEY="second") as same:  # only by a glob
            same.handshake()


def test_another_value_of_a_variable_is_a_reason(tmp_path: Path) -> None:
    server = entry(env={"KEY": "${SOME_KEY}", "OTHER": "${UNSET_KEY:-}"})
    with shared(config_file(tmp_path, {"a": server}), SOME_KEY="first-value") as bench:
        told = alone(bench, bench.host(SOME_KEY="second-value", UNSET_KEY=""))
        assert "variables have another value here: SOME_KEY" in told
        assert "served by itself" in told
        assert "value" not in told.replace("another value", "")
        with bench.host(SOME_KEY="first-value") as same, bench.host() as unset:
            same.handshake()
            unset.handshake()
            assert len(bench.status()["hosts"]) == 2
            env = json_text(unset.use("a", "env"))["env"]
            assert env["KEY"] == "first-value", "programs not started from a shell have few"


def test_what_waits_for_the_next_start_is_a_reason(tmp_path: Path) -> None:
    with shared(config_file(tmp_path, {"a": entry()})) as bench:
        config_file(tmp_path, {"a": entry()}, toolMode="dynamic")

        told = alone(bench, bench.host())

        assert "toolMode has changed in the file since it was started" in told
        assert "mcp-workbench down, then up" in told


def test_another_version_is_a_reason(tmp_path: Path) -> None:
    config = config_file(tmp_path, {"a": entry()})
    with shared(config) as bench:
        newer = "import mcp_workbench, sys; mcp_workbench.__version__ = '99.0'; sys.argv[1:] = "
        code = newer + f"['serve', '--config', {str(config)!r}]; "
        code += "from mcp_workbench.cli.main import main; main()"
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        ran = subprocess.run(
            [sys.executable, "-c", code],
            input=json.dumps(ping) + "\n",
            capture_output=True,
            text=True,
            env={**os.environ, **bench.env},
            timeout=PATIENCE,
        )

        assert parsed(ran.stdout.encode())["result"] == {}
        assert "it is version 0.11.0, this is 99.0" in ran.stderr
        assert ran.stderr.count("\n") == 1
        assert bench.server("a")["state"] == "idle"


def test_a_toolbox_that_is_not_there_is_told_as_always(tmp_path: Path) -> None:
    with shared(config_file(tmp_path, {"a": entry()})) as bench:
        with bench.host("--toolbox", "dve") as host:
            host.statuses = (2,)
            assert host.rest() == []
        assert host.stderr.startswith("error: Toolbox 'dve' not found\n  Did you mean 'dev'?")


def test_one_that_hangs_is_not_waited_for(tmp_path: Path) -> None:
    with shared(config_file(tmp_path, {"a": entry()})) as bench:
        os.kill(bench.pid, signal.SIGSTOP)
        try:
            with bench.host(modern=False, real=False, **SHORT) as host:
                host.initialize()
                host.use("a", "stats")
            seconds = ANSWER * float(SHORT["MCP_WORKBENCH_TEST_DEADLINES"])
            told = f"it has not answered for {seconds:g} seconds; this host is served by itself"
            assert told in host.stderr
        finally:
            os.kill(bench.pid, signal.SIGCONT)
        bench.hosts(0)


def test_files_are_not_handed_over(tmp_path: Path) -> None:
    config = config_file(tmp_path, {"a": entry()})
    with shared(config) as bench:
        (tmp_path / "in").write_text('{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        with (tmp_path / "in").open() as source:
            ran = subprocess.run(
                [*COMMAND, "serve", "--config", str(config)],
                stdin=source,
                capture_output=True,
                env={**os.environ, **bench.env},
                timeout=PATIENCE,
            )
        assert parsed(ran.stdout)["result"] == {}
        assert "has joined" not in bench.log()


# Who insists


def test_who_insists_starts_one(tmp_path: Path) -> None:
    bench = Shared(config_file(tmp_path, {"a": entry()}))
    with bench.host("--attach", "always") as one, bench.host("--attach", "always") as two:
        one.handshake()
        two.handshake()
        pids = {json_text(host.use("a", "stats"))["pid"] for host in (one, two)}
        status = bench.status()

        assert len(pids) == 1
        assert len(status["hosts"]) == 2
    assert (one.stderr, two.stderr) == ("", "")
    assert bench.done("down") == f"ended (pid {status['pid']})\n"
    assert gone(pids)


def test_who_insists_in_vain_is_told(tmp_path: Path) -> None:
    bench = Shared(config_file(tmp_path, {"a": entry()}))
    bench.home.write_text("a file where the folder should be")

    with bench.host("--attach", "always") as host:
        host.statuses = (1,)
        assert host.rest() == []

    told = f"none could be started: the state folder can't be used: {bench.home} is not a folder"
    assert told in host.stderr
