"""Handlers of a server's responses, and the failures they get where no response comes."""

import asyncio
from typing import Protocol

import msgspec

from mcp_workbench.transport.jsonrpc import Outcome


class Failure(msgspec.Struct, frozen=True):
    """Why a request has no response, and whether its server may have acted on it."""

    code: str
    reason: str
    may_have_run: bool = True
    retry_after: float | None = None  # seconds that the server asks us to wait

    @classmethod
    def of_call(
        cls, code: str, reason: str, *, may_have_run: bool, retry_after: float | None = None
    ) -> "Failure":
        """A failure whose reason also says whether the call ran, and so whether to repeat it."""
        ran = "the call may have run" if may_have_run else "the call did not run"
        return cls(code, f"{reason}; {ran}", may_have_run, retry_after)


class RequestFailed(Exception):
    """A request has no response; `failure` says why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


class ResponseHandler(Protocol):
    """Gets the outcome of one request: either `settled` or `lost` is called, exactly once."""

    def settled(self, answer: Outcome) -> None: ...
    def lost(self, failure: Failure, /) -> None: ...
    def progressed(self, params: msgspec.Raw) -> None: ...

    suspended = False  # waits for its host to answer a question

    @property
    def asker(self) -> object:
        """The host that sent the request, if there is one."""
        return None

    def give_way(self) -> bool:
        """Give up the request if nobody waits for its outcome; was it given up?"""
        return False


class FutureResponse(ResponseHandler):
    """A response that a task awaits."""

    def __init__(self) -> None:
        self.future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def settled(self, answer: Outcome) -> None:
        if not self.future.done():
            self.future.set_result(answer)

    def lost(self, failure: Failure) -> None:
        if not self.future.done():
            self.future.set_exception(RequestFailed(failure))

    def progressed(self, params: msgspec.Raw) -> None:
        """Our own requests ask for no progress."""


class LongRequest(Protocol):
    """A request that stays open, such as `subscriptions/listen`: its response ends it."""

    def ended(self, error: msgspec.Raw | bytes) -> None:
        """The server ended it, with an error or without one."""
        ...

    def interrupted(self) -> None:
        """The link lost it and reopens it."""
        ...
