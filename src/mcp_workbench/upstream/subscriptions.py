"""What hosts want of servers for longer than one request. It outlives every connection.
A standing request to a modern server, to be told of changes. One that ends is made again, slowly.
What hosts want of one live server for longer than a request: asked for, and asked for again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import msgspec

from mcp_workbench.core.errors import ServerError
from mcp_workbench.core.names import ServerAddress
from mcp_workbench.era.negotiate import Agreed
from mcp_workbench.era.ourselves import OURSELVES
from mcp_workbench.era.primitives import most_verbose
from mcp_workbench.era.revision import is_modern
from mcp_workbench.timing import pause
from mcp_workbench.upstream.conversation import Conversation
from mcp_workbench.upstream.tools import LIST_SECONDS, Unlistable, changes, listen
from mcp_workbench.wire import envelope


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


SHORTEST, LONGEST = pause(1.0), pause(60.0)  # seconds before it is made again
LASTED = 30.0  # seconds after which it counts as sound
ACK_SECONDS = 5.0  # for a server to say that it has heard us; a slower one is believed
FOR_GOOD = (envelope.METHOD_NOT_FOUND, envelope.INVALID_PARAMS, envelope.INVALID_REQUEST)


def refuses(error: msgspec.Raw | bytes) -> bool:
    """Would the server say the same to the same request tomorrow?"""
    return envelope.read_error(msgspec.Raw(error)).code in FOR_GOOD


class Listening:
    """What is wanted, under ever new numbers; `missed` is called after each gap."""

    def __init__(
        self,
        talk: Conversation,
        wanted: dict[str, object],
        missed: Callable[[], None],
        replaces: Listening | None = None,
    ) -> None:
        self.number = 0
        self.deaf = False  # at present the server tells us nothing
        self._talk = talk
        self._wanted = wanted
        self._missed = missed
        self._replaces = replaces  # it ends when this one is acknowledged: nothing falls between
        self._failures = 0
        self._began = 0.0
        self._heard = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._ask()

    def _ask(self) -> None:
        self._timer = None
        if self._talk.over:
            return
        self._began = time.monotonic()
        self.number = listen(self._talk, OURSELVES, self._wanted)
        self._talk.lasting[self.number] = self

    async def heard(self) -> None:
        """Wait until the server has acknowledged it, within reason."""
        try:
            async with asyncio.timeout(ACK_SECONDS):
                await self._heard.wait()
        except TimeoutError:
            self._end_replaced()

    def acknowledged(self) -> None:
        self._heard.set()
        self._end_replaced()
        if self.deaf:
            self.deaf = False
            self._missed()

    def ended(self, error: msgspec.Raw | bytes) -> None:
        self.deaf = True
        if error and refuses(error):
            return
        now = time.monotonic()
        self._failures = 0 if now - self._began > LASTED else self._failures + 1
        delay = min(SHORTEST * 2 ** min(max(self._failures - 1, 0), 6), LONGEST)
        self._timer = asyncio.get_running_loop().call_later(delay, self._ask)

    def interrupted(self) -> None:
        self.deaf = True

    def _end_replaced(self) -> None:
        if self._replaces is not None:
            self._replaces.end()
            self._replaces = None

    def end(self) -> None:
        """Nobody wants it any more, or another has taken its place."""
        self._end_replaced()
        if self._timer is not None:
            self._timer.cancel()
        if self._talk.lasting.pop(self.number, None) is not None:
            self._talk.tell_cancelled(self.number, "a newer subscription replaces this one")


TOOLS_CHANGED = "notifications/tools/list_changed"


class Wishes:
    """Levels, subscriptions and listening at one connection. Before `opened` there are none."""

    def __init__(
        self,
        place: Place,
        standing: Standing,
        doubt: Callable[[], None],
        touch: Callable[[str], None],
    ) -> None:
        self._place = place
        self._standing = standing
        self._doubt = doubt  # lists may have changed unheard
        self._touch = touch  # so may this resource
        self.patience: Callable[[], float] = lambda: LIST_SECONDS  # for an answer
        self._talk: Conversation | None = None
        self._modern = False
        self._logs = False
        self._level = ""
        self._changes: Listening | None = None
        self._watching: Listening | None = None

    def hear_changes(self, talk: Conversation, agreed: Agreed) -> None:
        """Listen for changes of a modern server's lists, from before they are first read."""
        self._talk = talk
        if agreed.listen:
            self._changes = Listening(talk, changes(agreed.declared), self._missed_changes)

    def opened(self, talk: Conversation, agreed: Agreed) -> None:
        """The server takes requests: whatever hosts wanted before it came is asked for now."""
        self._talk, self._logs = talk, agreed.declared.logging
        self._modern = is_modern(agreed.revision)
        talk.when_forgotten.append(self._forgotten)
        self._ask()

    def _ask(self) -> None:
        self._level = ""
        self.heed_level()
        uris = self._standing.uris(self._place)
        if self._modern and uris:
            self._listen(uris)
        elif not self._modern:
            for uri in uris:
                self._tell("resources/subscribe", {"uri": uri})

    def _forgotten(self) -> None:
        """A new session knows nothing of what the old one was told."""
        self._ask()
        self._missed_changes()
        self._missed_updates()

    # Logging

    def heed_level(self) -> None:
        """Tell a legacy server the most verbose level that any host wants."""
        level = self._standing.level_at(self._place.address.toolbox)
        if level and level != self._level and self._logs and not self._modern:
            self._level = level
            self._tell("logging/setLevel", {"level": level})

    # Subscriptions

    async def subscribe(self, uri: str, holder: object) -> None:
        """Hear of this resource's changes. Raises ServerError where the server refuses."""
        first = uri not in self._standing.uris(self._place)
        if first and not self._modern:
            await self._subscribe_there(uri)
        self._standing.subscribe(self._place, uri, holder)
        if first and self._modern:
            await self._listen(self._standing.uris(self._place)).heard()

    async def _subscribe_there(self, uri: str) -> None:
        params = envelope.encode({"uri": uri})
        answer = await self._talking.ask("resources/subscribe", params, self.patience())
        if answer.error:
            told = envelope.read_error(answer.error)
            raise ServerError(told.code, told.message, bytes(answer.error))

    def unsubscribed(self, uri: str) -> None:
        """Nobody wants to hear of this resource any more."""
        if not self._modern:
            self._tell("resources/unsubscribe", {"uri": uri})
        elif uris := self._standing.uris(self._place):
            self._listen(uris)
        elif self._watching is not None:
            self._watching.end()
            self._watching = None

    # Listening

    @property
    def deaf(self) -> bool:
        """Did a server that announces changes of its lists stop to do so?"""
        return self._changes is not None and self._changes.deaf

    def acknowledged(self, number: int) -> None:
        for listening in (self._changes, self._watching):
            if listening is not None and listening.number == number:
                listening.acknowledged()

    def _listen(self, uris: list[str]) -> Listening:
        """A new set means a new request; the old one ends when this one is acknowledged."""
        before = self._watching
        wanted: dict[str, object] = {"resourceSubscriptions": uris}
        self._watching = Listening(self._talking, wanted, self._missed_updates, before)
        return self._watching

    def _missed_changes(self) -> None:
        self._doubt()
        self._talking.announce(TOOLS_CHANGED)

    def _missed_updates(self) -> None:
        for uri in self._standing.uris(self._place):
            self._touch(uri)

    @property
    def _talking(self) -> Conversation:
        if self._talk is None:
            raise Unlistable("it is not ready")
        return self._talk

    def _tell(self, method: str, params: dict[str, Any]) -> None:
        """A request whose answer nobody waits for."""
        if self._talk is not None:
            number = self._talk.pending.reserve()
            self._talk.channel.send(envelope.request(number, method, envelope.encode(params)))
