"""The processes behind the command: started when needed, side by side, and never left behind."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.clock import PATIENCE, eventually
from tests.kit.config import config_file, entry, write_config
from tests.kit.forked import COMMAND
from tests.kit.pipe_host import PipeHost
from tests.kit.processes import alive, gone, pids_in
from tests.kit.results import json_text, texts

pytestmark = pytest.mark.usefixtures("forked_commands")

SECRET = "a-secret-that-no-server-may-see"


@pytest.fixture
def pids(tmp_path: Path) -> Path:
    return tmp_path / "pids"


def noted(pids: Path, *flags: str, **more: Any) -> dict[str, Any]:
    """An entry whose processes write their numbers into `pids`."""
    return entry(*flags, env={"PIDFILE": str(pids), **more.pop("env", {})}, **more)


def fifo(folder: Path, name: str) -> Path:
    path = folder / name
    os.mkfifo(path)
    return path


def opened(gate: Path) -> None:
    """Let the server start that waits at this gate."""
    gate.open("w").close()


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PipeHost]:
    """One host for all whose servers are told apart by their names; Python reads its variables at the start."""
    folder = tmp_path_factory.mktemp("asking")
    (folder / "inner").mkdir()
    servers = {
        "given": entry(env={"GIVEN": "${WB_X:-0}", "LITERAL": "$${WB_X}"}),
        "masked": entry(env={"API_TOKEN": "${WB_TOKEN}"}),
        "inner": entry(cwd="inner"),
        "outer": entry(cwd="missing"),
        "a": entry(),
        "b": entry(),
        "half": entry(),
        "flood": entry("stderr=3000000"),
        "true": {"command": "true"},
        "false": {"command": "false"},
    }
    unset = {"a": entry(env={"TOKEN": "${WB_UNSET_TOKEN}"}), "b": entry()}
    boxes = {"dev": {"mcpServers": servers}, "unset": {"mcpServers": unset}}
    own = {"AWS_SECRET_ACCESS_KEY": SECRET, "LC_TEST": "yes", "PYTHONPATH": "/nowhere", "WB_X": "1"}
    file = write_config(folder, {"toolboxes": boxes})
    with PipeHost(file, env={**own, "WB_TOKEN": SECRET}, command=COMMAND) as host:
        host.initialize()
        yield host


# Starting


def test_nothing_starts_before_it_is_needed(tmp_path: Path, pids: Path) -> None:
    servers = {"a": noted(pids), "b": noted(pids)}
    with PipeHost(config_file(tmp_path, servers)) as host:
        host.initialize()
        host.result("tools/list")
        assert pids_in(pids) == []

        host.use("a", "echo")
        assert len(pids_in(pids)) == 1  # the one that was called, not its neighbour

        host.open()
        assert len(pids_in(pids)) == 2


def test_all_servers_of_a_toolbox_start_side_by_side(tmp_path: Path, pids: Path) -> None:
    gates = [fifo(tmp_path, f"gate{index}") for index in range(4)]
    servers = {f"s{index}": noted(pids, f"gate={gate}") for index, gate in enumerate(gates)}
    with PipeHost(config_file(tmp_path, servers)) as host:
        host.initialize()
        id = host.begin("open_toolbox", {"toolbox_name": "dev"})

        eventually(lambda: len(pids_in(pids)) == 4, "all run before any has answered")
        for gate in gates:
            opened(gate)

        assert json.loads(texts(host.answer(id)["result"])[0])["servers_connected"] == 4


@pytest.mark.fault("F16")
def test_a_slow_starter_holds_nobody_and_is_named(tmp_path: Path) -> None:
    gate = fifo(tmp_path, "gate")
    servers = {"slow": entry(f"gate={gate}"), "quick": entry()}
    file = config_file(tmp_path, servers, limits={"openWait": 0.2})
    with PipeHost(file) as host:
        host.initialize()
        host.use("quick", "echo")

        value = host.open()
        [missing] = value["unavailable"]
        assert value["servers_connected"] == 1
        assert missing["server"] == "slow"
        assert "still starting" in missing["reason"]

        id = host.begin_use("slow", "echo")
        assert json_text(host.use("quick", "echo"))["name"] == "echo"
        opened(gate)
        assert json_text(host.answer(id)["result"])["name"] == "echo"
        assert host.open()["servers_connected"] == 2


@pytest.mark.fault("F18")
@pytest.mark.parametrize("flag", ["hang", "hang_list"])
def test_a_mute_server_holds_nobody_and_is_given_up(tmp_path: Path, pids: Path, flag: str) -> None:
    servers = {"mute": noted(pids, flag, connectTimeout=0.5), "good": entry()}
    with PipeHost(config_file(tmp_path, servers)) as host:
        host.initialize()
        id = host.begin_use("mute", "echo")
        assert json_text(host.use("good", "echo"))["name"] == "echo"

        [text] = texts(host.answer(id)["result"])

        assert text.startswith("Failed to connect to server 'mute' in toolbox 'dev': ")
        assert "0.5 s (connectTimeout)" in text
        eventually(lambda: not alive(pids_in(pids)[0]), "the mute server is ended")


@pytest.mark.fault("F17")
@pytest.mark.parametrize("command", ["true", "false"])
def test_a_command_that_ends_at_once_is_told_at_once(asking: PipeHost, command: str) -> None:
    [text] = texts(asking.use(command, "echo"))

    assert text.startswith(f"Failed to connect to server '{command}' in toolbox 'dev': ")
    assert f"exit status {0 if command == 'true' else 1}" in text


def test_a_dead_server_is_started_again_by_the_next_call(tmp_path: Path, pids: Path) -> None:
    with PipeHost(config_file(tmp_path, {"a": noted(pids), "b": noted(pids)})) as host:
        host.initialize()
        other = json_text(host.use("b", "stats"))["pid"]
        first = json_text(host.use("a", "stats"))["pid"]
        held = host.begin_use("a", "hold", {"key": "x"})

        host.use("b", "echo")
        os.kill(first, signal.SIGKILL)
        [text] = texts(host.answer(held)["result"])

        assert text.startswith("[dev/a/hold] Error: ")
        assert "SIGKILL" in text
        assert "may have run" in text
        assert json_text(host.use("a", "stats"))["pid"] != first
        assert json_text(host.use("b", "stats"))["pid"] == other


def test_half_an_answer_before_the_end_is_no_answer(asking: PipeHost) -> None:
    result = asking.use("half", "half")

    assert result["isError"] is True
    assert texts(result)[0].startswith("[dev/half/half] Error: the server exited")


def test_a_server_that_dies_while_it_is_listed_again_fails_its_calls_at_once(
    tmp_path: Path,
) -> None:
    with PipeHost(config_file(tmp_path, {"a": entry("die_in_list")})) as host:
        host.initialize()
        held = host.begin_use("a", "hold", {"key": "x"})
        host.use("a", "announce")

        [text] = texts(host.answer(held)["result"])

        assert text.startswith("[dev/a/hold] Error: ")
        assert "exit status 7" in text


def test_a_dead_server_whose_grandchild_holds_the_pipe_is_noticed(
    tmp_path: Path, pids: Path
) -> None:
    with PipeHost(config_file(tmp_path, {"a": noted(pids, "grandchild")})) as host:
        host.initialize()
        result = host.use("a", "die", {"status": 5})

        assert "exit status 5" in texts(result)[0]
        eventually(lambda: not any(map(alive, pids_in(pids))), "the whole group is ended")


def test_a_flood_on_stderr_stalls_nothing_and_its_end_is_kept(asking: PipeHost) -> None:
    assert json_text(asking.use("flood", "echo"))["name"] == "echo"

    [text] = texts(asking.use("flood", "die", {"stderr": "\nfamous last words\n"}))

    assert "famous last words" in text
    assert len(text) < 800


# What they are given


def test_a_server_gets_an_allowed_environment_and_nothing_else(asking: PipeHost) -> None:
    seen = json_text(asking.use("given", "env"))["env"]

    assert (seen["GIVEN"], seen["LITERAL"], seen["LC_TEST"]) == ("1", "${WB_X}", "yes")
    assert seen["PATH"] == os.environ["PATH"]
    assert not seen.keys() & {"AWS_SECRET_ACCESS_KEY", "PYTHONPATH", "WB_X"}
    assert SECRET not in json.dumps(seen)


def test_a_server_is_alone_in_its_session_and_has_three_descriptors(asking: PipeHost) -> None:
    a, b = (json_text(asking.use(name, "env")) for name in "ab")

    for seen in (a, b):
        assert seen["pid"] == seen["pgid"] == seen["sid"]
        assert len(seen["fds"]) == 4  # the fourth looks at the list
    assert os.getpgid(asking.process.pid) != a["pgid"]


def test_a_relative_cwd_counts_from_the_file(asking: PipeHost) -> None:
    inner = Path(json_text(asking.use("inner", "env"))["cwd"])
    [text] = texts(asking.use("outer", "echo"))

    assert (inner.name, (inner.parent / "workbench-config.json").exists()) == ("inner", True)
    assert str(inner.parent / "missing") in text


def test_an_unset_variable_makes_one_server_unavailable(asking: PipeHost) -> None:
    [missing] = asking.open("unset")["unavailable"]

    assert missing["server"] == "a"
    assert missing["reason"].startswith("variable WB_UNSET_TOKEN is not set")
    assert "toolboxes.unset.mcpServers.a.env.TOKEN" in missing["reason"]


def test_a_secret_in_the_last_words_is_masked(asking: PipeHost) -> None:
    [text] = texts(asking.use("masked", "die", {"stderr": f"denied: {SECRET}\n"}))

    assert SECRET not in text
    assert "denied: [secret:" in text


# Ending


@pytest.mark.usefixtures("short_deadlines")
@pytest.mark.parametrize("flags", [(), ("grandchild",), ("no_eof_exit",)])
def test_the_end_of_input_ends_everything(
    tmp_path: Path, pids: Path, flags: tuple[str, ...]
) -> None:
    servers = {"a": noted(pids, *flags), "b": noted(pids)}
    with PipeHost(config_file(tmp_path, servers)) as host:
        host.initialize()
        host.open()
        started = pids_in(pids)

        host.close()
        assert host.ended() == 0

    assert len(started) >= 2
    assert gone(started)


@pytest.mark.usefixtures("short_deadlines")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_everything_even_calls_under_way(
    tmp_path: Path, pids: Path, number: signal.Signals
) -> None:
    with PipeHost(
        config_file(tmp_path, {"a": noted(pids), "b": noted(pids, "grandchild")})
    ) as host:
        host.initialize()
        host.open()
        host.begin_use("a", "hang")
        host.use("b", "echo")

        host.signal(number)
        assert host.ended() == (130 if number == signal.SIGINT else 0)

    assert len(pids_in(pids)) == 3
    assert gone(pids_in(pids))


@pytest.mark.usefixtures("short_deadlines")
def test_whoever_insists_is_obeyed_and_nothing_is_left(tmp_path: Path, pids: Path) -> None:
    with PipeHost(config_file(tmp_path, {"a": noted(pids, "no_eof_exit", "ignore_term")})) as host:
        host.initialize()
        host.open()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
            host.signal(number)
        assert host.ended() in (0, 130)

    assert gone(pids_in(pids))


@pytest.mark.usefixtures("real_commands")
def test_servers_that_obey_the_end_of_their_input_survive_us_by_nothing(
    tmp_path: Path, pids: Path
) -> None:
    with PipeHost(config_file(tmp_path, {"a": noted(pids), "b": noted(pids)})) as host:
        host.initialize()
        host.open()
        host.statuses = (-signal.SIGKILL,)

        host.signal(signal.SIGKILL)
        host.ended()

        eventually(lambda: not any(map(alive, pids_in(pids))), "our servers have noticed")


def test_a_host_that_stops_listening_is_taken_for_gone(tmp_path: Path, pids: Path) -> None:
    file = config_file(tmp_path, {"a": noted(pids)})
    command = [sys.executable, "-m", "mcp_workbench", "serve", "--config", str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as run:
        assert run.stdin is not None
        assert run.stdout is not None
        run.stdin.write(PING)
        assert run.stdout.readline() == b'{"jsonrpc":"2.0","id":1,"result":{}}\n'
        run.stdout.close()
        run.stdin.write(PING)

        assert run.wait(PATIENCE) == 0  # although its input is still open


PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'


def test_files_may_stand_in_for_pipes(tmp_path: Path) -> None:
    file = config_file(tmp_path, {"a": entry()})
    (tmp_path / "in").write_bytes(PING * 3)
    command = [sys.executable, "-m", "mcp_workbench", "serve", "--config", str(file)]
    with (tmp_path / "in").open("rb") as given, (tmp_path / "out").open("wb") as taken:
        subprocess.run(command, stdin=given, stdout=taken, check=True, timeout=PATIENCE)

    assert (tmp_path / "out").read_bytes() == b'{"jsonrpc":"2.0","id":1,"result":{}}\n' * 3


def test_a_host_that_leaves_while_servers_start_leaves_nothing(tmp_path: Path, pids: Path) -> None:
    with PipeHost(config_file(tmp_path, {"a": noted(pids, "hang")})) as host:
        host.initialize()
        host.begin_use("a", "echo")
        eventually(lambda: len(pids_in(pids)) == 1, "the server runs")
        host.signal(signal.SIGTERM)

    assert gone(pids_in(pids))


def test_requests_under_way_are_answered_before_the_end(tmp_path: Path) -> None:
    with PipeHost(config_file(tmp_path, {"a": entry()})) as host:
        host.initialize()
        ids = [host.begin_use("a", "big", {"n": 1_000_000}) for _ in range(5)]
        host.close()

        answers = {message["id"]: json_text(message["result"]) for message in host.rest()}

        assert answers == dict.fromkeys(ids, "x" * 1_000_000)


def test_answers_that_the_host_reads_late_are_not_lost_at_the_end(
    tmp_path: Path, pids: Path
) -> None:
    with PipeHost(config_file(tmp_path, {"a": noted(pids)})) as host:
        host.initialize()
        host.use("a", "echo")
        host.stop_reading()
        ids = [host.begin_use("a", "big", {"n": 400_000}) for _ in range(2)]
        host.close()
        eventually(lambda: not any(map(alive, pids_in(pids))), "only the last answers are left")
        host.go_on_reading()

        answers = {message["id"]: json_text(message["result"]) for message in host.rest()}

        assert answers == dict.fromkeys(ids, "x" * 400_000)


def test_a_stray_print_in_a_server_s_child_never_reaches_the_host(tmp_path: Path) -> None:
    """Our stdout is not the children's: what they write elsewhere stays elsewhere."""
    with PipeHost(config_file(tmp_path, {"a": entry("garbage")})) as host:
        host.initialize()
        host.use("a", "echo")
        host.close()
        host.rest()  # every line was a message

        assert not [line for line in host.lines if b"DEBUG" in line]
