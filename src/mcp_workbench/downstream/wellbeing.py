"""How a live server does: whether it still answers, and for how long nobody has used it.

Read off the numbers of its requests, so that a call pays nothing for it."""

from mcp_workbench.downstream.conversation import Conversation


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
