"""One workbench in the background for one file: begun once, private, and gone without a trace."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from mcp_workbench import __version__
from mcp_workbench.config import load
from mcp_workbench.daemon import paths
from mcp_workbench.daemon.control import FORMAT, STATUS, pack
from mcp_workbench.daemon.lifecycle import IDLE, with_idle_timeouts
from mcp_workbench.daemon.status import ServerStatus, Status, with_memory
from mcp_workbench.transport.detached import DetachedProcesses
from tests.kit.blocking_http_host import HttpHost
from tests.kit.clock import PATIENCE, eventually
from tests.kit.command import Done, typed
from tests.kit.config import config_file, entry, snapshot, spec
from tests.kit.forked import Streams, start
from tests.kit.processes import alive, gone, pids_in
from tests.kit.results import INITIALIZE, json_text, use_tool
from tests.kit.shared import SHORT, Shared, nothing_left, shared

pytestmark = pytest.mark.usefixtures("forked_commands")
NOBODY = 65534


def test_the_places_of_a_configuration_are_those_of_the_loader() -> None:
    assert (paths.CONFIG_FILE, paths.CONFIG_VARIABLE) == (load.FILE_NAME, load.VARIABLE)


def test_a_second_up_finds_the_first_however_the_file_is_named(tmp_path: Path) -> None:
    config = config_file(tmp_path, {"a": entry()})
    with shared(config) as bench:
        told = bench.done("up")
        assert re.fullmatch(rf"already running \(pid {bench.pid}\)   stop: .*\n", told)
        (tmp_path / "link.json").symlink_to(config)
        other = Shared(tmp_path / "link.json")
        assert other.json("up") == {
            "pid": bench.pid,
            "url": "",
            "started": False,
            "version": __version__,
        }
        assert f"running (pid {bench.pid}, version " in in_folder("status", tmp_path, bench.env).out


def in_folder(command: str, folder: Path, env: Mapping[str, str]) -> Done:
    """The command without the name of a file."""
    return typed([command], folder, Streams(), {**os.environ, **env})


def test_one_of_another_version_is_named(tmp_path: Path) -> None:
    with shared(config_file(tmp_path, {"a": entry()})) as bench:
        newer = "import mcp_workbench, sys; mcp_workbench.__version__ = '99.0'; "
        code = newer + "from mcp_workbench.cli.main import main; main()"
        words = [sys.executable, "-c", code, "up", "--config", str(bench.config)]
        env = {**os.environ, **bench.env}
        ran = subprocess.run(words, env=env, capture_output=True, text=True)

        assert ran.stdout.startswith(f"already running (pid {bench.pid})")
        assert f"it is version {__version__}, this is 99.0" in ran.stderr
        assert "mcp-workbench down, then up, renews it" in ran.stderr


def test_a_server_that_nobody_has_used_is_idle_and_has_nothing(tmp_path: Path) -> None:
    with shared(config_file(tmp_path, {"a": entry()})) as bench:
        [server] = bench.json("status")["servers"]

    assert server == {
        "toolbox": "dev",
        "server": "a",
        "state": "idle",
        "connections": 0,
        "pids": [],
        "processes": 0,
        "memory": 0,
        "callsInFlight": 0,
        "calls": 0,
        "failures": 0,
        "nextTry": 0.0,
        "reason": "",
        "started": False,
        "box": "",
        "scope": "shared",
    }


def test_options_that_come_too_late_are_named(tmp_path: Path) -> None:
    with shared(config_file(tmp_path, {"a": entry()})) as bench:
        calls = tmp_path / "calls.jsonl"
        late = ["up", "--http", "0", "--log-calls", str(calls)]
        ran = bench.run(*late)
        quiet = bench.run(*late, "--quiet")
        plain = bench.run("up")

        assert ran.stdout.startswith(f"already running (pid {bench.pid})")
        assert ran.stderr.splitlines() == [
            "it has no port; mcp-workbench down, then up with --http, opens one",
            "it runs already, so --log-calls is ignored; mcp-workbench down, then up with --log-calls, opens that log",
        ]
        assert (quiet.stderr, plain.stderr) == ("", "")
        assert not calls.exists()


@pytest.mark.parametrize("round", range(int(os.environ.get("WORKBENCH_TEST_ROUNDS", "1"))))
def test_two_at_once_are_one(tmp_path: Path, round: int) -> None:
    bench = Shared(config_file(tmp_path, {"a": entry()}))
    line = ["up", "--json", "--config", str(bench.config)]
    env = {**os.environ, **bench.env}
    both = [start(line, cwd=None, env=env) for _ in range(4)]
    told = [process.communicate(timeout=PATIENCE)[0] for process in both]

    pids = {re.findall(rb'"pid":(\d+)', one)[0] for one in told}
    assert len(pids) == 1, told
    assert sum(b'"started":true' in one for one in told) == 1
    assert bench.done("down") == f"ended (pid {pids.pop().decode()})\n"
    assert bench.done("down") == "not running\n"


def test_a_crash_leaves_nothing_that_stops_the_next_start(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    server = entry("no_eof_exit", "ignore_term", env={"PIDFILE": str(pids)})
    bench = Shared(config_file(tmp_path, {"a": server}))
    first = bench.up()
    with bench.host() as host:
        host.initialize()
        host.use("a", "stats")
        with nothing_left(first):
            bench.kill()
    assert bench.socket.exists(), "which a crash leaves behind"
    assert bench.done("status").startswith("not running")
    with bench.host() as alone:
        alone.initialize()
    assert alone.stderr == ""

    second = bench.up()

    assert second != first
    with bench.host() as host:
        host.initialize()
        assert len(bench.status()["hosts"]) == 1
    bench.done("down")
    assert gone(pids_in(pids))
    assert [file.suffix for file in sorted((bench.home / "daemon").iterdir())] == [".lock", ".log"]


@pytest.mark.usefixtures("real_commands")
def test_it_is_closed_to_other_users(tmp_path: Path) -> None:
    with shared(config_file(tmp_path, {"a": entry()})) as bench:
        modes = [stat.S_IMODE(p.stat().st_mode) for p in (bench.socket.parent, bench.socket)]
        assert modes == [0o700, 0o600]
        here = os.open(bench.socket.parent, os.O_RDONLY)
        try:
            assert greeted(here, bench.socket.name) == b"report"
            if os.geteuid() == 0:  # nobody else can come as another user
                assert greeted_as_nobody(here, bench.socket) == b""
        finally:
            os.fchmod(here, 0o700)
            os.close(here)


def greeted_as_nobody(here: int, door: Path) -> bytes:
    """Even where somebody else gets as far as the socket, that one's user is looked at."""
    os.fchmod(here, 0o777)
    door.chmod(0o777)
    os.seteuid(NOBODY)
    try:
        return greeted(here, door.name)
    finally:
        os.seteuid(0)


