"""Servers that say the wrong thing, too much, or nothing that can be read."""

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.core.errors import CallFailed
from mcp_workbench.core.spec import Limits
from mcp_workbench.gateway.workbench import Workbench
from mcp_workbench.upstream.connection import REFRESH_PAUSE
from tests.faults.scene import AT_ONCE, LAG, MEGABYTE, answers, failure, faulty, line_of
from tests.kit.clock import PATIENCE, eventually, takes_at_most
from tests.kit.command import run_command
from tests.kit.config import config_file, entry, snapshot, spec, tool
from tests.kit.processes import let_through, pids_in
from tests.kit.results import CODE, json_text
from tests.kit.vitals import cpu_seconds, forget_peak, megabytes

pytestmark = pytest.mark.usefixtures("forked_commands")


def result(text: bytes, id: bytes = b"@ID@") -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"result":{"content":[],"t":"%b"}}' % (id, text)


# Lines that are no messages


@pytest.mark.fault("F7")
def test_text_that_is_no_message_is_skipped_and_shown_by_check_and_doctor(tmp_path: Path) -> None:
    noisy = entry("banner", "garbage", env={"TOKEN": "${NOISY_TOKEN}"})
    with faulty(tmp_path, {"bad": noisy}, env={"NOISY_TOKEN": "hush"}) as host:
        for n in range(5):
            assert json_text(host.use("bad", "echo", {"n": n}))["arguments"] == {"n": n}

    config_file(tmp_path, {"bad": noisy})
    done = run_command("check", "--connect", cwd=tmp_path, NOISY_TOKEN="answering")
    # A banner of two lines, and one line before each of two answers.
    assert done.status == 0
    assert "dev/bad: 4 lines on its stdout held no message; the last one: " in done.err
    assert "DEBUG [secret:" in done.err
    assert "answering" not in done.err, "a secret stays one"
    assert "WB-CONN-102" in done.err

    found = run_command("doctor", cwd=tmp_path, NOISY_TOKEN="answering")
    assert "dev/bad: 4 lines on its stdout held no message" in " ".join(found.out.split())
    assert "answering" not in found.out + found.err


BAD_TEXT = [
    (b"DEBUG \xff\xfe\n" + result(b"fine"), "fine"),
    (b"\xc3\n\xed\xa0\x80\n" + result(b"fine"), "fine"),
    (result(b"cut \xff"), "cut \ufffd"),
    (result(b"cut \\ud83d"), "cut \ufffd"),
    (result(b"whole \\ud83d\\ude00"), "whole \U0001f600"),
]


@pytest.mark.fault("F8", "F49")
@pytest.mark.parametrize("modern", [False, True], ids=["legacy host", "modern host"])
def test_bad_text_reaches_the_host_as_good_text(tmp_path: Path, modern: bool) -> None:
    servers = {"legacy": entry(), "modern": entry("modern", era="modern")}
    with faulty(tmp_path, servers, modern=modern) as host:  # which reads strictly
        host.open()
        for server in servers:
            for line, text in BAD_TEXT:
                with takes_at_most(AT_ONCE):
                    assert host.use(server, "line", line_of(line))["t"] == text


@pytest.mark.fault("F9")
@pytest.mark.usefixtures("real_commands")
def test_a_hundred_megabytes_of_complaints_stall_nothing(tmp_path: Path) -> None:
    with faulty(tmp_path, {"bad": entry("floods")}, lag=LAG) as host:
        host.use("bad", "echo")
        pid = host.process.pid
        before = megabytes(pid)
        forget_peak(pid)
        assert json_text(host.use("bad", "stderr_flood", {"megabytes": 100})) == 100

        assert megabytes(pid, "VmHWM") - before < 8
        assert host.stderr == "", "none of it is ours to repeat"
        text = failure(host.use("bad", "die", {"stderr": "\nfamous last words\n"}), "server_exited")
        assert "famous last words" in text
        assert len(text) < 800


# Size and depth


