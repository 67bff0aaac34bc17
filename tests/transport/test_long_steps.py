"""Long steps are taken one in each turn, and none keeps another from its turn."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from mcp_workbench.transport.long_steps import add_long_step, take_long_steps


class Taken:
    """Steps that note when they are taken; one may fail."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def steps(self, name: str, count: int, *, fails: bool = False) -> Iterator[None]:
        for number in range(count):
            self.names.append(f"{name}{number}")
            yield
        if fails:
            raise LookupError("a fault")


async def test_the_steps_of_several_alternate() -> None:
    taken = Taken()

    await asyncio.gather(take_long_steps(taken.steps("a", 3)), take_long_steps(taken.steps("b", 2)))

    assert taken.names == ["a0", "b0", "a1", "b1", "a2"]


async def test_a_step_that_fails_is_the_last_and_others_go_on() -> None:
    taken = Taken()
    loop = asyncio.get_running_loop()
    before, errors = loop.get_exception_handler(), list[Any]()
    loop.set_exception_handler(lambda _, context: errors.append(context["exception"]))

    await asyncio.gather(
        take_long_steps(taken.steps("a", 1, fails=True)), take_long_steps(taken.steps("b", 3))
    )

    loop.set_exception_handler(before)
    assert taken.names == ["a0", "b0", "b1", "b2"]
    assert [str(error) for error in errors] == ["a fault"]


async def test_nothing_is_taken_for_one_that_is_cancelled() -> None:
    taken = Taken()
    one = asyncio.ensure_future(take_long_steps(taken.steps("a", 100)))
    ended = asyncio.Event()
    await take_long_steps(taken.steps("b", 2))
    one.cancel()
    before = len(taken.names)

    add_long_step(ended.set)
    await ended.wait()

    assert len(taken.names) == before
