"""Interceptors: objects that see every call before it is sent and after it has ended."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from mcp_workbench.core.errors import CallFailed, WorkbenchError
from mcp_workbench.transport.jsonrpc import ErrorObject, read_error

if TYPE_CHECKING:
    from mcp_workbench.gateway.calls import Call


log = logging.getLogger(__name__)

# Outcomes: each call has exactly one


class Completed(msgspec.Struct, frozen=True):
    """The server's result in the era of the host, perhaps of a failed tool (`isError`)."""

    result: msgspec.Raw | bytes


class Relayed(Completed, frozen=True, gc=False):
    """A result that was delivered as it is, of a tool that has not failed: nobody need look at it again."""


class Rejected(msgspec.Struct, frozen=True):
    """A JSON-RPC error: the server's own, perhaps with a hint, or ours for an invalid request."""

    error: msgspec.Raw
    hint: str = ""
    is_ours: bool = False
    about: ErrorObject | None = None  # what was read of it: a large one takes long

    def read(self) -> ErrorObject:
        return read_error(self.error) if self.about is None else self.about


class Failed(msgspec.Struct, frozen=True):
    """There is no answer from the server: the call was not sent, or was lost."""

    error: WorkbenchError


class Cancelled(msgspec.Struct, frozen=True):
    """Its sender has cancelled it, and gets no answer."""

    reason: str


CallOutcome = Completed | Rejected | Failed | Cancelled


# Decisions before a call is sent


class Refusal(msgspec.Struct, frozen=True):
    """Do not send the call; its sender gets this error."""

    error: WorkbenchError


class Wait(msgspec.Struct, frozen=True):
    """Send the call when this work is done, unless it returns a refusal."""

    work: Callable[[], Awaitable[Refusal | None]]


class EndCall(msgspec.Struct, frozen=True):
    """Do not send the call; this is its outcome."""

    outcome: CallOutcome


Decision = Refusal | Wait | EndCall | None


class Interceptor:
    """Looks at calls. A subclass overrides one of the two methods, or both."""

    checks_again = False  # `before` is also called when its own wait is over
    failures_only = False  # `after` ignores results of tools that have not failed
    observes_only = False  # `after` changes no outcome: it is called after the answer was sent
    records = False  # likewise, but right before the answer is sent

    def before(self, call: Call) -> Decision:
        """Called when the call is about to be sent on `call.route`; None lets it pass."""
        return None

    def after(self, call: Call, outcome: CallOutcome) -> CallOutcome:
        """Called once, after the call has ended; returns the outcome that its sender gets."""
        return outcome

    def close(self) -> None:
        """Called when the gateway closes: no more calls follow."""


# Running interceptors: a bug in one fails one call, and no call is answered twice


def decide(interceptor: Interceptor, call: Call) -> Decision:
    """Return what the interceptor decides before the call is sent."""
    try:
        return interceptor.before(call)
    except Exception:
        log.exception("%r failed before a call", interceptor)
        return Refusal(_failed(call, may_have_run=False))


async def decide_later(interceptor: Interceptor, call: Call, wait: Wait) -> Refusal | None:
    """Await the interceptor's work, and return what it decides."""
    try:
        return await wait.work()
    except WorkbenchError as error:
        return Refusal(error)
    except Exception:
        log.exception("%r failed before a call", interceptor)
        return Refusal(_failed(call, may_have_run=False))


def change(interceptor: Interceptor, call: Call, outcome: CallOutcome) -> CallOutcome:
    """Return the outcome as the interceptor changes it."""
    try:
        return interceptor.after(call, outcome)
    except Exception:
        log.exception("%r failed after a call", interceptor)
        return Failed(_failed(call, may_have_run=True))


def observe(observers: tuple[Interceptor, ...], call: Call, outcome: CallOutcome) -> None:
    """Show these interceptors the outcome, which they do not change."""
    for observer in observers:
        try:
            observer.after(call, outcome)
        except Exception:
            log.exception("%r failed after a call", observer)


def _failed(call: Call, *, may_have_run: bool) -> CallFailed:
    reason = "an interceptor failed; see the log"
    return CallFailed("internal", call.request.tool, reason, may_have_run=may_have_run)


def with_before(interceptors: Iterable[Interceptor]) -> tuple[Interceptor, ...]:
    """Return those that look at a call before it is sent."""
    return tuple(i for i in interceptors if type(i).before is not Interceptor.before)


class AfterCall(NamedTuple):
    """Those that look at a call after it has ended, in this order."""

    after: tuple[Interceptor, ...]  # may change the outcome
    recorders: tuple[Interceptor, ...]
    observers: tuple[Interceptor, ...]


def with_after(interceptors: Iterable[Interceptor]) -> AfterCall:
    """Return those that look at a call after it has ended."""
    looking = [i for i in interceptors if type(i).after is not Interceptor.after]
    changing = tuple(i for i in looking if not (i.observes_only or i.records))
    recording = tuple(i for i in looking if i.records)
    return AfterCall(changing, recording, tuple(i for i in looking if i.observes_only))
