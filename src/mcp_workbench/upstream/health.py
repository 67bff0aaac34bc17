"""Load and health of a connection: does it still answer, is it idle, can it take one more request?

All of it is read from the counters of its conversation, so a call pays nothing for it."""

from mcp_workbench.core.spec import Limits
from mcp_workbench.upstream.context import PoolContext
from mcp_workbench.upstream.conversation import Conversation

ALWAYS_ADMITTED = 64  # requests per server that limits.calls does not refuse


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
