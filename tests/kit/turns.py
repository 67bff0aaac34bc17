"""Work that is done in turns, done at once; and how many turns, and steps in a turn, it takes."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

Answer = TypeVar("Answer")


def done(work: Generator[None, None, Answer]) -> Answer:
    """What the work returns."""
    return turns_of(work)[1]


def turns_of(work: Generator[None, None, Answer]) -> tuple[int, Answer]:
    """In how many turns it is done, and what it returns."""
    turns = 1
    while True:
        try:
            next(work)
        except StopIteration as end:
            return turns, end.value
        turns += 1
