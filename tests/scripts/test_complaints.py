"""What people complain about where others run scripts: six complaints, each shown not to hold here."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_workbench.core.script_texts import EXAMPLE
from tests.approvals.scenes import opened, question, reply
from tests.kit.clock import eventually
from tests.kit.config import entry, program_entry
from tests.kit.pipe_host import PipeHost
from tests.kit.processes import children, cmdline
from tests.kit.results import Message, json_text, texts
from tests.kit.servers import ASKER
from tests.kit.vitals import cpu_seconds
from tests.scripts.scenes import failure, returns, script, scripted, value

TOOL_ERROR = {"content": [{"type": "text", "text": "disk full"}], "isError": True}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PipeHost]:
    folder = tmp_path_factory.mktemp("complaints")
    with PipeHost(scripted(folder, {"a": entry()})) as host:
        yield host.handshake()


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (returns(TOOL_ERROR), "RuntimeError: dev/a/result: disk full"),
        (
            'await call(\'dev/a/error\', error=\'{"code": -32000, "message": "no"}\')',
            "RuntimeError: dev/a/error: no",
        ),
        ("await call('dev/a/nothing')", "LookupError: dev/a/nothing: Tool 'nothing' not found"),
        ("await call('dev/a/die')", "OSError: [dev/a/die] Error: "),
    ],
)
def test_a_call_that_fails_can_be_caught(host: PipeHost, call: str, told: str) -> None:
    code = f"try:\n    {call}\nexcept Exception as e:\n    r = type(e).__name__ + ': ' + str(e)\nr"
    caught = texts(script(host, code))[0]
    uncaught = failure(script(host, call))

    assert caught.startswith(told)
    assert told in uncaught


def test_one_of_several_calls_at_the_same_time_can_be_caught(host: PipeHost) -> None:
    code = (
        "async def safe(name):\n    try:\n        return await call(name)\n"
        "    except LookupError as e:\n        return 'LookupError'\n"
        "r = await asyncio.gather(safe('dev/a/echo'), safe('dev/a/nix'))\n[r[0]['arguments'], r[1]]"
    )

    assert value(script(host, code)) == [{}, "LookupError"]


@pytest.mark.parametrize(
    ("code", "line", "caret"),
    [
        ("call('dev/a/echo')", 1, "    call('dev/a/echo')\n    ^^^^"),
        ("x = 1\ny = call('dev/a/echo')\nx", 2, "    y = call('dev/a/echo')\n        ^^^^"),
        ("r = call('dev/a/echo')\nr['arguments']", 1, "    r = call('dev/a/echo')\n        ^^^^"),
        ("[call('dev/a/echo') for _ in range(3)]", 1, "    [call('dev/a/echo')"),
        ("async def main():\n    await call('dev/a/echo')\nmain()", 0, "coroutine"),
    ],
)
def test_a_call_without_await_is_an_error_and_not_silence(
    host: PipeHost, code: str, line: int, caret: str
) -> None:
    told = failure(script(host, code))

    assert f"Line {line}" in told or not line
    assert caret in told
    assert ("await main()" if "main" in code else EXAMPLE) in told
    assert "No call was sent to a server" in told


def test_a_failure_is_never_a_value(host: PipeHost) -> None:
    told = failure(script(host, f"r = {returns(TOOL_ERROR)}\nprint('went on')"))

    assert "went on" not in told
    assert "disk full" in told


def test_a_question_reaches_the_person_and_is_not_declined_for_them(tmp_path: Path) -> None:
    with PipeHost(scripted(tmp_path, {"l": program_entry(ASKER, era="legacy")})) as host:
        opened(host)
        id = host.begin("run_script", {"code": "str(await call('dev/l/name'))"})
        asked = question(host)
        reply(host, asked, {"action": "decline"})
        result = host.answer(id)["result"]

    assert "decline" in texts(result)[0]


def test_a_host_that_cannot_be_asked_is_told_so(tmp_path: Path) -> None:
    with PipeHost(scripted(tmp_path, {"m": program_entry(ASKER, era="modern")})) as host:
        host.handshake()
        told = failure(script(host, "await call('dev/m/name')"))

    assert "can't be asked" in told or "takes no elicitation" in told or "required" in told


def test_meta_travels_both_ways(host: PipeHost) -> None:
    seen = json_text(
        script(
            host,
            "import json\njson.dumps(await call('dev/a/echo'))",
            _meta={"traceparent": "00-1", "progressToken": 1},
        )
    )
    with_meta: Message = {"content": [], "_meta": {"example.com/cost": {"cents": 3}}}
    result = script(host, f"{returns(with_meta)}\n1")

    assert seen["_meta"] == {"traceparent": "00-1"}
    assert result["_meta"]["mcp-workbench/calls"] == [
        {"tool": "dev/a/result", "_meta": {"example.com/cost": {"cents": 3}}}
    ]


def test_a_large_meta_does_not_fill_the_answer(host: PipeHost) -> None:
    with_meta: Message = {"content": [], "_meta": {"example.com/blob": "x" * 40_000}}
    result = script(host, f"{returns(with_meta)}\n{returns(with_meta)}\n1")

    assert len(result["_meta"]["mcp-workbench/calls"]) == 1


@pytest.mark.usefixtures("real_commands")
def test_the_crash_of_a_worker_is_one_failed_call(tmp_path: Path) -> None:
    with PipeHost(scripted(tmp_path)) as host:
        host.handshake()
        engine = _engine(host)
        id = host.begin("run_script", {"code": "await call('dev/a/echo')\nwhile True: pass"})
        worker = _busy_worker(engine)
        os.kill(worker, signal.SIGKILL)
        told = failure(host.answer(id)["result"], "scripts_unavailable")
        next_one = value(script(host, "1 + 1"))
        same = _engine(host)
        os.kill(engine, signal.SIGKILL)
        host_pid = host.process.pid
        eventually(lambda: engine not in children(host_pid, zombies=True), "it was noticed")
        again = value(script(host, "1 + 1"))
        direct = host.use("a", "echo", {"text": "x"})

    assert "The script's worker has ended" in told
    assert "- line 1: dev/a/echo: ok" in told
    assert (next_one, again, same) == (2, 2, engine)
    assert json_text(direct)["arguments"] == {"text": "x"}


def _engines(host: PipeHost) -> list[int]:
    return [pid for pid in children(host.process.pid) if b"script_engine" in cmdline(pid)]


def _engine(host: PipeHost) -> int:
    """The process that runs the scripts of this host."""
    value(script(host, "1"))
    (engine,) = _engines(host)
    return engine


def _busy_worker(engine: int) -> int:
    """The worker that computes."""
    busy: list[int] = []

    def found() -> bool:
        busy[:] = [pid for pid in children(engine) if cpu_seconds(pid) > 0.1]
        return len(busy) == 1

    eventually(found, "the script computes")
    return busy[0]
