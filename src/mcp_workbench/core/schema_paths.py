"""Where a part of a schema is, for walks over schemas that are deep and wide.

A tuple of all names for each of very many neighbours would take as many times its depth in memory.
"""

from __future__ import annotations

from typing import NamedTuple


class SchemaPlace(NamedTuple):
    """A member of something that is itself somewhere; the root is nowhere."""

    inside: SchemaPlace | None
    name: str


def path_of(place: SchemaPlace | None) -> tuple[str, ...]:
    """Return the names that lead there."""
    names: list[str] = []
    while place is not None:
        names.append(place.name)
        place = place.inside
    return tuple(reversed(names))
