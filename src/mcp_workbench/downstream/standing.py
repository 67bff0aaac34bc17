"""What hosts want of servers for longer than one request. It outlives every connection."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

import msgspec

from mcp_workbench.core.names import ServerAddress
from mcp_workbench.era.primitives import most_verbose


class Place(msgspec.Struct, frozen=True):
    """Where a connection stands: shared by all hosts, or of one host alone."""

    address: ServerAddress
    number: int = 0  # among those that are not shared
    owner: Hashable = None  # whose it is, where it is not everybody's


class Heard(msgspec.Struct, frozen=True):
    """What a server said unasked and hosts may want to know."""

    place: Place
    method: str
    params: msgspec.Raw
    modern_server: bool = False
    asker: object = None  # whose request it is about, or whose are the only ones under way there
    caller: object = None  # that request, where it is known


class Standing:
    """Log levels and subscriptions, by whoever wants them."""

    def __init__(self) -> None:
        self._levels: dict[object, tuple[str, frozenset[str]]] = {}  # and for which toolboxes
        self._subscriptions: dict[Place, dict[str, set[object]]] = {}
        self._hearers: dict[object, tuple[Callable[[], Hashable], Callable[[Heard], None]]] = {}

    def on_heard(
        self, owner: Callable[[], Hashable], hearer: Callable[[Heard], None]
    ) -> Callable[[], None]:
        """Be told, as whoever `owner` is by then, what servers say unasked; what is returned ends that."""
        key = object()
        self._hearers[key] = (owner, hearer)
        return lambda: self._hearers.pop(key, None) and None

    def pass_on(self, heard: Heard) -> None:
        for owner, hearer in tuple(self._hearers.values()):
            if heard.place.owner is None or heard.place.owner == owner():
                hearer(heard)

    # Logging

    def level_at(self, toolbox: str) -> str:
        """The most verbose wish of those who may use this toolbox; empty while nobody has one."""
        wishes = [level for level, boxes in self._levels.values() if toolbox in boxes]
        return most_verbose(wishes)

    def want_level(self, holder: object, level: str, toolboxes: Iterable[str]) -> None:
        self._levels[holder] = (level, frozenset(toolboxes))

    def level_of(self, holder: object) -> str:
        return self._levels[holder][0] if holder in self._levels else ""

    # Resources

    def uris(self, place: Place) -> list[str]:
        """What is subscribed to at this place."""
        return list(self._subscriptions.get(place, ()))

    def subscribe(self, place: Place, uri: str, holder: object) -> None:
        self._subscriptions.setdefault(place, {}).setdefault(uri, set()).add(holder)

    def unsubscribe(self, place: Place, uri: str, holder: object) -> bool:
        """Was this the last who wanted it?"""
        uris = self._subscriptions.get(place, {})
        holders = uris.get(uri)
        if holders is None or holder not in holders:
            return False
        holders.discard(holder)
        if holders:
            return False
        del uris[uri]
        if not uris:
            del self._subscriptions[place]
        return True

    def unsubscribe_at(self, address: ServerAddress, uri: str, holder: object) -> list[Place]:
        """The same wherever this server stands: the places at which nobody wants it any more."""
        places = [place for place in self._subscriptions if place.address == address]
        return [place for place in places if self.unsubscribe(place, uri, holder)]

    def forget(self, holder: object) -> list[tuple[Place, str]]:
        """Somebody is gone: the subscriptions that nobody has any more."""
        self._levels.pop(holder, None)
        held = [(place, uri) for place, uris in self._subscriptions.items() for uri in uris]
        return [(place, uri) for place, uri in held if self.unsubscribe(place, uri, holder)]
