"""What an error code means."""

import msgspec


class Explanation(msgspec.Struct, frozen=True):
    """What `explain CODE` shows."""

    title: str
    meaning: str
    remedy: str
