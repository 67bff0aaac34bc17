"""How much work foreign data may ask for. What would take more is not computed."""

TOO_COMPLEX = "too complex to explain"


class TooComplex(Exception):
    """This would take more steps than there are."""


class Steps:
    """So many steps, for one whole answer. A step is about a microsecond's work."""

    __slots__ = ("left",)

    def __init__(self, most: int) -> None:
        self.left = most

    def take(self, count: int = 1) -> None:
        """Call it before the work. Raises TooComplex where too few are left."""
        self.left -= count
        if self.left < 0:
            raise TooComplex
