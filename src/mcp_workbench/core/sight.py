"""Who sees which part of the configuration, and how all of them come to see another."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakSet

from mcp_workbench.core.spec import Snapshot

Shows = Callable[[str], bool]  # is a toolbox of this name seen?


class Sight:
    """All toolboxes of the configuration that holds now, or some of them."""

    def __init__(
        self, snapshot: Snapshot, shows: Shows | None = None, *, private: bool = False
    ) -> None:
        self._shows = shows
        self._private = private
        self.snapshot = self.of(snapshot)

    def of(self, snapshot: Snapshot) -> Snapshot:
        """What of this configuration is seen from here."""
        if self._shows is None:
            return snapshot
        names = tuple(filter(self._shows, snapshot.toolboxes))
        return snapshot.only(names, private=self._private)


class Sights:
    """Everybody's view of one configuration, so that it can be exchanged in one step."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.whole = Sight(snapshot)
        self.warnings: tuple[str, ...] = ()  # what whoever opens a toolbox should know
        self._parts: WeakSet[Sight] = WeakSet()

    def part(self, shows: Shows, *, private: bool = False) -> Sight:
        """Those toolboxes alone that are shown, now and after every change."""
        part = Sight(self.whole.snapshot, shows, private=private)
        self._parts.add(part)
        return part

    def exchange(self, snapshot: Snapshot) -> None:
        """From here on everybody sees this one."""
        for sight in (self.whole, *self._parts):
            sight.snapshot = sight.of(snapshot)
        self.warnings = ()


def narrowed_to(snapshot: Snapshot, names: tuple[str, ...]) -> Snapshot:
    """Like `Snapshot.narrowed`, for names that may have gone: what is not there is left out."""
    if not names:
        return snapshot
    return snapshot.only(tuple(name for name in names if name in snapshot.toolboxes))
