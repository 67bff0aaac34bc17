"""The shared workbench ends, or is killed: its hosts go on by themselves, and nobody is left waiting."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from mcp_workbench.daemon.crash_journal import KEPT_BYTES
from tests.kit.clock import eventually
from tests.kit.config import config_file, entry, write_config
from tests.kit.config import offers_entry as offering
from tests.kit.pipe_host import PipeHost
from tests.kit.processes import alive, gone, pids_in
from tests.kit.results import META, Message, json_text, texts, use_tool
from tests.kit.shared import Shared, nothing_left

pytestmark = pytest.mark.usefixtures("forked_commands")

both = pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
STUBBORN = ("no_eof_exit", "ignore_term")
# How often it is killed amid work; more often in a long run.
ROUNDS = max(2, int(os.environ.get("WORKBENCH_TEST_ROUNDS", "2")))
GONE = "the shared workbench has ended while this was under way; it may have run"


def goes_on(host: PipeHost, bench: Shared, server: str = "a") -> int:
    """A new call is served by the attached process itself; the number of the server's process."""
    pid = json_text(host.use(server, "stats"))["pid"]
    assert host.process.poll() is None
    assert host.stderr.count("has ended; this host goes on by itself") == 1, host.stderr
    assert host.stderr.count("\n") == 1, "it says so once"
    return pid


@both
def test_calls_in_flight_may_have_run_and_new_ones_are_served(tmp_path: Path, modern: bool) -> None:
    config = config_file(tmp_path, {"a": entry(*STUBBORN)})
    bench = Shared(config)
    bench.begin()
    with bench.host(modern=modern) as one, bench.host(modern=not modern) as two:
        one.handshake()
        two.handshake()
        before = json_text(one.use("a", "stats"))["pid"]
        lost = [(host, host.begin_use("a", "hang")) for host in (one, two, one)]
        eventually(lambda: bench.server("a")["callsInFlight"] == 3, "all are under way")

        with nothing_left(bench.pid):
            bench.kill()

        for host, call in lost:
            result = host.answer(call)["result"]
            assert result["_meta"]["mcp-workbench/code"] == "server_exited"
            assert texts(result) == [f"Error: {GONE}"]
            assert result.get("resultType") == ("complete" if host.modern else None)
        after = [goes_on(host, bench) for host in (one, two)]
        assert before not in after
        one.close()
        two.close()  # so that both wait for their stubborn servers at the same time
    assert gone(after)


@both
def test_a_prompt_in_flight_whose_request_is_too_large_to_keep_is_refused(
    tmp_path: Path, modern: bool
) -> None:
    bench = Shared(config_file(tmp_path, {"one": offering("one", "legacy")}))
    bench.begin()
    with bench.host(modern=modern) as host:
        host.handshake()
        params = {"name": "dev__one__hang", "arguments": {"text": "x" * KEPT_BYTES}}
        small = host.ask("prompts/get", params | {"arguments": {}})
        large = host.ask("prompts/get", params)
        eventually(lambda: bench.server("one")["callsInFlight"] == 2, "both are under way")

        bench.kill()

        error = host.answer(large)["error"]
        assert GONE in error["message"]
        assert error["data"] == {"mcp-workbench/code": "server_exited"}
        host.notify("notifications/cancelled", {"requestId": small})  # it is asked for again


def test_what_a_host_has_set_up_survives(tmp_path: Path) -> None:
    boxes = {
        "dev": {"mcpServers": {"a": entry(), "one": offering("one", "legacy")}},
        "ops": {"mcpServers": {"b": entry()}},
    }
    bench = Shared(write_config(tmp_path, {"toolMode": "dynamic", "toolboxes": boxes}))
    bench.begin()
    with bench.host() as host:
        host.initialize("2025-06-18")
        host.open("dev")
        host.result("logging/setLevel", {"level": "error"})
        host.others.clear()
        before = host.result("tools/list")
        bench.status()  # by now it has noted what it has told

        bench.kill()

        assert host.result("tools/list") == before, "the opened toolbox, and no other"
        goes_on(host, bench)
        host.use("one", "log")
        heard = [m["params"]["level"] for m in host.others if "message" in m.get("method", "")]
        assert heard == ["error"]
        assert not [m for m in host.others if "method" not in m], "nothing is answered twice"