def greeted(folder: int, name: str) -> bytes:
    """How somebody is answered who asks for the status; reached through an open folder."""
    with socket.socket(socket.AF_UNIX) as door:
        door.settimeout(PATIENCE)
        door.connect(f"/proc/self/fd/{folder}/{name}")
        with suppress(ConnectionError):
            door.sendall(pack(FORMAT, STATUS))
            return door.recv(10)[4:]
    return b""


def test_a_folder_of_somebody_else_is_not_used(tmp_path: Path) -> None:
    bench = Shared(config_file(tmp_path, {"a": entry()}))
    if os.geteuid() == 0:
        (bench.home / "daemon").mkdir(parents=True)
        os.chown(bench.home / "daemon", NOBODY, NOBODY)
    else:  # who can give nothing away takes a folder of root
        bench.home.symlink_to("/usr")

    ran = bench.run("up")

    assert ran.returncode == 1
    assert "belongs to another user" in ran.stderr
    assert "WB-UP-501" in ran.stderr


def test_a_folder_that_others_can_enter_is_not_used(tmp_path: Path) -> None:
    bench = Shared(config_file(tmp_path, {"a": entry()}))
    (bench.home / "daemon").mkdir(parents=True, mode=0o755)

    ran = bench.run("up")

    assert ran.returncode == 1
    assert "is open to other users: chmod 700" in ran.stderr


