"""The seam around every call: an interceptor sees it before it is sent and when it has ended."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

import msgspec

from mcp_workbench.core.errors import CallFailed, WorkbenchError

if TYPE_CHECKING:
    from mcp_workbench.gateway.calls import Call


log = logging.getLogger(__name__)

# How a call can end. Exactly one of these.


class Completed(msgspec.Struct, frozen=True):
    """The server's result, in the era of the host. It may be that of a failed tool (`isError`)."""

    result: msgspec.Raw | bytes


class Rejected(msgspec.Struct, frozen=True):
    """The server's own JSON-RPC error, and a hint that goes with it; or ours, for a wrong request."""

    error: msgspec.Raw
    hint: str = ""
    is_ours: bool = False


class Failed(msgspec.Struct, frozen=True):
    """There is no answer of the server: it was not sent, or got lost."""

    error: WorkbenchError


class Cancelled(msgspec.Struct, frozen=True):
    """Its sender does not want it any more; nobody is answered."""

    reason: str


CallOutcome = Completed | Rejected | Failed | Cancelled


# What an interceptor can decide before a call is sent.


class Refusal(msgspec.Struct, frozen=True):
    """Do not send it; its sender gets this error."""

    error: WorkbenchError


class Wait(msgspec.Struct, frozen=True):
    """Do not send it before this is done; what it returns decides."""

    work: Callable[[], Awaitable[Refusal | None]]


class Interceptor:
    """Looks at calls. A subclass overrides one of the two methods, or both."""

    failures_only = False  # `after` does nothing with a result whose tool has not failed
    observes_only = False  # `after` changes no outcome: it is called when the answer has been sent

    def before(self, call: Call) -> Refusal | Wait | None:
        """Called when the call is about to be sent on `call.route`; None lets it pass."""
        return None

    def after(self, call: Call, outcome: CallOutcome) -> CallOutcome:
        """Called once, when the call has ended; returns the outcome that its sender gets."""
        return outcome

    def close(self) -> None:
        """Called when the gateway closes: no call will come any more."""


# An interceptor may be anybody's code: a bug in it fails one call, and answers nobody twice.


def decide(interceptor: Interceptor, call: Call) -> Refusal | Wait | None:
    """What it decides before the call is sent."""
    try:
        return interceptor.before(call)
    except Exception:
        log.exception("%r failed before a call", interceptor)
        return Refusal(_failed(call, may_have_run=False))


async def decide_later(interceptor: Interceptor, call: Call, wait: Wait) -> Refusal | None:
    """What its work decides, once that is done."""
    try:
        return await wait.work()
    except WorkbenchError as error:
        return Refusal(error)
    except Exception:
        log.exception("%r failed before a call", interceptor)
        return Refusal(_failed(call, may_have_run=False))


def change(interceptor: Interceptor, call: Call, outcome: CallOutcome) -> CallOutcome:
    """The outcome as it returns it."""
    try:
        return interceptor.after(call, outcome)
    except Exception:
        log.exception("%r failed after a call", interceptor)
        return Failed(_failed(call, may_have_run=True))


def observe(observers: tuple[Interceptor, ...], call: Call, outcome: CallOutcome) -> None:
    """Show them the outcome, which has been delivered."""
    for observer in observers:
        try:
            observer.after(call, outcome)
        except Exception:
            log.exception("%r failed after a call", observer)


def _failed(call: Call, *, may_have_run: bool) -> CallFailed:
    reason = "an interceptor failed; see the log"
    return CallFailed("internal", call.request.tool, reason, may_have_run=may_have_run)


def with_before(interceptors: Iterable[Interceptor]) -> tuple[Interceptor, ...]:
    """Those that look at a call before it is sent."""
    return tuple(i for i in interceptors if type(i).before is not Interceptor.before)


def with_after(
    interceptors: Iterable[Interceptor],
) -> tuple[tuple[Interceptor, ...], tuple[Interceptor, ...]]:
    """Those that look at a call when it has ended: who may change its outcome, who only observes."""
    looking = [i for i in interceptors if type(i).after is not Interceptor.after]
    changing = tuple(i for i in looking if not i.observes_only)
    return changing, tuple(i for i in looking if i.observes_only)
