"""Requests that wait, each in a task of its own: a bug fails one of them, a cancelled one is silent."""

import asyncio

from mcp_workbench.server.host_calls import RequestTasks
from mcp_workbench.transport.tasks import task_scope
from tests.kit.clock import until

LIMIT = 15.0


async def fail() -> None:
    raise ZeroDivisionError


async def fail_when_cancelled(started: asyncio.Event) -> None:
    started.set()
    try:
        await asyncio.Event().wait()
    finally:
        raise ZeroDivisionError


async def test_a_bug_fails_its_own_request_only() -> None:
    failed: list[bytes] = []
    answered = asyncio.Event()

    async def answer() -> None:
        await until(lambda: failed != [])
        answered.set()

    async with asyncio.timeout(LIMIT), task_scope() as scope:
        tasks = RequestTasks(scope, failed.append)
        tasks.start(b"1", fail)
        tasks.start(b"2", answer)
        await answered.wait()

    assert failed == [b"1"]


async def test_a_cancelled_request_is_not_answered_whatever_it_raises() -> None:
    failed: list[bytes] = []
    started = asyncio.Event()
    async with asyncio.timeout(LIMIT), task_scope() as scope:
        tasks = RequestTasks(scope, failed.append)
        tasks.start(b"1", fail_when_cancelled, started)
        await started.wait()
        tasks.cancel(b"1")
        await until(lambda: len(scope) == 0)

    assert failed == []


async def test_an_id_may_be_used_again_while_its_cancelled_request_ends() -> None:
    failed: list[bytes] = []
    async with asyncio.timeout(LIMIT), task_scope() as scope:
        tasks = RequestTasks(scope, failed.append)
        tasks.start(b"1", fail)
        tasks.cancel(b"1")  # before its first step
        tasks.start(b"1", fail)
        await until(lambda: len(scope) == 0)

    assert failed == [b"1"]
