"""How a live server does: whether it still answers, and for how long nobody has used it.

Read off the numbers of its requests, so that a call pays nothing for it.
Whether a server can take one more request. Beyond that the answer is no, at once and by name."""

from mcp_workbench.core.spec import Limits
from mcp_workbench.upstream.context import Surroundings
from mcp_workbench.upstream.conversation import Conversation


class Wellbeing:
    """What is noticed now and then about one conversation."""

    def __init__(self) -> None:
        self._timeouts = 0  # since it last answered
        self._answered = 0  # by the time of the last timeout
        self._seen = (-1, 0)  # the numbers at the last look, and who waited then
        self._since = 0.0  # when they were first seen

    def timed_out(self, talk: Conversation) -> None:
        answered = talk.answered
        self._timeouts = self._timeouts + 1 if answered == self._answered else 1
        self._answered = answered

    def complaint(self, talk: Conversation) -> str:
        """Empty where it answers."""
        if not self._timeouts or talk.answered > self._answered:
            return ""
        calls = "its last call" if self._timeouts == 1 else f"its last {self._timeouts} calls"
        return f"degraded: {calls} timed out, and it has not answered since"

    def unused_for(self, talk: Conversation, now: float) -> float:
        """Seconds since its last request or answer, as far as looking from time to time can tell."""
        seen = (talk.pending.given, talk.pending.count)
        if seen != self._seen or talk.pending.count:
            self._seen, self._since = seen, now
        return now - self._since


FEW = 64  # requests that a server may always have in flight, however many others have


def is_full(talk: Conversation, around: Surroundings) -> bool:
    limits, count = around.limits, talk.pending.count
    return (
        count >= limits.calls_per_server
        or talk.channel.backlog > limits.queue_bytes
        or (count >= FEW and around.crowded())
    )


def why_full(talk: Conversation, limits: Limits) -> str:
    count, backlog = talk.pending.count, talk.channel.backlog
    if count >= limits.calls_per_server:
        return f"the server is busy: {count} calls are in flight (limits.callsPerServer)"
    if backlog > limits.queue_bytes:
        return f"the server is busy: {backlog} bytes wait (limits.queueBytes)"
    return f"the workbench is busy: {limits.calls} calls are in flight in all (limits.calls)"
