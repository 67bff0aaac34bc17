"""Where a connection stands; each state carries what only it has."""

import msgspec

from mcp_workbench.downstream.trials import Trial
from mcp_workbench.era.negotiate import Agreed


class Connecting(msgspec.Struct, frozen=True):
    """Being started and met."""

    since: float


class Ready(msgspec.Struct, frozen=True):
    """Takes calls."""

    agreed: Agreed
    seconds: float  # how long that took


class Closed(msgspec.Struct, frozen=True):
    """Over; a new connection has to be begun, and may be from a certain time on."""

    reason: str
    trial: Trial = Trial()

    def told(self, now: float) -> str:
        """The reason as a user reads it, with the time of the next try where that has to wait."""
        return self.reason + self.trial.told(now)


class Ended(Exception):
    """The connection is over; the text is the reason that a user reads."""
