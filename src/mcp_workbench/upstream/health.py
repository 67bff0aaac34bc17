"""Health of servers: backoff after failures, timeouts and idle time, and limits on requests.

Load and health of a connection are read from the counters of its conversation, so a call pays nothing
for them.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from mcp_workbench.core.spec import Limits, ServerSpec
from mcp_workbench.timing import pause
from mcp_workbench.upstream.conversation import Conversation

if TYPE_CHECKING:
    from mcp_workbench.upstream.connection import PoolContext

# A server that ran this long, or answered this often, worked: its exit resets the backoff.
STEADY = 10.0  # seconds
WORKED = 10  # answers
FIRST_PAUSE = pause(0.5)  # seconds after the second failure in a row; doubled by each further one
LONGEST_PAUSE = 60.0
OPEN_AFTER = 5  # failures in a row, after which the circuit breaker opens
SPREAD = 0.2  # share of a pause that is random: clients of one server do not all retry at once
PATIENCE = pause(2.0)  # seconds that a call waits for the next attempt instead of failing
ALWAYS_ADMITTED = 64  # requests per server that limits.calls does not refuse


# Backoff: when a server that failed may be started again


class RetryState(msgspec.Struct, frozen=True):
    """How often a server failed in a row, and when the next attempt is due."""

    failures: int = 0
    not_before: float = 0.0
    reason: str = ""  # of the last failure
    by_server: bool = False  # the server itself named the time (Retry-After)
    wants_login: bool = False  # a person has to sign in first: until then, each attempt fails

    @property
    def code(self) -> str:
        if self.wants_login:
            return "needs_login"
        return "rate_limited" if self.by_server else "connect_failed"

    def left(self, now: float) -> float | None:
        """Seconds until the next attempt; None where it is due, or so soon that calls wait for it."""
        left = self.not_before - now
        return left if left > (0 if self.by_server else PATIENCE) else None

    @property
    def is_open(self) -> bool:
        """Is the circuit breaker open: one attempt at a time, long pauses between them?"""
        return self.failures >= OPEN_AFTER and not self.wants_login

    def log_line(self, reason: str) -> str:
        """What to log about the last failure; empty for one that is like those before."""
        if self.failures == OPEN_AFTER and not self.wants_login:
            retry = f"it is tried again after {LONGEST_PAUSE:g} s at most"
            return f"it keeps failing, {OPEN_AFTER} times in a row: {reason}; {retry}"
        return reason if self.failures < 2 else ""

    def describe(self, now: float) -> str:
        """The time of the next attempt, to append to a reason; empty where it is due."""
        left = self.left(now)
        if left is None:
            return ""
        if self.by_server:
            return f"; try again in {math.ceil(left)} s"
        return f"; it failed {self.failures} times in a row, next try in {math.ceil(left)} s"


def _random() -> float:
    return os.urandom(1)[0] / 255


class Backoff:
    """The servers that failed lately. A server whose configuration changes starts from zero."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, random: Callable[[], float] = _random
    ) -> None:
        self._clock = clock
        self._random = random
        self._states: dict[tuple[object, object], RetryState] = {}

    def of(self, spec: ServerSpec) -> RetryState:
        return self._states.get((spec.key, spec.target), RetryState())

    def forget(self, spec: ServerSpec) -> None:
        """The next attempt is due at once."""
        self._states.pop((spec.key, spec.target), None)

    def wants_login(self, spec: ServerSpec, reason: str) -> RetryState:
        """Record that a person has to sign in. The next attempt is due at once: that may have happened."""
        failures = self.of(spec).failures + 1
        state = RetryState(failures, reason=reason, wants_login=True)
        self._states[spec.key, spec.target] = state
        return state

    def ended(
        self,
        spec: ServerSpec,
        lived: float,
        answered: int,
        reason: str = "",
        closed_until: float = 0.0,
    ) -> RetryState:
        """Record that a server exited by itself, so many seconds and responses after it was ready."""
        steady = lived >= STEADY or answered >= WORKED
        failures = 0 if steady else self.of(spec).failures + 1
        due = self._clock() + pause_after(failures, self._random())
        state = RetryState(failures, max(due, closed_until), reason, closed_until > due)
        if failures:
            self._states[spec.key, spec.target] = state
        else:
            self._states.pop((spec.key, spec.target), None)
        return state


def pause_after(failures: int, drawn: float) -> float:
    """Seconds until the next attempt. The first is immediate: a server that was killed comes back at once."""
    if failures < 2:
        return 0.0
    seconds = min(FIRST_PAUSE * 2.0 ** min(failures - 2, 30), LONGEST_PAUSE)
    return seconds * (1 - SPREAD * drawn)


# Load and health of one connection


class Health:
    """Timeouts and idle time of one connection."""

    def __init__(self) -> None:
        self._timeouts = 0  # since it last answered
        self._answered = 0  # by the time of the last timeout
        self._counters = (-1, 0)  # requests sent and pending, at the last check
        self._since = 0.0  # when those counters were first seen

    def timed_out(self, conversation: Conversation) -> None:
        answered = conversation.answered
        self._timeouts = self._timeouts + 1 if answered == self._answered else 1
        self._answered = answered

    def problem(self, conversation: Conversation) -> str:
        """Why the server counts as degraded; empty where it answers."""
        if not self._timeouts or conversation.answered > self._answered:
            return ""
        calls = "its last call" if self._timeouts == 1 else f"its last {self._timeouts} calls"
        return f"degraded: {calls} timed out, and it has not answered since"

    def unused_for(self, conversation: Conversation, now: float) -> float:
        """Seconds since its last request or response, as precise as the interval between two checks."""
        counters = (conversation.pending.given, conversation.pending.count)
        if counters != self._counters or conversation.pending.count:
            self._counters, self._since = counters, now
        return now - self._since


def is_full(conversation: Conversation, context: PoolContext) -> bool:
    """Has the connection reached a limit, so that one more request is refused?"""
    limits, count = context.limits, conversation.pending.count
    return (
        count >= limits.calls_per_server
        or conversation.channel.backlog > limits.queue_bytes
        or (count >= ALWAYS_ADMITTED and context.crowded())
    )


def overload_reason(conversation: Conversation, limits: Limits) -> str:
    """Which limit a full connection has reached."""
    count, backlog = conversation.pending.count, conversation.channel.backlog
    if count >= limits.calls_per_server:
        return f"the server is busy: {count} calls are in flight (limits.callsPerServer)"
    if backlog > limits.queue_bytes:
        return f"the server is busy: {backlog} bytes wait (limits.queueBytes)"
    return f"the workbench is busy: {limits.calls} calls are in flight in all (limits.calls)"