@pytest.mark.fault("F10")
@pytest.mark.usefixtures("real_commands")
def test_a_line_beyond_the_cap_ends_the_call_and_is_not_kept(tmp_path: Path) -> None:
    limits = {"messageBytes": 8 << 20}
    with faulty(tmp_path, {"bad": entry("floods")}, lag=LAG, limits=limits) as host:
        host.use("bad", "echo")
        pid = host.process.pid
        for tool, arguments in (("nonewline", {"megabytes": 64}), ("big", {"n": 20 << 20})):
            before = megabytes(pid)
            forget_peak(pid)
            text = failure(host.use("bad", tool, arguments), "too_large")

            assert "8388608 bytes (limits.messageBytes)" in text
            assert megabytes(pid, "VmHWM") - before < 32
            assert json_text(host.use("bad", "echo"))["name"] == "echo"


@pytest.mark.fault("F10")
async def test_a_call_right_after_a_line_beyond_the_cap_is_not_told_its_fault() -> None:
    limited = snapshot(spec("bad", "floods"), limits=Limits(message_bytes=MEGABYTE))
    async with asyncio.timeout(PATIENCE), Workbench(limited) as bench:
        for _ in range(3):
            with pytest.raises(CallFailed, match=r"limits\.messageBytes"):
                await bench.use_tool(tool("bad", "nonewline"), {"megabytes": 4})
            assert json_text(await bench.use_tool(tool("bad", "echo")))["name"] == "echo"