def test_a_modern_host_goes_on_listening(tmp_path: Path) -> None:
    bench = Shared(
        config_file(tmp_path, {"a": entry("modern", "listen", era="modern")}, toolMode="dynamic")
    )
    bench.begin()
    with bench.host(modern=True) as host:
        listening = host.ask("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        host.notice("notifications/subscriptions/acknowledged")
        host.result("tools/list")

        bench.kill()

        host.notice("notifications/subscriptions/acknowledged")
        goes_on(host, bench)
        host.use("a", "flip", {"name": "more"})
        told = host.notice("notifications/tools/list_changed")
        assert told["params"]["_meta"][META + "subscriptionId"] == listening


def with_hints(
    folder: Path, *names: str, flags: tuple[str, ...] = (), hints: dict[str, bool]
) -> Message:
    """The fixture with these tools, which say this about themselves."""
    tools = folder / "tools.json"
    shape = {"inputSchema": {"type": "object"}, "annotations": hints}
    tools.write_text(json.dumps([{"name": name, **shape} for name in ("stats", *names)]))
    return entry(f"tools={tools}", *flags, env={"PIDFILE": str(folder / "pids")})


def answer_of(host: PipeHost) -> Message:
    """The next one, to whichever request."""
    return host.until(lambda message: "method" not in message)


@both
@pytest.mark.parametrize("hint", ["readOnlyHint", "idempotentHint"])
def test_a_call_that_may_run_twice_is_made_again(tmp_path: Path, modern: bool, hint: str) -> None:
    gate, reached = tmp_path / "gate", tmp_path / "reached"
    os.mkfifo(gate)
    bench = Shared(
        config_file(tmp_path, {"a": with_hints(tmp_path, "wait_at", hints={hint: True})})
    )
    bench.begin()
    with bench.host(modern=modern) as host:
        host.handshake()
        host.use("a", "stats")
        call = host.begin_use("a", "wait_at", {"gate": str(gate), "reached": str(reached)})
        eventually(reached.exists, "it is under way")
        reached.unlink()

        bench.kill()
        eventually(reached.exists, "it is under way again")
        gate.open("w").close()

        assert json_text(host.answer(call)["result"]) == "through"
        goes_on(host, bench)


@both
@pytest.mark.parametrize("hints", [{}, {"readOnlyHint": False, "destructiveHint": False}])
def test_any_other_call_is_made_once(tmp_path: Path, modern: bool, hints: dict[str, bool]) -> None:
    gate, reached = tmp_path / "gate", tmp_path / "reached"
    os.mkfifo(gate)
    bench = Shared(config_file(tmp_path, {"a": with_hints(tmp_path, "wait_at", hints=hints)}))
    bench.begin()
    with bench.host(modern=modern) as host:
        host.handshake()
        call = host.begin_use("a", "wait_at", {"gate": str(gate), "reached": str(reached)})
        eventually(reached.exists, "it is under way")
        reached.unlink()

        bench.kill()

        assert texts(host.answer(call)["result"]) == [f"Error: {GONE}"]
        goes_on(host, bench)
        assert not reached.exists()


@both
def test_a_call_whose_server_was_starting_is_made(tmp_path: Path, modern: bool) -> None:
    """It was not sent, so whatever its tool says of itself, it has not run."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    pids = tmp_path / "pids"
    a = with_hints(tmp_path, flags=(f"gate={gate}",), hints={"destructiveHint": True})
    bench = Shared(config_file(tmp_path, {"a": a}, toolMode="dynamic"))
    bench.begin()
    with bench.host(modern=modern) as host:
        host.handshake()
        call = host.begin_use("a", "stats")
        opening = host.ask(
            "tools/call", {"name": "open_toolbox", "arguments": {"toolbox_name": "dev"}}
        )
        eventually(lambda: bench.server("a")["state"] == "starting", "it is")
        eventually(lambda: len(pids_in(pids)) == 1, "it stands at the gate")
        host.wait_until_read()

        bench.kill()
        eventually(lambda: len(pids_in(pids)) == 2, "the attached process starts it")
        eventually(lambda: not alive(pids_in(pids)[0]), "the first one does not stand at the gate")
        gate.open("w").close()

        first, second = answer_of(host), answer_of(host)
        answers = {answer["id"]: answer["result"] for answer in (first, second)}
        assert json_text(answers[call])["pid"]
        assert '__stats"' in texts(answers[opening])[0]
        goes_on(host, bench)
        assert not [m for m in host.others if "method" not in m], "nothing is answered twice"


@both
@pytest.mark.parametrize("again", [False, True], ids=["once", "again"])
def test_four_hundred_requests_and_each_has_one_answer(
    tmp_path: Path, modern: bool, again: bool
) -> None:
    """Killed amid work: each request has one answer, whether it was read, begun, answered, or neither."""
    hints = {"readOnlyHint": True} if again else {}
    bench = Shared(config_file(tmp_path, {"a": with_hints(tmp_path, "echo", hints=hints)}))
    for round in range(ROUNDS):
        bench.begin()
        with bench.host(modern=modern) as host:
            host.handshake()
            host.use("a", "stats")
            ids = [f"r{round}-{n}" for n in range(400)]
            for id in ids[:200]:
                ask_echo(host, id)
            if round % 2:
                host.wait_until_read()
            os.kill(bench.pid, signal.SIGKILL)
            for id in ids[200:]:
                ask_echo(host, id)
            answers: dict[str, Message] = {}
            while len(answers) < len(ids):
                note_answer(answers, host.receive(), again=again)
            goes_on(host, bench)
            for message in host.others:
                note_answer(answers, message, again=again)

        assert sorted(answers) == sorted(ids)
        assert is_echo(answers[ids[-1]])
        eventually(lambda: not alive(bench.pid), "it is gone")


def note_answer(answers: dict[str, Message], message: Message | None, *, again: bool) -> None:
    """It is right, or says that it may have run, and it comes once."""
    assert message is not None
    if not is_echo(message):
        assert not again, f"what may run twice needs no excuse: {message}"
        assert texts(message["result"]) == [f"Error: {GONE}"]
    assert message["id"] not in answers
    answers[message["id"]] = message


def ask_echo(host: PipeHost, id: str) -> None:
    host.ask("tools/call", use_tool("a", "echo", {"text": id}), id)


def is_echo(answer: Message) -> bool:
    text = answer["result"]["content"][0]["text"]
    if not text.startswith("{"):
        return False
    assert json.loads(text)["arguments"] == {"text": answer["id"]}
    return True


def test_a_request_that_was_read_in_part_is_heard_whole(tmp_path: Path) -> None:
    bench = Shared(config_file(tmp_path, {"a": entry()}))
    bench.begin()
    with bench.host() as host:
        host.initialize()
        host.write(b'{"jsonrpc":"2.0","id":"cut","met')
        host.wait_until_read()

        bench.kill()
        host.write(b'hod":"ping"}\n')

        assert host.answer("cut")["result"] == {}
        goes_on(host, bench)


def test_a_large_request_that_was_read_in_part_is_refused_by_its_id(tmp_path: Path) -> None:
    bench = Shared(config_file(tmp_path, {"a": entry()}))
    bench.begin()
    with bench.host() as host:
        host.initialize()
        host.write(b'{"jsonrpc":"2.0","id":"cut","method":"ping","params":{"x":"' + b"x" * 300_000)
        host.wait_until_read()

        bench.kill()
        host.write(b'"}}\n')

        assert "error" in host.answer("cut")
        goes_on(host, bench)


def test_an_answer_that_was_written_in_part_spoils_no_other(tmp_path: Path) -> None:
    bench = Shared(config_file(tmp_path, {"a": entry()}))
    bench.begin()
    with bench.host() as host:
        host.initialize()
        host.use("a", "stats")
        host.stop_reading()
        calls = [host.begin_use("a", "big", {"n": 2_000_000}) for _ in range(2)]
        eventually(lambda: bench.server("a")["callsInFlight"] == 0, "the server has answered")

        bench.kill()
        eventually(lambda: "goes on by itself" in host.stderr, "it has noticed")
        host.go_on_reading()

        answered: list[int] = []
        broken = 0
        while sorted(answered) != sorted(calls):
            line = host.line()
            if is_json(line):
                answered.append(json.loads(line)["id"])
            else:
                broken += bool(line)
        assert broken <= 1
        host.request("ping")


def is_json(line: bytes) -> bool:
    try:
        return bool(json.loads(line))
    except ValueError:
        return False


@both
def test_down_hands_hosts_back_without_losing_a_call(tmp_path: Path, modern: bool) -> None:
    gate, reached = tmp_path / "gate", tmp_path / "reached"
    os.mkfifo(gate)
    bench = Shared(config_file(tmp_path, {"a": entry()}))
    bench.begin()
    with bench.host(modern=modern) as host:
        host.handshake()
        first = json_text(host.use("a", "stats"))["pid"]
        held = host.begin_use("a", "wait_at", {"gate": str(gate), "reached": str(reached)})
        eventually(reached.exists, "it is under way")
        os.kill(bench.pid, signal.SIGTERM)
        eventually(lambda: bench.status()["isEnding"], "it is ending")

        later = host.begin_use("a", "stats")  # it waits for the attached process
        gate.open("w").close()

        assert json_text(host.answer(held)["result"]) == "through"
        second = json_text(host.answer(later)["result"])["pid"]
        assert second != first
        assert goes_on(host, bench) == second
    eventually(lambda: not alive(bench.pid), "it has ended")


def test_a_broken_file_at_the_wrong_moment_is_named(tmp_path: Path) -> None:
    config = config_file(tmp_path, {"a": entry()})
    bench = Shared(config)
    bench.begin()
    with bench.host() as host:
        host.statuses = (2,)
        host.initialize()
        config.write_text("{")

        bench.kill()

        assert host.rest() == []
        assert "WB-CONF-007" in host.stderr


def test_an_end_that_was_asked_for_is_the_end(tmp_path: Path) -> None:
    """An attached process that was told to leave does not begin to serve because the workbench dies as well."""
    bench = Shared(config_file(tmp_path, {"a": entry()}))
    bench.begin()
    with bench.host(real=True) as host:
        host.initialize()
        host.begin_use("a", "hang")
        eventually(lambda: bench.server("a")["callsInFlight"] == 1, "it is under way")
        host.signal(signal.SIGTERM)
        bench.kill()

        assert host.ended() == 0
    assert host.stderr == ""