def test_home_need_not_be_there(tmp_path: Path) -> None:
    config = config_file(tmp_path, {"a": entry()})
    with (
        shared(config, HOME="/no/such/folder") as bench,
        bench.host(HOME="/no/such/folder") as host,
    ):
        host.initialize()
        host.use("a", "stats")
        assert len(bench.status()["hosts"]) == 1
    assert host.stderr == ""


def test_without_any_folder_for_state_that_is_named(tmp_path: Path) -> None:
    bench = Shared(config_file(tmp_path, {"a": entry()}))

    for command in ("up", "down", "status", "logs"):
        ran = bench.run(command, HOME="", MCP_WORKBENCH_HOME="")
        assert ran.returncode == 1
        assert "neither $MCP_WORKBENCH_HOME nor $HOME is set" in ran.stderr
    with bench.host(HOME="", MCP_WORKBENCH_HOME="") as host:
        host.initialize()
        host.use("a", "stats")


def test_a_state_folder_that_takes_nothing_is_named(tmp_path: Path) -> None:
    bench = Shared(config_file(tmp_path, {"a": entry()}))
    bench.home.symlink_to("/proc/self")  # nobody can make a folder there, not even root

    ran = bench.run("up")

    assert ran.returncode == 1
    assert "the state folder can't be used: " in ran.stderr
    assert "or set MCP_WORKBENCH_HOME to a folder of your own\n" in ran.stderr
    with bench.host() as host:  # who does not insist is served all the same
        host.initialize()
        host.use("a", "stats")
    [told] = host.stderr.splitlines()
    assert "what servers offer can't be kept for the next start" in told


ON_A_DISK = 'mount -t tmpfs -o "mode=700,$1" tmpfs "$2" && shift 2 && exec "$@"'


