"""A Python program asks its person itself; what was approved expires, and is compared with what is sent."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mcp_workbench.core.errors import WorkbenchError
from mcp_workbench.core.spec import Snapshot
from mcp_workbench.gateway.approvals import (
    LIFETIME,
    MOST_OPEN,
    ApprovalAnswer,
    ApprovalRequest,
    OnApproval,
)
from mcp_workbench.gateway.calls import Call
from mcp_workbench.gateway.interceptors import Interceptor
from mcp_workbench.gateway.workbench import Gateway
from mcp_workbench.server.session import HostSession
from mcp_workbench.server.session_tools import ToolView
from mcp_workbench.server.stdio_front import StdioFront
from mcp_workbench.transport.tasks import task_scope
from tests.approvals.scenes import ONCE, call, is_denied, says, with_answer
from tests.kit.clock import PATIENCE, until
from tests.kit.config import config_file, entry, snapshot, spec, tool
from tests.kit.inside import InsideWorkbench
from tests.kit.memory_host import MemoryHost
from tests.kit.processes import pids_in
from tests.kit.results import INITIALIZE, Message, enveloped, json_text, use_tool

ECHO = tool("a", "echo")


def guarded(*approve: str, **more: Any) -> Snapshot:
    return snapshot(spec("a", approve=approve or ("echo",), **more))


@asynccontextmanager
async def program(
    on_approval: OnApproval | None, config: Snapshot | None = None, *interceptors: Interceptor
) -> AsyncGenerator[InsideWorkbench]:
    workbench = InsideWorkbench(
        config or guarded(), on_approval=on_approval, interceptors=interceptors
    )
    async with asyncio.timeout(PATIENCE), workbench as opened:
        yield opened


class Handler:
    """Answers as it is told, and keeps what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers: list[Any] = list(answers)
        self.asked: list[ApprovalRequest] = []

    async def __call__(self, request: ApprovalRequest) -> ApprovalAnswer:
        self.asked.append(request)
        return self.answers.pop(0)


async def test_the_handler_decides_and_knows_the_exact_arguments() -> None:
    handler = Handler("once", "no", "session")
    async with program(handler) as opened:
        first = await opened.use_tool(ECHO, {"text": "hi"})
        with pytest.raises(WorkbenchError, match="said no") as refused:
            await opened.use_tool(ECHO, {"text": "hi"})
        await opened.use_tool(ECHO)
        last = await opened.use_tool(ECHO, {"text": "not asked"})

    assert json_text(first)["arguments"] == {"text": "hi"}
    assert json_text(last)["arguments"] == {"text": "not asked"}
    assert (refused.value.code, refused.value.may_have_run) == ("denied", False)
    request = handler.asked[0]
    assert (request.tool, request.arguments) == (ECHO, b'{"text":"hi"}')
    assert "a Python program wants to call" in request.message


@pytest.mark.parametrize("answer", ["yes", "", None, True])
async def test_what_is_no_answer_is_no_yes(answer: Any) -> None:
    async with program(Handler(answer)) as opened:
        with pytest.raises(WorkbenchError) as refused:
            await opened.use_tool(ECHO)

    assert refused.value.code == "denied"


async def test_without_a_handler_the_call_is_denied() -> None:
    async with program(None) as opened:
        with pytest.raises(WorkbenchError, match=r"nobody can be asked.*on_approval") as refused:
            await opened.use_tool(ECHO)

    assert refused.value.code == "denied"


