"""An interceptor sees every call: it lets it pass, refuses it, has it wait, and changes what comes of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mcp_workbench.core.errors import CallFailed, InvalidCall, WorkbenchError
from mcp_workbench.core.spec import Snapshot
from mcp_workbench.gateway.calls import Call
from mcp_workbench.gateway.interceptors import (
    CallOutcome,
    Completed,
    Interceptor,
    Refusal,
    Wait,
)
from mcp_workbench.gateway.workbench import Gateway
from mcp_workbench.server.session import HostSession
from mcp_workbench.server.session_tools import ToolView
from mcp_workbench.server.stdio_front import StdioFront
from mcp_workbench.transport.tasks import task_scope
from tests.kit.clock import PATIENCE
from tests.kit.config import snapshot, spec, tool
from tests.kit.inside import InsideWorkbench
from tests.kit.memory_host import MemoryHost
from tests.kit.results import INITIALIZE, enveloped, error_code, json_text, use_tool

NO = InvalidCall("not today")


class Watch(Interceptor):
    """Decides as it is told, and keeps what it has seen."""

    def __init__(self, *decisions: Refusal | Wait | None) -> None:
        self.decisions = list(decisions)
        self.seen: list[str] = []

    def before(self, call: Call) -> Refusal | Wait | None:
        self.seen.append(f"before {call.request.tool.tool}")
        return self.decisions.pop(0) if self.decisions else None

    def after(self, call: Call, outcome: CallOutcome) -> CallOutcome:
        self.seen.append(f"after {type(outcome).__name__}")
        return outcome


@asynccontextmanager
async def workbench(
    *interceptors: Interceptor, config: Snapshot | None = None
) -> AsyncGenerator[InsideWorkbench]:
    config = config or snapshot(spec("a"))
    async with (
        asyncio.timeout(PATIENCE),
        InsideWorkbench(config, interceptors=interceptors) as opened,
    ):
        yield opened


async def test_each_call_is_seen_once_before_and_once_after() -> None:
    watch = Watch()
    async with workbench(watch) as opened:
        await opened.use_tool(tool("a", "echo"))
        await opened.use_tool(tool("a", "fail"))
        with pytest.raises(WorkbenchError):
            await opened.use_tool(tool("a", "nope"))

    assert watch.seen == [
        "before echo", "after Completed", "before fail", "after Completed", "after Failed",
    ]  # fmt: skip


async def test_what_is_refused_does_not_reach_the_server() -> None:
    async with workbench(Watch(None, Refusal(NO))) as opened:
        before = json_text(await opened.use_tool(tool("a", "stats")))["methods"]
        with pytest.raises(InvalidCall, match="not today"):
            await opened.use_tool(tool("a", "echo"))
        after = json_text(await opened.use_tool(tool("a", "stats")))["methods"]

    assert after.count("tools/call") == before.count("tools/call") + 1


async def test_a_call_that_waits_is_sent_when_the_work_is_done_and_not_asked_again() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        await go_on.wait()

    watch, last = Watch(None, Wait(work)), Watch()
    async with workbench(watch, last) as opened:
        await opened.use_tool(tool("a", "echo"))
        waiting = asyncio.create_task(opened.use_tool(tool("a", "echo"), {"text": "x"}))
        await begun.wait()
        other = await opened.use_tool(tool("a", "echo"), {"text": "y"})
        assert json_text(other)["arguments"] == {"text": "y"}, "others go on meanwhile"
        assert not waiting.done()

        go_on.set()

        assert json_text(await waiting)["arguments"] == {"text": "x"}
    assert watch.seen.count("before echo") == 3
    assert last.seen.count("before echo") == 3, "it is asked when the call is really sent"


async def test_what_the_work_finds_may_refuse_the_call() -> None:
    async def work() -> Refusal:
        return Refusal(NO)

    async with workbench(Watch(Wait(work))) as opened:
        with pytest.raises(InvalidCall, match="not today"):
            await opened.use_tool(tool("a", "echo"))


async def test_a_call_that_waits_can_be_cancelled() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    watch = Watch(None, Wait(work))
    async with workbench(watch) as opened:
        await opened.use_tool(tool("a", "echo"))
        waiting = asyncio.create_task(opened.use_tool(tool("a", "echo")))
        await begun.wait()
        waiting.cancel()
        await ended.wait()

    assert watch.seen[-1] == "after Cancelled"


class Stamp(Interceptor):
    """Answers for every server."""

    def after(self, call: Call, outcome: CallOutcome) -> CallOutcome:
        return Completed(b'{"content":[],"stamped":true}')


async def test_an_outcome_may_be_replaced() -> None:
    async with workbench(Stamp()) as opened:
        assert await opened.use_tool(tool("a", "echo")) == {"content": [], "stamped": True}


async def test_a_python_program_s_arguments_are_checked_where_the_entry_says_so() -> None:
    async with workbench(config=snapshot(spec("a", validate=True))) as opened:
        await opened.use_tool(tool("a", "echo"), {"text": "x"})
        with pytest.raises(InvalidCall, match="text: Expected string, received number"):
            await opened.use_tool(tool("a", "echo"), {"text": 5})


# Bugs of interceptors


class Buggy(Interceptor):
    """Raises as many times as it is told to."""

    def __init__(self, times: int = 1) -> None:
        self.times = times

    def bug(self) -> None:
        if self.times:
            self.times -= 1
            raise ZeroDivisionError("planted")


class BuggyBefore(Buggy):
    def before(self, call: Call) -> Refusal | Wait | None:
        self.bug()
        return None


class BuggyWork(Buggy):
    def before(self, call: Call) -> Refusal | Wait | None:
        return Wait(self._work)

    async def _work(self) -> Refusal | None:
        self.bug()
        return None


class BuggyAfter(Buggy):
    def after(self, call: Call, outcome: CallOutcome) -> CallOutcome:
        self.bug()
        return outcome


class BuggyObserver(BuggyAfter):
    observes_only = True


@pytest.mark.parametrize(
    ("buggy", "may_have_run"), [(BuggyBefore, False), (BuggyWork, False), (BuggyAfter, True)]
)
async def test_a_bug_in_an_interceptor_fails_one_call_of_a_program(
    buggy: type[Buggy], caplog: pytest.LogCaptureFixture, *, may_have_run: bool
) -> None:
    watch = Watch()
    async with workbench(buggy(), watch) as opened:
        with pytest.raises(CallFailed, match="an interceptor failed; see the log") as failure:
            await opened.use_tool(tool("a", "echo"))
        answer = json_text(await opened.use_tool(tool("a", "echo")))

    assert answer["name"] == "echo"
    assert failure.value.code == "internal"
    assert failure.value.may_have_run is may_have_run
    assert watch.seen.count("after Failed") == 1, "the others see how the call has ended"
    assert caplog.text.count("ZeroDivisionError: planted") == 1


async def test_a_call_that_an_interceptor_fails_to_look_at_is_not_sent() -> None:
    async with workbench(BuggyBefore()) as opened:
        with pytest.raises(CallFailed):
            await opened.use_tool(tool("a", "echo"))
        methods = json_text(await opened.use_tool(tool("a", "stats")))["methods"]

    assert methods.count("tools/call") == 1


async def test_a_bug_in_an_observer_costs_no_call_of_a_program(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watch = Watch()
    watch.observes_only = True
    async with workbench(BuggyObserver(times=2), watch) as opened:
        assert json_text(await opened.use_tool(tool("a", "echo")))["name"] == "echo"
        assert (await opened.use_tool(tool("a", "fail")))["isError"] is True

    assert watch.seen.count("after Completed") == 2, "the observers after it see the calls"
    assert caplog.text.count("ZeroDivisionError: planted") == 2


class StdioHost(MemoryHost):
    """A host whose lines are read as those on stdin are."""

    def __init__(self, *, modern: bool) -> None:
        super().__init__()
        self.modern = modern
        self.front: StdioFront | None = None

    async def request(self, id: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
        assert self.front is not None
        params = enveloped(params) if self.modern else params
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        self.front.receive(json.dumps(message).encode() + b"\n")
        return await self.answer(id)

    def answers(self) -> list[Any]:
        return [message["id"] for message in self.messages if "method" not in message]


@asynccontextmanager
async def stdio_host(*interceptors: Interceptor, modern: bool) -> AsyncGenerator[StdioHost]:
    host = StdioHost(modern=modern)
    async with (
        asyncio.timeout(PATIENCE),
        Gateway(snapshot(spec("a")), interceptors=interceptors) as gateway,
        task_scope() as requests,
    ):
        session = HostSession(gateway.view, host, requests, ToolView(gateway.view, ()))
        host.front = StdioFront(session, host, gateway.snapshot.limits.message_bytes)
        if not modern:
            await host.request(0, "initialize", INITIALIZE)
            host.take()
        yield host


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("buggy", [BuggyBefore, BuggyWork, BuggyAfter])
async def test_a_host_gets_one_error_for_the_call_that_a_bug_fails(
    buggy: type[Buggy], *, modern: bool
) -> None:
    async with stdio_host(buggy(times=2), modern=modern) as host:
        first = await host.request(1, "tools/call", use_tool("a", "echo"))
        failed = await host.request(2, "tools/call", use_tool("a", "fail"))
        last = await host.request(3, "tools/call", use_tool("a", "echo"))

        assert host.answers() == [1, 2, 3], "each call has one answer"
    assert [error_code(answer["result"]) for answer in (first, failed)] == ["internal", "internal"]
    assert json_text(last["result"])["name"] == "echo"


@pytest.mark.parametrize("modern", [False, True])
async def test_a_host_gets_its_answer_once_whatever_observers_do(*, modern: bool) -> None:
    async with stdio_host(BuggyObserver(times=3), modern=modern) as host:
        first = await host.request(1, "tools/call", use_tool("a", "echo"))
        failed = await host.request(2, "tools/call", use_tool("a", "fail"))
        unknown = await host.request(3, "tools/call", use_tool("a", "nope"))
        last = await host.request(4, "tools/call", use_tool("a", "echo"))

        assert host.answers() == [1, 2, 3, 4], "each call has one answer"
    assert json_text(first["result"])["name"] == "echo"
    assert failed["result"]["isError"] is True
    assert error_code(unknown["result"]) == "unknown_tool"
    assert json_text(last["result"])["name"] == "echo"
