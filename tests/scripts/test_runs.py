"""One script and its calls, without a host: what runs at the same time, and how its clock goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import msgspec
import pytest

from mcp_workbench.core import script_slots
from mcp_workbench.core.spec import ToolIdentifier
from mcp_workbench.gateway import script_worker
from mcp_workbench.gateway.interceptors import Completed
from mcp_workbench.gateway.script_worker import ScriptsUnavailable, ScriptWorker
from mcp_workbench.gateway.scripts import (
    CallEnd,
    ScriptFailed,
    ScriptLimits,
    ScriptRun,
    ScriptSource,
)
from mcp_workbench.transport.tasks import task_scope
from tests.kit.clock import PATIENCE, until

DONE = CallEnd(Completed(b'{"content":[{"type":"text","text":"1"}]}'))
MANY = "sum(await asyncio.gather(*[call('a/b/c', n=n) for n in range(20)]))"


@asynccontextmanager
async def worker() -> AsyncGenerator[ScriptWorker]:
    async with asyncio.timeout(PATIENCE), task_scope() as scope:
        yield ScriptWorker(scope.start)


async def no_call(tool: ToolIdentifier, arguments: msgspec.Raw, _number: int) -> CallEnd:
    raise AssertionError(tool)


async def test_at_most_eight_calls_run_at_the_same_time() -> None:
    running, most = 0, 0
    counts: list[int] = []

    async def make(tool: ToolIdentifier, arguments: msgspec.Raw, _number: int) -> CallEnd:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return DONE

    async with worker() as scripts:
        run = ScriptRun(
            scripts, ScriptSource(MANY), ScriptLimits(), make, lambda count, _: counts.append(count)
        )
        answer = await run.answer()

    assert answer.text == "20"
    assert most == 8
    assert counts == list(range(1, 21))


async def test_the_clock_stands_still_while_a_person_is_asked() -> None:
    asked, answered = asyncio.Event(), asyncio.Event()
    runs: list[ScriptRun] = []

    async def make(tool: ToolIdentifier, arguments: msgspec.Raw, _number: int) -> CallEnd:
        proceed = runs[0].clock.pause()
        asked.set()
        await answered.wait()
        proceed()
        proceed()  # a question can be answered and withdrawn
        return DONE

    async with worker() as scripts, task_scope() as scope:
        await ScriptRun(
            scripts, ScriptSource("1"), ScriptLimits(), no_call
        ).answer()  # loads the interpreter
        limits = ScriptLimits(total=2.0)
        runs.append(ScriptRun(scripts, ScriptSource("await call('a/b/c')"), limits, make))
        answer = scope.start(runs[0].answer(), "script")
        await asked.wait()
        loop = asyncio.get_running_loop()
        long_after = loop.time() + 2.5
        await until(lambda: loop.time() > long_after)
        answered.set()

        assert (await answer).text == "1"


async def test_a_script_that_waits_too_long_is_ended_and_its_calls_are_cancelled() -> None:
    cancelled = asyncio.Event()

    async def make(tool: ToolIdentifier, arguments: msgspec.Raw, _number: int) -> CallEnd:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return DONE

    async with worker() as scripts:
        await ScriptRun(scripts, ScriptSource("1"), ScriptLimits(), no_call).answer()
        run = ScriptRun(scripts, ScriptSource("await call('a/b/c')"), ScriptLimits(total=2.0), make)
        with pytest.raises(ScriptFailed) as failed:
            await run.answer()

    assert cancelled.is_set()
    assert failed.value.code == "script_limit"
    assert "limit 'total'" in failed.value.message
    assert "- line 1: a/b/c: cancelled, may have run" in failed.value.hint


async def test_calls_that_nobody_waits_for_any_more_are_cancelled_and_listed() -> None:
    cancelled = asyncio.Event()

    async def make(tool: ToolIdentifier, arguments: msgspec.Raw, _number: int) -> CallEnd:
        if tool.tool == "fails":
            return CallEnd(Completed(b'{"content":[],"isError":true}'))
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return DONE

    async with worker() as scripts:
        code = "await asyncio.gather(call('a/b/waits'), call('a/b/fails'))"
        with pytest.raises(ScriptFailed) as failed:
            await ScriptRun(scripts, ScriptSource(code), ScriptLimits(), make).answer()

    assert cancelled.is_set()
    assert [call.state for call in failed.value.calls] == ["cancelled, may have run", "failed"]


async def test_too_many_scripts_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script_slots, "MOST_SCRIPTS", 2)
    release = asyncio.Event()

    async def make(tool: ToolIdentifier, arguments: msgspec.Raw, _number: int) -> CallEnd:
        await release.wait()
        return DONE

    async with worker() as scripts, task_scope() as scope:
        code, limits = "await call('a/b/c')", ScriptLimits()
        first = [
            scope.start(ScriptRun(scripts, ScriptSource(code), limits, make).answer(), "script")
            for _ in range(2)
        ]
        await asyncio.sleep(0)
        with pytest.raises(ScriptsUnavailable) as refused:
            await ScriptRun(scripts, ScriptSource(code), limits, make).answer()
        release.set()

        assert [(await one).text for one in first] == ["1", "1"]
        assert (await ScriptRun(scripts, ScriptSource(code), limits, make).answer()).text == "1"
    assert "Nothing was done" in refused.value.hint


async def test_the_process_ends_after_a_while_without_scripts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(script_worker, "IDLE", 0.01)
    async with worker() as scripts:
        await ScriptRun(scripts, ScriptSource("1"), ScriptLimits(), no_call).answer()
        first = scripts.pid
        await until(lambda: scripts.pid == 0)
        answer = await ScriptRun(scripts, ScriptSource("2"), ScriptLimits(), no_call).answer()

        assert answer.text == "2"
        assert scripts.pid != first


async def test_a_process_that_cannot_be_started_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(script_worker, "ENGINE", "mcp_workbench.nothing")
    async with worker() as scripts:
        with pytest.raises(ScriptsUnavailable, match="No module named"):
            await ScriptRun(scripts, ScriptSource("1"), ScriptLimits(), no_call).answer()
