"""Who sees which part of the configuration, and how all of them come to see another."""

from __future__ import annotations

from weakref import WeakSet

import msgspec

from mcp_workbench.core.spec import Snapshot


class Sight:
    """All toolboxes of the configuration that holds now, or some of them."""

    def __init__(self, snapshot: Snapshot, names: tuple[str, ...] = ()) -> None:
        self._names = names
        self.snapshot = self.of(snapshot)

    def of(self, snapshot: Snapshot) -> Snapshot:
        """What of this configuration is seen from here; toolboxes that it lacks are not."""
        return narrowed_to(snapshot, self._names)


class Sights:
    """Everybody's view of one configuration, so that it can be exchanged in one step."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.whole = Sight(snapshot)
        self.warnings: tuple[str, ...] = ()  # what whoever opens a toolbox should know
        self._parts: WeakSet[Sight] = WeakSet()

    def part(self, names: tuple[str, ...]) -> Sight:
        """These toolboxes alone. Raises NotFound where there is none of that name."""
        self.whole.snapshot.narrowed(names)
        part = Sight(self.whole.snapshot, names)
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
    boxes = {name: snapshot.toolboxes[name] for name in names if name in snapshot.toolboxes}
    return msgspec.structs.replace(snapshot, toolboxes=boxes)
