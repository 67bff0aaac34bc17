"""What there is to say about a code that we print."""

import msgspec


class Explanation(msgspec.Struct, frozen=True):
    """What `explain CODE` shows."""

    title: str
    meaning: str
    remedy: str