def on_a_disk(folder: Path, options: str) -> list[str]:
    """What a command is started with that finds a small disk of its own there, and nobody else does."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    line = ["unshare", *user, "--mount", "sh", "-c", ON_A_DISK, "sh", options, str(folder)]
    if subprocess.run([*line, "true"], capture_output=True).returncode:
        pytest.skip("the system lets nobody mount a disk here")
    return line


@pytest.mark.skipif(sys.platform != "linux", reason="made as on Linux")
@pytest.mark.parametrize(
    ("options", "told"),
    [("nr_inodes=3", "No space left on device"), ("ro", "Read-only file system")],
    ids=["full", "read-only"],
)
def test_a_disk_that_takes_nothing_is_named(tmp_path: Path, options: str, told: str) -> None:
    bench = Shared(config_file(tmp_path, {"a": entry()}))
    bench.home.mkdir()
    disk = on_a_disk(bench.home, options)

    up = bench.run("up", before=disk)
    served = bench.run("serve", before=disk, said=SESSION)

    assert up.returncode == 1
    assert told in up.stderr
    assert "WB-UP-501" in up.stderr
    assert [json.loads(line)["id"] for line in served.stdout.splitlines()] == [1, 2]
    assert '\\"pid\\"' in served.stdout, "who does not insist is served all the same"
    [warning] = served.stderr.splitlines()
    assert "what servers offer can't be kept for the next start" in warning


SESSION = """\
{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"use_tool","arguments":{"tool":{"toolbox":"dev","server":"a","tool":"stats"}}}}
"""


def test_a_full_disk_costs_the_log_and_nothing_else(tmp_path: Path) -> None:
    config = config_file(tmp_path, {"a": entry("stderr=100")})
    bench = Shared(config)
    files = paths.daemon_paths(str(config))
    assert files is not None
    (bench.home / "daemon").mkdir(parents=True, mode=0o700)
    (bench.home / "daemon" / f"{files.name}.log").symlink_to("/dev/full")
    with shared(config) as bench, bench.host() as host:
        host.initialize()
        host.use("a", "stats")

        assert bench.status()["logTrouble"] == "No space left on device"
        assert "the log can't be written: No space left on device" in bench.done("status")


def test_a_broken_configuration_is_told_with_its_place(tmp_path: Path) -> None:
    bench = Shared(config_file(tmp_path, {"a": {"command": 5}}))

    ran = bench.run("up")

    assert ran.returncode == 2
    assert "toolboxes.dev.mcpServers.a.command" in ran.stderr
    assert not bench.home.exists()


def test_without_a_file_there_is_nothing_to_share(tmp_path: Path) -> None:
    ran = in_folder("up", tmp_path, {})

    assert ran.status == 2
    assert "there is no configuration file that hosts could share" in ran.err


def test_a_port_is_opened_beside_the_socket_and_shares_the_servers(tmp_path: Path) -> None:
    with shared(config_file(tmp_path, {"a": entry()}), "--http", "0") as bench:
        url = bench.status()["url"]
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/mcp", url)
        with bench.host(modern=True) as host:
            joined = json_text(host.use("a", "stats"))["pid"]
        web = HttpHost(url, modern=True)
        over_http = json_text(web.request("tools/call", use_tool("a", "stats"))["result"])["pid"]
        web.close()

        assert over_http == joined


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    bench = Shared(config_file(tmp_path, {"a": entry()}))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ran = bench.run("up", "--http", str(taken.getsockname()[1]))

    assert ran.returncode == 1
    assert "in use" in ran.stderr
    assert "\n  fix: end what listens there, or name another port with --http\n" in ran.stderr
    assert bench.done("status").startswith("not running")


def test_one_that_hangs_is_named_and_ended(tmp_path: Path) -> None:
    config = config_file(tmp_path, {"a": entry()}, limits={"drain": 0.1})
    bench = Shared(config)
    bench.begin()
    os.kill(bench.pid, signal.SIGSTOP)

    status = bench.run("status", **SHORT)
    down = bench.run("down", **SHORT)

    assert status.returncode == 1
    assert f"the workbench (pid {bench.pid}) hangs" in status.stderr
    assert f"it did not end, and was killed (pid {bench.pid})" in down.stderr
    assert down.stdout == f"ended (pid {bench.pid})\n"
    assert not alive(bench.pid)


def test_it_ends_on_sigterm_and_reads_the_file_on_sighup(tmp_path: Path) -> None:
    bench = Shared(config_file(tmp_path, {"a": entry()}))
    bench.up()
    config_file(tmp_path, {"b": entry()})
    os.kill(bench.pid, signal.SIGHUP)
    eventually(lambda: bench.status()["servers"][0]["server"] == "b", "it was read")
    config_file(tmp_path, {"b": entry(), "c": entry()})
    eventually(lambda: len(bench.status()["servers"]) == 2, "it was read again")
    # The rule for resting is a part of every configuration that is taken: none is news for it.
    assert bench.log().count("the configuration was reloaded") == 2

    with nothing_left(bench.pid):
        os.kill(bench.pid, signal.SIGTERM)
        eventually(lambda: not alive(bench.pid), "it has ended")
    assert bench.log().rstrip().endswith("workbench: stopped")


@pytest.mark.usefixtures("real_commands")
def test_status_tells_what_there_is(tmp_path: Path) -> None:
    servers = {"a": entry(), "bad": {"command": "/no/such/program"}}
    with shared(config_file(tmp_path, servers)) as bench, bench.host() as host:
        host.initialize()
        host.open()
        host.begin_use("a", "hang")
        eventually(lambda: bench.server("a")["callsInFlight"] == 1, "it is under way")

        told = bench.json("status")
        shown = bench.done("status")

        assert told["hosts"][0] | {"seconds": 0} == {
            "pid": host.process.pid,
            "seconds": 0,
            "name": "test-host",
            "version": "1",
            "revision": "2025-11-25",
            "toolboxes": [],
            "folder": str(Path.cwd()),
            "callsInFlight": 1,
            "memory": told["hosts"][0]["memory"],
        }
        assert told["callsInFlight"] == 1
        assert 5e6 < told["hosts"][0]["memory"] < told["memory"] < 2e8
        assert re.search(r"dev/a +ready +1 +1 +\d+ MB +\d+ +1", shown)
        assert "command not found: /no/such/program" in shown
        assert f"  test-host 1 (pid {host.process.pid})  2025-11-25 " in shown


@pytest.mark.cost
@pytest.mark.usefixtures("real_commands")
def test_an_attached_process_is_light(tmp_path: Path) -> None:
    with shared(config_file(tmp_path, {"a": entry()})) as bench, bench.host() as host:
        host.initialize()
        [attached] = bench.json("status")["hosts"]

        assert 5e6 < attached["memory"] < 2e7


def test_status_names_hosts_as_they_call_themselves(tmp_path: Path) -> None:
    with (
        shared(config_file(tmp_path, {"a": entry()})) as bench,
        bench.host() as silent,
        bench.host(modern=True) as modern,
        bench.host() as odd,
    ):
        eventually(lambda: len(bench.status()["hosts"]) == 3, "all have joined")
        shown = bench.done("status")
        assert re.search(rf"^  pid {silent.process.pid} +- ", shown, re.MULTILINE)
        client = {"name": "host\x1b[31m" + "x" * 5000, "version": 7}
        odd.result("initialize", {**INITIALIZE, "clientInfo": client})
        modern.use("a", "stats")

        shown = bench.done("status")

        assert re.search(rf"  test-host 1 \(pid {modern.process.pid}\) +2026-07-28 ", shown)
        assert re.search(r"  host\\x1b\[31mx{20,40}… \(pid \d+\)", shown)


def test_status_ticks_no_server_that_was_never_connected(tmp_path: Path) -> None:
    servers = {"a": entry(), "never": entry(), "odd": entry(env={"A": "${NO_SUCH_VARIABLE}"})}
    with shared(config_file(tmp_path, servers)) as bench, bench.host() as host:
        host.initialize()
        host.use("a", "stats")

        shown = bench.done("status")
        started = {one["server"]: one["started"] for one in bench.status()["servers"]}

    assert started == {"a": True, "never": False, "odd": False}
    assert "✔ dev/a " in shown
    assert re.search(r"^- dev/never +not started ", shown, re.MULTILINE)
    assert not re.search("✔ dev/(never|odd)", shown)


def test_status_says_whether_calls_are_logged(tmp_path: Path) -> None:
    config = config_file(tmp_path, {"a": entry()})
    with shared(config) as bench:
        assert bench.status()["logCalls"] == ""
        assert '\ncalls are not logged; "audit": true' in bench.done("status")
    with shared(config, "--log-calls", str(tmp_path / "calls")) as bench:
        assert bench.status()["logCalls"] == str(tmp_path / "calls")
        assert f"\ncalls are logged in {tmp_path}/calls\n" in bench.done("status")


def test_status_counts_all_that_a_server_has_started(tmp_path: Path) -> None:
    servers = {"a": entry("grandchild"), "b": entry(scope="session"), "never": entry()}
    with (
        shared(config_file(tmp_path, servers)) as bench,
        bench.host() as one,
        bench.host() as two,
    ):
        for host in (one, two):
            host.initialize()
            first = json_text(host.use("a", "stats"))["pid"]
            host.use("b", "stats")

        a, b, never = (bench.server(name) for name in servers)

        assert (a["pids"], a["processes"], a["connections"]) == ([first], 2, 1)
        assert (len(b["pids"]), b["processes"], b["connections"]) == (2, 2, 2)
        assert (never["pids"], never["processes"], never["memory"]) == ([], 0, 0)
        assert 5e6 < a["memory"] < 2e8
        assert 5e6 < b["memory"] < 2e8


def test_where_the_system_does_not_tell_memory_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Status(
        running=True, config="x", pid=os.getpid(), servers=(ServerStatus("t", "s", "ready"),)
    )
    assert with_memory(told).memory

    def no_such_folder(path: str) -> list[str]:
        raise FileNotFoundError(path)

    monkeypatch.setattr(os, "listdir", no_such_folder)

    assert with_memory(told) == told
    assert "memory" not in msgspec.json.decode(msgspec.json.encode(told))


# Servers that nobody uses


def test_servers_rest_after_ten_minutes_unless_their_entry_says_otherwise() -> None:
    plain = snapshot(spec("a"), spec("b", idle_timeout=5.0))

    servers = with_idle_timeouts(plain).toolboxes["dev"].servers

    assert (servers["a"].idle_timeout, servers["b"].idle_timeout) == (IDLE, 5.0)
    assert IDLE == 600.0


def test_a_server_that_rested_comes_back(tmp_path: Path) -> None:
    with (
        shared(config_file(tmp_path, {"a": entry(idleTimeout=0.4)})) as bench,
        bench.host() as host,
    ):
        host.initialize()
        first = json_text(host.use("a", "stats"))["pid"]
        eventually(lambda: not alive(first), "it is stopped")
        assert json_text(host.use("a", "stats"))["pid"] != first
        assert host.stderr == ""


def test_alone_a_server_rests_only_where_its_entry_says_so(tmp_path: Path) -> None:
    plain = load.load_config(str(config_file(tmp_path, {"a": entry()})))

    assert plain.toolboxes["dev"].servers["a"].idle_timeout == 0.0


def test_while_it_rests_lists_are_answered_and_it_is_not_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    a = entry(idleTimeout=0.4, env={"PIDFILE": str(pids)})
    with (
        shared(config_file(tmp_path, {"a": a}, toolMode="dynamic")) as bench,
        bench.host(modern=True) as modern,
        bench.host("--toolbox", "dev") as legacy,
    ):
        legacy.initialize()
        modern.use("a", "stats")
        before = [host.result("tools/list")["tools"] for host in (modern, legacy)]
        [first] = pids_in(pids)
        eventually(lambda: not alive(first), "it is stopped")

        after = [host.result("tools/list")["tools"] for host in (modern, legacy)]

        assert after == before
        assert "dev__a__stats" in {tool["name"] for tool in after[1]}
        assert pids_in(pids) == [first], "nothing was started for it"
        assert bench.server("a")["state"] == "idle"
        modern.use("a", "stats")
        assert len(pids_in(pids)) == 2, "a call starts it"


def test_one_that_a_host_has_started_ends_when_none_is_left(tmp_path: Path) -> None:
    bench = Shared(config_file(tmp_path, {"a": entry()}))
    words = [sys.executable, "-m", "mcp_workbench.daemon", str(bench.config), "1.5", ""]
    told = subprocess.run(
        words, env={**os.environ, **bench.env}, capture_output=True, text=True, timeout=PATIENCE
    ).stdout
    pid = int(told.split()[1])
    with bench.joined(), bench.host() as host:  # which may take longer than that to start
        host.initialize()
        server = json_text(host.use("a", "stats"))["pid"]
        assert len(bench.status()["hosts"]) == 2
    eventually(lambda: not alive(pid) and not alive(server), "it has ended")
    assert "no host for 1.5 seconds" in bench.log()
    assert host.stderr == ""


@pytest.mark.skipif(
    sys.platform != "linux", reason="servers' processes are searched for on Linux alone"
)
@pytest.mark.usefixtures("real_commands")
def test_one_that_a_server_has_started_outlives_that_server(tmp_path: Path) -> None:
    server = f"{os.urandom(8).hex()}.1"  # nobody else has it
    with shared(config_file(tmp_path, {"a": entry()}), MCP_WORKBENCH_SERVER=server) as bench:
        DetachedProcesses(server, 0).end_now()

        assert alive(bench.pid)
