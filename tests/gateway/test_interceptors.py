"""An interceptor sees every call: it lets it pass, refuses it, has it wait, and changes what comes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from mcp_workbench.core.errors import InvalidCall, WorkbenchError
from mcp_workbench.core.spec import Snapshot
from mcp_workbench.gateway.calls import Call
from mcp_workbench.gateway.interceptors import (
    CallOutcome,
    Completed,
    Interceptor,
    Refusal,
    Wait,
)
from tests.kit.clock import PATIENCE
from tests.kit.config import snapshot, spec, tool
from tests.kit.inside import InsideWorkbench
from tests.kit.results import json_text

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
