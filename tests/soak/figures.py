"""What a long run came to, beside what it must come to."""

from typing import NamedTuple


class Figure(NamedTuple):
    """One guarantee, measured."""

    guarantee: str
    bar: str
    measured: str
    holds: bool

    def __str__(self) -> str:
        return f"{'ok  ' if self.holds else 'MISS'} {self.guarantee}\n       bar: {self.bar}\n       now: {self.measured}"
