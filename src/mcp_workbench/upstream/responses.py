"""Whoever waits for a server's answer, and what they are told where none will come."""

import asyncio
from typing import Protocol

import msgspec

from mcp_workbench.wire.envelope import Outcome


class Loss(msgspec.Struct, frozen=True):
    """Why a request has no answer, and whether its server may have acted on it."""

    code: str
    reason: str
    may_have_run: bool = True
    retry_after: float | None = None  # seconds for which the server wants to be left alone

    @classmethod
    def of_call(
        cls, code: str, reason: str, *, may_have_run: bool, retry_after: float | None = None
    ) -> "Loss":
        """The reason says as well whether the call ran: may it be made again?"""
        ran = "the call may have run" if may_have_run else "the call did not run"
        return cls(code, f"{reason}; {ran}", may_have_run, retry_after)


class Lost(Exception):
    """A request of our own has no answer."""

    def __init__(self, loss: Loss) -> None:
        super().__init__(loss.reason)
        self.loss = loss


class Waiter(Protocol):
    """Whoever sent a request: exactly one of `settled` and `lost` is called."""

    def settled(self, answer: Outcome) -> None: ...
    def lost(self, loss: Loss) -> None: ...
    def progressed(self, params: msgspec.Raw) -> None: ...

    suspended = False  # it waits for its host, which is being asked something

    @property
    def asker(self) -> object:
        """The host on whose behalf it waits, if there is one."""
        return None

    def give_way(self) -> bool:
        """Give up waiting, if nobody is there to be told."""
        return False


class FutureWaiter(Waiter):
    """Lets a task await an answer."""

    def __init__(self) -> None:
        self.future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def settled(self, answer: Outcome) -> None:
        if not self.future.done():
            self.future.set_result(answer)

    def lost(self, loss: Loss) -> None:
        if not self.future.done():
            self.future.set_exception(Lost(loss))

    def progressed(self, params: msgspec.Raw) -> None:
        """Nobody asked for it."""


class Lasting(Protocol):
    """A request that is answered only when the server ends it, if ever."""

    def ended(self, error: msgspec.Raw | bytes) -> None:
        """The server has ended it, by an error or without one."""
        ...

    def interrupted(self) -> None:
        """The road has lost it, and takes it up again by itself."""
        ...
