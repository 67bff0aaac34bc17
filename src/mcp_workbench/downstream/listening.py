"""A standing request to a modern server, to be told of changes. One that ends is made again, slowly."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import msgspec

from mcp_workbench.downstream.conversation import Conversation
from mcp_workbench.downstream.listing import listen
from mcp_workbench.era.ourselves import OURSELVES
from mcp_workbench.timing import pause
from mcp_workbench.wire import envelope

SHORTEST, LONGEST = pause(1.0), pause(60.0)  # seconds before it is made again
LASTED = 30.0  # seconds after which it counts as sound
ACK_SECONDS = 5.0  # for a server to say that it has heard us; a slower one is believed
FOR_GOOD = (envelope.METHOD_NOT_FOUND, envelope.INVALID_PARAMS, envelope.INVALID_REQUEST)


def refuses(error: msgspec.Raw | bytes) -> bool:
    """Would the server say the same to the same request tomorrow?"""
    return envelope.read_error(msgspec.Raw(error)).code in FOR_GOOD


class Listening:
    """What is wanted, under ever new numbers; `missed` is called after each gap."""

    def __init__(
        self,
        talk: Conversation,
        wanted: dict[str, object],
        missed: Callable[[], None],
        replaces: Listening | None = None,
    ) -> None:
        self.number = 0
        self.deaf = False  # at present the server tells us nothing
        self._talk = talk
        self._wanted = wanted
        self._missed = missed
        self._replaces = replaces  # it ends when this one is acknowledged: nothing falls between
        self._failures = 0
        self._began = 0.0
        self._heard = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._ask()

    def _ask(self) -> None:
        self._timer = None
        if self._talk.over:
            return
        self._began = time.monotonic()
        self.number = listen(self._talk, OURSELVES, self._wanted)
        self._talk.lasting[self.number] = self

    async def heard(self) -> None:
        """Wait until the server has acknowledged it, within reason."""
        try:
            async with asyncio.timeout(ACK_SECONDS):
                await self._heard.wait()
        except TimeoutError:
            self._end_replaced()

    def acknowledged(self) -> None:
        self._heard.set()
        self._end_replaced()
        if self.deaf:
            self.deaf = False
            self._missed()

    def ended(self, error: msgspec.Raw | bytes) -> None:
        self.deaf = True
        if error and refuses(error):
            return
        now = time.monotonic()
        self._failures = 0 if now - self._began > LASTED else self._failures + 1
        delay = min(SHORTEST * 2 ** min(max(self._failures - 1, 0), 6), LONGEST)
        self._timer = asyncio.get_running_loop().call_later(delay, self._ask)

    def interrupted(self) -> None:
        self.deaf = True

    def _end_replaced(self) -> None:
        if self._replaces is not None:
            self._replaces.end()
            self._replaces = None

    def end(self) -> None:
        """Nobody wants it any more, or another has taken its place."""
        self._end_replaced()
        if self._timer is not None:
            self._timer.cancel()
        if self._talk.lasting.pop(self.number, None) is not None:
            self._talk.tell_cancelled(self.number, "a newer subscription replaces this one")
