"""Long steps of a loop, such as the readings of messages above 4 MiB."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import ClassVar
from weakref import WeakKeyDictionary

_END = object()


class LongSteps:
    """Takes one long step in each turn of the loop, whoever they belong to.

    Otherwise the steps of several peers would follow each other at once, and everybody else would wait
    for all of them.
    """

    _of: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, LongSteps]] = WeakKeyDictionary()

    def __init__(self) -> None:
        self._steps: deque[Callable[[], None]] = deque()  # the first is called in the next turn

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> LongSteps:
        return cls._of.setdefault(loop, cls())

    def add(self, step: Callable[[], None]) -> None:
        """Call it in a later turn, after those that were added before."""
        self._steps.append(step)
        if len(self._steps) == 1:
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        try:
            self._steps[0]()
        finally:
            self._steps.popleft()
            if self._steps:
                asyncio.get_running_loop().call_soon(self._next)


def add_long_step(step: Callable[[], None]) -> None:
    """Call it in a later turn of the running loop, in which no other long step is taken."""
    LongSteps.of(asyncio.get_running_loop()).add(step)


async def take_long_steps(steps: Iterator[None]) -> None:
    """Take all of these, each as a long step. One that fails is the last; its error goes to the loop."""
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def take() -> None:
        if ended.done():  # nobody waits any more
            return
        is_last = True
        try:
            is_last = next(steps, _END) is _END
        finally:
            if is_last:
                ended.set_result(None)
            else:
                add_long_step(take)

    add_long_step(take)
    await ended