async def test_a_handler_that_fails_has_not_approved(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(request: ApprovalRequest) -> ApprovalAnswer:
        raise ZeroDivisionError("planted")

    async with program(broken) as opened:
        with pytest.raises(WorkbenchError, match="an interceptor failed"):
            await opened.use_tool(ECHO)

    assert "planted" in caplog.text


class Swap(Interceptor):
    """Changes one byte of a call, as soon as a person has approved it."""

    def before(self, call: Call) -> None:
        if call.approval is not None:
            arguments = bytes(call.request.params["arguments"]).replace(b"hi", b"ho")
            params = {"arguments": msgspec.Raw(arguments)}
            call.request = msgspec.structs.replace(call.request, params=params)


async def test_one_byte_changed_between_yes_and_run_and_it_is_not_run() -> None:
    async with program(Handler("once", "once"), None, Swap()) as opened:
        with pytest.raises(WorkbenchError, match="not the call that was approved") as refused:
            await opened.use_tool(ECHO, {"text": "hi"})
        unchanged = await opened.use_tool(ECHO, {"text": "other"})
        methods = json_text(await opened.use_tool(tool("a", "stats")))["methods"]

    assert refused.value.code == "denied"
    assert json_text(unchanged)["arguments"] == {"text": "other"}
    assert methods.count("tools/call") == 2


async def test_nobody_answers_in_time() -> None:
    withdrawn = asyncio.Event()

    async def silent(request: ApprovalRequest) -> ApprovalAnswer:
        try:
            await asyncio.Event().wait()
        finally:
            withdrawn.set()
        return "once"

    async with program(silent) as opened:
        opened.gateway.approvals.lifetime = 0.05
        with pytest.raises(WorkbenchError, match="nobody answered within 5 minutes") as refused:
            await opened.use_tool(ECHO)

    assert withdrawn.is_set()
    assert refused.value.code == "denied"


async def test_a_yes_expires_before_it_is_used() -> None:
    now = 0.0

    async def slow(request: ApprovalRequest) -> ApprovalAnswer:
        return "once"

    class Delay(Interceptor):
        def before(self, call: Call) -> None:
            nonlocal now
            now += LIFETIME + 1 if call.approval is not None else 0

    async with program(slow, None, Delay()) as opened:
        opened.gateway.approvals.clock = lambda: now
        with pytest.raises(WorkbenchError, match="the approval has expired") as refused:
            await opened.use_tool(ECHO)

    assert refused.value.code == "denied"


@pytest.mark.parametrize(("approve", "starts"), [((), 2), (("die",), 1)])
async def test_what_was_approved_is_not_sent_twice(
    tmp_path: Path, approve: tuple[str, ...], starts: int
) -> None:
    """Its server exits. The tool declares that a second run is harmless, so another call is repeated."""
    tools, pids = tmp_path / "tools.json", tmp_path / "pids"
    harmless = {"idempotentHint": True}
    definition = {"name": "die", "inputSchema": {"type": "object"}, "annotations": harmless}
    tools.write_text(json.dumps([definition]))
    server = spec("a", f"tools={tools}", env={"PIDFILE": str(pids)}, approve=approve)
    handler = Handler("once")
    async with program(handler, snapshot(server)) as opened:
        with pytest.raises(WorkbenchError) as lost:
            await opened.use_tool(tool("a", "die"))

    assert lost.value.code == "server_exited"
    assert len(pids_in(pids)) == starts
    assert len(handler.asked) == len(approve)


async def test_more_questions_than_a_person_can_read_are_not_asked() -> None:
    answered = asyncio.Event()

    async def slow(request: ApprovalRequest) -> ApprovalAnswer:
        await answered.wait()
        return "once"

    async with program(slow) as opened, task_scope() as scope:
        await opened.use_tool(tool("a", "stats"))
        waiting = [scope.start(opened.use_tool(ECHO), "call") for _ in range(MOST_OPEN)]
        await until(lambda: opened.gateway.approvals.waiting == MOST_OPEN)
        with pytest.raises(WorkbenchError, match="are open already"):
            await opened.use_tool(ECHO)
        answered.set()
        for task in waiting:
            await task


async def test_a_reload_applies_to_the_next_call_and_ends_what_lasts() -> None:
    handler = Handler("session", "no")
    async with program(handler) as opened:
        await opened.use_tool(ECHO)
        opened.reload(guarded(env={"OTHER": "1"}))  # another program, under the same name
        with pytest.raises(WorkbenchError, match="said no"):
            await opened.use_tool(ECHO)
        opened.reload(snapshot(spec("a")))
        await opened.use_tool(ECHO)

    assert len(handler.asked) == 2


# Hosts in the test's own loop, whose clock can be set


class LoopHost(MemoryHost):
    """A host whose lines are read as those on stdin are."""

    def __init__(self, *, modern: bool) -> None:
        super().__init__()
        self._modern = modern
        self.front: StdioFront | None = None

    def say(self, message: Message) -> None:
        assert self.front is not None
        self.front.receive(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def ask(self, id: int, params: Message, method: str = "tools/call") -> None:
        params = enveloped(params) if self._modern else params
        self.say({"id": id, "method": method, "params": params})

    async def result(self, id: int, params: Message) -> Message:
        self.ask(id, params)
        return (await self.answer(id))["result"]


@asynccontextmanager
async def loop_host(*, modern: bool) -> AsyncGenerator[tuple[LoopHost, HostSession]]:
    host = LoopHost(modern=modern)
    async with (
        asyncio.timeout(PATIENCE),
        Gateway(guarded()) as gateway,
        task_scope() as requests,
    ):
        session = HostSession(gateway.view, host, requests, ToolView(gateway.view, ()))
        host.front = StdioFront(session, host, gateway.snapshot.limits.message_bytes)
        if not modern:
            host.ask(0, {**INITIALIZE, "capabilities": {"elicitation": {}}}, "initialize")
            await host.answer(0)
        yield host, session


async def test_a_legacy_host_that_does_not_answer_is_told_that_it_is_too_late() -> None:
    async with loop_host(modern=False) as (host, session):
        session.elicitation.input_requests.approvals.lifetime = 0.05
        result = await host.result(1, use_tool("a", "echo"))
        [asked] = [m for m in host.messages if m.get("method") == "elicitation/create"]
        [withdrawn] = [m for m in host.messages if m.get("method") == "notifications/cancelled"]
        host.say({"id": asked["id"], "result": says(ONCE)})
        stats = json_text(await host.result(2, use_tool("a", "stats")))

    assert is_denied(result, "nobody answered within 5 minutes")
    assert withdrawn["params"]["requestId"] == asked["id"]
    assert stats["methods"].count("tools/call") == 1, "a late yes changes nothing"


async def test_an_answer_of_a_modern_host_that_comes_too_late_does_not_count() -> None:
    async with loop_host(modern=True) as (host, session):
        now = 100.0
        session.elicitation.input_requests.approvals.clock = lambda: now
        asked = await host.result(1, call())
        now += LIFETIME + 1
        late = await host.result(2, call(**with_answer(asked, says(ONCE))))
        asked = await host.result(3, call())
        now += LIFETIME - 1
        in_time = await host.result(4, call(**with_answer(asked, says(ONCE))))

    assert is_denied(late, "came too late")
    assert json_text(in_time)["arguments"] == {}


async def test_the_oldest_of_too_many_open_questions_is_dropped() -> None:
    async with loop_host(modern=True) as (host, _):
        asked = [await host.result(id, call()) for id in range(1, MOST_OPEN + 2)]
        first = await host.result(100, call(**with_answer(asked[0], says(ONCE))))
        second = await host.result(101, call(**with_answer(asked[1], says(ONCE))))

    assert is_denied(first)
    assert json_text(second)["arguments"] == {}


UNGUARDED = """
import asyncio, sys
from mcp_workbench import ToolIdentifier, Workbench, load_config

async def main():
    async with Workbench(load_config(sys.argv[1])) as workbench:
        await workbench.use_tool(ToolIdentifier("dev", "a", "echo"))
    print([name for name in sys.modules if "approv" in name])

asyncio.run(main())
"""


def test_nothing_is_loaded_where_nothing_needs_approval(tmp_path: Path) -> None:
    config = config_file(tmp_path, {"a": entry()})
    argv = [sys.executable, "-c", UNGUARDED, str(config)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE)

    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr
