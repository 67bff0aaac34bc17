"""Tasks end with their block, and a failing one harms no other."""

import asyncio
import contextvars
import logging
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from mcp_workbench.transport.tasks import (
    Lifetime,
    TaskScope,
    comes_within,
    completed,
    task_scope,
)

LIMIT = 10.0


async def for_ever(ended: list[str], name: str) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        ended.append(name)


async def test_leaving_the_block_cancels_and_sees_out_what_still_runs() -> None:
    ended: list[str] = []

    async with asyncio.timeout(LIMIT), task_scope() as scope:
        for name in "ab":
            scope.start(for_ever(ended, name), name)
        await asyncio.sleep(0)

    assert sorted(ended) == ["a", "b"]
    assert len(scope) == 0


async def test_clean_up_that_waits_is_waited_for() -> None:
    done: list[str] = []

    async def slow_to_leave() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            done.append("clean")

    async with asyncio.timeout(LIMIT), task_scope() as scope:
        scope.start(slow_to_leave(), "slow")
        await asyncio.sleep(0)

    assert done == ["clean"]


async def test_a_failing_task_is_logged_and_its_neighbours_live_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail() -> None:
        raise ValueError("odd")

    async with asyncio.timeout(LIMIT), task_scope() as scope:
        neighbour = scope.start(asyncio.Event().wait(), "neighbour")
        failing = scope.start(fail(), "failing")
        await asyncio.wait([failing])
        assert not neighbour.done()

    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "failing failed: ValueError('odd')" in caplog.text


async def test_an_error_of_the_block_itself_comes_out_plain() -> None:
    ended: list[str] = []

    async def failing_block() -> None:
        async with asyncio.timeout(LIMIT), task_scope() as scope:
            scope.start(for_ever(ended, "a"), "a")
            await asyncio.sleep(0)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await failing_block()

    assert ended == ["a"]


async def test_a_task_carries_nothing_of_who_started_it() -> None:
    request = contextvars.ContextVar("request", default="none")
    request.set("first")
    seen: list[str] = []

    async def look() -> None:
        seen.append(request.get())

    async with asyncio.timeout(LIMIT), task_scope() as scope:
        await scope.start(look(), "look")

    assert seen == ["none"]


async def test_being_cancelled_while_ending_still_sees_everyone_out() -> None:
    ended: list[str] = []
    leaving = asyncio.Event()

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            leaving.set()
            with_patience = asyncio.Event()
            try:
                async with asyncio.timeout(LIMIT):
                    await with_patience.wait()
            finally:
                ended.append("stubborn")

    async def owner() -> None:
        async with task_scope() as scope:
            scope.start(stubborn(), "stubborn")
            await asyncio.sleep(0)

    async with asyncio.timeout(LIMIT):
        async with task_scope() as outer:
            task = outer.start(owner(), "owner")
            await leaving.wait()
            task.cancel()
            await asyncio.wait([task])

        assert ended == ["stubborn"]
        assert task.cancelled()


async def test_a_lifetime_is_one_generator_entered_and_left() -> None:
    steps: list[str] = []

    class Thing(Lifetime):
        def _life(self) -> AbstractAsyncContextManager[None]:
            return self._open()

        @asynccontextmanager
        async def _open(self) -> AsyncGenerator[None]:
            steps.append("in")
            try:
                yield
            finally:
                steps.append("out")

    async def failing_block() -> None:
        async with Thing() as thing:
            steps.append(type(thing).__name__)
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        await failing_block()

    assert steps == ["in", "Thing", "out"]


async def test_an_empty_scope_ends_at_once() -> None:
    async with asyncio.timeout(LIMIT):
        await TaskScope().end()


async def test_a_task_that_was_cancelled_can_wait_for_an_event() -> None:
    came: list[bool] = []

    async def leaving() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            came.append(await comes_within(asyncio.Event(), 0.01))  # nobody sets it
            there = asyncio.Event()
            there.set()
            came.append(await comes_within(there, LIMIT))

    async with asyncio.timeout(LIMIT), task_scope() as scope:
        scope.start(leaving(), "leaving")
        await asyncio.sleep(0)

    assert came == [False, True]


async def test_work_that_must_not_be_interrupted_gives_its_result() -> None:
    async def work() -> str:
        await asyncio.sleep(0)
        return "done"

    assert await completed(work()) == "done"


@pytest.mark.parametrize("fails", [False, True])
async def test_a_cancellation_waits_until_such_work_has_ended(fails: bool) -> None:
    go, ended = asyncio.Event(), list[str]()

    async def work() -> None:
        await go.wait()
        ended.append("work")
        if fails:
            raise ValueError("nobody hears of it")

    async with asyncio.timeout(LIMIT):
        waiting = asyncio.ensure_future(completed(work()))
        for _ in range(2):
            await asyncio.sleep(0)
            waiting.cancel()
        await asyncio.sleep(0)
        assert not waiting.done()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    assert ended == ["work"]


async def test_a_scope_whose_end_is_cancelled_twice_is_given_up() -> None:
    go, began = asyncio.Event(), asyncio.Event()

    async def stubborn() -> None:
        while not go.is_set():
            try:
                began.set()
                await go.wait()
            except asyncio.CancelledError:
                continue

    async with asyncio.timeout(LIMIT):
        scope = TaskScope()
        scope.start(stubborn(), "stubborn")
        await began.wait()
        ending = asyncio.ensure_future(scope.end())
        for left in (False, True):
            await asyncio.sleep(0)
            ending.cancel()
            await asyncio.wait([ending], timeout=0)
            await asyncio.sleep(0)
            assert ending.done() is left
        assert len(scope) == 1
        go.set()
        await scope.end()

    assert ending.cancelled()
