"""Our own request numbers: who waits for each, and until when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

W = TypeVar("W")

NEVER = float("inf")  # a deadline that does not come


class PendingTable(Generic[W]):
    """Requests on one connection that have no answer yet."""

    __slots__ = ("_last", "waiting")

    def __init__(self) -> None:
        self._last = 0
        self.waiting: dict[int, tuple[W, float]] = {}

    @property
    def count(self) -> int:
        return len(self.waiting)

    @property
    def given(self) -> int:
        """How many numbers there have been."""
        return self._last

    def reserve(self) -> int:
        """A fresh number for a request whose answer nobody waits for."""
        self._last += 1
        return self._last

    def add(self, waiter: W, deadline: float) -> int:
        """A fresh number for a request that `waiter` waits for until `deadline`."""
        self._last = number = self._last + 1
        self.waiting[number] = (waiter, deadline)
        return number

    def find(self, number: int) -> W | None:
        entry = self.waiting.get(number)
        return None if entry is None else entry[0]

    def postpone(self, number: int, deadline: float) -> None:
        """Give whoever waits for this number another deadline."""
        entry = self.waiting.get(number)
        if entry is not None:
            self.waiting[number] = (entry[0], deadline)

    def oldest(self, wanted: Callable[[W], bool]) -> W | None:
        """Who of those wanted has waited longest."""
        return next((waiter for waiter, _ in self.waiting.values() if wanted(waiter)), None)

    def askers(self) -> set[object]:
        """On whose behalf there are requests under way, as far as those who wait say so."""
        found: set[object] = {getattr(w, "asker", None) for w, _ in self.waiting.values()}
        return found - {None}

    def settle(self, number: int) -> W | None:
        """Who waited for this number; nobody waits for it any more."""
        entry = self.waiting.pop(number, None)
        return None if entry is None else entry[0]

    def overdue(self, now: float) -> list[tuple[int, W]]:
        """Take out those whose time has passed."""
        late = [number for number, (_, deadline) in self.waiting.items() if deadline <= now]
        return [(number, self.waiting.pop(number)[0]) for number in late]

    def lose(self) -> list[tuple[int, W]]:
        """Take out all: the connection is gone."""
        lost = [(number, waiter) for number, (waiter, _) in self.waiting.items()]
        self.waiting.clear()
        return lost
