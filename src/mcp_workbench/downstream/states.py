"""Where a connection stands; each state carries what only it has."""

import msgspec

from mcp_workbench.era.negotiate import Agreed


class Connecting(msgspec.Struct, frozen=True):
    """Being started and met."""

    since: float


class Ready(msgspec.Struct, frozen=True):
    """Takes calls."""

    agreed: Agreed
    seconds: float  # how long that took


class Closed(msgspec.Struct, frozen=True):
    """Over; a new connection has to be begun."""

    reason: str


class Ended(Exception):
    """The connection is over; the text is the reason that a user reads."""