@pytest.mark.fault("F10")
def test_a_call_that_never_left_is_made_on_the_next_connection(tmp_path: Path) -> None:
    """It waits behind a call that fills the pipe, while the server writes and does not read."""
    limits = {"messageBytes": MEGABYTE}
    with faulty(tmp_path, {"bad": entry("floods")}, limits=limits) as host:
        host.use("bad", "echo")
        for gate in (tmp_path / "one", tmp_path / "two"):
            os.mkfifo(gate)
            large = host.begin_use("bad", "nonewline", {"gate": str(gate), "megabytes": 4})
            stuck = host.begin_use("bad", "echo", {"text": "x" * (MEGABYTE // 2)})
            queued = host.begin_use("bad", "echo", {"text": "queued"})
            host.result("ping")  # those before it were taken
            eventually(lambda gate=gate: let_through(gate), "the server waits at the gate")

            failure(host.answer(large)["result"], "too_large")
            failure(host.answer(stuck)["result"], "too_large")
            assert json_text(host.answer(queued)["result"])["arguments"] == {"text": "queued"}


@pytest.mark.fault("F10")
@pytest.mark.usefixtures("real_commands")
def test_a_line_without_an_end_is_kept_up_to_the_usual_cap_and_then_forgotten(
    tmp_path: Path,
) -> None:
    with faulty(tmp_path, {"bad": entry("floods")}, lag=LAG) as host:
        host.use("bad", "echo")
        pid = host.process.pid
        before = megabytes(pid)
        forget_peak(pid)
        failure(host.use("bad", "nonewline"), "too_large")

        assert megabytes(pid, "VmHWM") - before < 64 + 16, "the cap, and what is read at once"
        assert megabytes(pid) - before < 16


@pytest.mark.fault("F10")
@pytest.mark.usefixtures("real_commands")
def test_a_large_line_passes_untouched_in_linear_time(tmp_path: Path) -> None:
    with faulty(tmp_path, {"bad": entry()}, lag=LAG) as host:
        host.use("bad", "echo")
        pid, spent = host.process.pid, list[float]()
        for size in (4 << 20, 15 << 20):
            since = cpu_seconds(pid)
            assert json_text(host.use("bad", "big", {"n": size})) == "x" * size
            spent.append(cpu_seconds(pid) - since)

        # Quadratic would be fourteen times as much and more; the clock ticks in hundredths.
        assert spent[1] < 8 * max(spent[0], 0.05), spent


@pytest.mark.fault("F13")
def test_nesting_without_end_fails_its_call_at_once(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    bad = entry("floods", env={"PIDFILE": str(pids)})
    with faulty(tmp_path, {"bad": bad}, lag=LAG) as host:
        host.use("bad", "echo")
        held = host.begin_use("bad", "hold", {"key": "k"})
        for _ in range(5):
            with takes_at_most(AT_ONCE):
                failure(host.use("bad", "deep", {"n": 100_000}), "protocol_error")
        host.use("bad", "release", {"key": "k"})

        assert json_text(host.outcome(held)) == "released k"
        assert len(pids_in(pids)) == 1, "the connection stays"


# Messages that do not fit


FOREIGN = [b"77777", b"null", b'"@ID@"', b"@ID@.5", b"true", b"-@ID@", b"[@ID@]", b"{}"]


@pytest.mark.fault("F12")
def test_an_answer_under_another_id_is_nobodys(tmp_path: Path) -> None:
    with faulty(tmp_path, {"bad": entry(timeout=0.5)}) as host:
        host.open()
        beside = host.begin_use("bad", "hold", {"key": "k"})
        wrong = [host.begin_use("bad", "line", line_of(result(b"foreign", id))) for id in FOREIGN]
        with takes_at_most(0.5):
            for id in (beside, *wrong):
                failure(host.outcome(id), "timeout")

        assert b"foreign" not in b"".join(host.lines)
        answers(host, "bad")


@pytest.mark.fault("F7", "F12")
async def test_what_is_dropped_is_counted() -> None:
    lines = b"hello\n" + b"\n".join(result(b"x", id) for id in FOREIGN) + b"\n" + result(b"x")
    async with asyncio.timeout(PATIENCE), Workbench(snapshot(spec("a"))) as bench:
        await bench.use_tool(tool("a", "line"), line_of(lines))
        [health] = bench.health()

    # A fraction or a truth value is an id of nobody's; an object is one, too.
    assert (health.state, health.skipped, health.unasked) == ("ready", 1, len(FOREIGN))


@pytest.mark.fault("F12")
def test_doubled_answers_and_answers_in_one_array_work(tmp_path: Path) -> None:
    double = result(b"1") + b"\n" + result(b"2")
    array = b"[" + result(b"3") + b"," + result(b"4", b"99999") + b",5]"
    with faulty(tmp_path, {"bad": entry()}) as host:
        host.use("bad", "echo")
        assert host.use("bad", "line", line_of(double))["t"] == "1"
        assert host.use("bad", "line", line_of(array))["t"] == "3"
        assert json_text(host.use("bad", "echo"))["name"] == "echo"
        assert host.others == []


ODD = [
    '{"content":"none"}',
    '{"content":[{"type":"hologram","x":[1.0,null]}],"isError":"perhaps"}',
    '{"n":12345678901234567890,"a":1,"a":2}',
    "[]",
    "null",
    '"text"',
]


@pytest.mark.fault("F14")
def test_results_of_the_wrong_shape_pass_untouched(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with faulty(tmp_path, {"bad": entry(env={"PIDFILE": str(pids)})}) as host:
        host.use("bad", "echo")
        for odd in ODD:
            id = host.begin_use("bad", "result", {"result": odd})
            host.answer(id)
            assert host.lines[-1] == b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (id, odd.encode())
        assert len(pids_in(pids)) == 1


@pytest.mark.fault("F48")
@pytest.mark.parametrize("mode", ["proxy", "dynamic"])
def test_an_odd_tool_is_listed_with_the_others(tmp_path: Path, mode: str) -> None:
    odd: dict[str, Any] = {
        "name": "odd",
        "inputSchema": {"x": []},
        "outputSchema": [1],
        "annotations": 5,
    }
    fine = [{"name": f"fine{n}", "inputSchema": {"type": "object"}} for n in range(6)]
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([*fine[:3], odd, *fine[3:]]))
    with faulty(tmp_path, {"bad": entry(f"tools={tools}")}, toolMode=mode) as host:
        value = host.open()
        assert "unavailable" not in value
        if mode == "dynamic":
            shown = host.result("tools/list")["tools"]
            assert len([tool for tool in shown if "__bad__" in tool["name"]]) == 7
        else:
            shown = [tool for tool in value["tools"] if tool["source_server"] == "bad"]
            assert [tool["name"] for tool in shown][3] == "odd"
            assert (shown[3]["outputSchema"], len(shown)) == ([1], 7)
        assert json_text(host.use("bad", "odd"))["name"] == "odd"


# Too much at once


@pytest.mark.fault("F15")
@pytest.mark.usefixtures("real_commands")
def test_floods_of_notices_hold_nobody_and_cause_no_storm(tmp_path: Path) -> None:
    with faulty(tmp_path, {"bad": entry("floods")}, lag=LAG) as host:
        host.use("bad", "echo")
        pid, since = host.process.pid, time.monotonic()
        before = megabytes(pid)
        listed = json_text(host.use("bad", "stats"))["lists"]
        assert json_text(host.use("bad", "flood", {"n": 20_000})) == 20_000
        assert json_text(host.use("bad", "list_changed", {"n": 1_000})) == 1_000
        while (
            json_text(host.use("bad", "stats"))["lists"] < listed + 3
        ):  # it is read again meanwhile
            host.use("bad", "announce")
        done = host.use("bad", "progress", {"n": 2_000}, _meta={"progressToken": "p"})

        told = [
            m["params"]["progress"]
            for m in host.others
            if m.get("method") == "notifications/progress"
        ]
        assert json_text(done) == 2_000
        assert told == sorted(set(told)), "in order, none twice"
        assert len(told) == 2_000, "nobody was slow, so none was dropped"
        lists = json_text(host.use("bad", "stats"))["lists"] - listed
        seconds = time.monotonic() - since
        assert lists <= 1 + seconds / REFRESH_PAUSE, "one for each pause"
        assert megabytes(pid) - before < 64


@pytest.mark.fault("F51")
@pytest.mark.usefixtures("short_deadlines")  # it does not leave by itself
@pytest.mark.usefixtures("real_commands")
def test_a_deaf_server_is_busy_at_once_and_its_queue_ends_at_the_deadline(tmp_path: Path) -> None:
    deafness(tmp_path, calls=30, size=100_000, queue=1 << 20, deadline=2)


def deafness(folder: Path, *, calls: int, size: int, queue: int, deadline: float) -> None:
    """`calls` with arguments of `size` bytes to a server that does not read, none of which hangs.

    All of them must be there before the deadline of the first.
    """
    bad, limits = entry(timeout=deadline), {"queueBytes": queue}
    with faulty(folder, {"bad": bad}, lag=2 * LAG, limits=limits) as host:
        host.use("bad", "stop_reading")
        pid = host.process.pid
        before = megabytes(pid)
        ids = [host.begin_use("bad", "echo", {"text": "x" * size}) for _ in range(calls)]
        with takes_at_most(AT_ONCE):
            failure(host.use("bad", "echo"), "overloaded")
        late: list[str] = []
        busy = 0
        for told in map(host.outcome, ids):
            if told["_meta"][CODE] == "overloaded":
                assert "limits.queueBytes" in failure(told, "overloaded")
                busy += 1
            else:
                late.append(failure(told, "timeout"))

        # One more than the limit is let in, and a pipe takes a part of the first ones.
        assert busy >= calls - queue // size - 4
        left = [text for text in late if not text.endswith("the call did not run")]
        assert 1 <= len(left) <= 2 + (1 << 18) // size, "what had left, in whole or in part"
        assert late[: len(left)] == left
        assert megabytes(pid, "VmHWM") - before < 3 * queue / MEGABYTE + 32
        # What was not sent is taken out of the queue: there is room for a call again.
        waiting = host.begin_use("bad", "echo")
        host.request("ping")
        assert waiting not in [message.get("id") for message in host.others], "it was not refused"
        host.notify("notifications/cancelled", {"requestId": waiting})
