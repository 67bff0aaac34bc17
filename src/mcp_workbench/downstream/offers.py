"""What one live server offers beside tools: listed when somebody asks, kept while it holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from mcp_workbench.core.errors import ServerError
from mcp_workbench.core.names import ServerAddress
from mcp_workbench.core.offers import Kind, Offer, read_offers
from mcp_workbench.downstream.conversation import Conversation, Lost
from mcp_workbench.downstream.listing import LIST_SECONDS, PAGES, Unlistable, list_params, listen
from mcp_workbench.downstream.standing import Heard, Place, Standing
from mcp_workbench.era.declared import Declared
from mcp_workbench.era.negotiate import Agreed
from mcp_workbench.era.ourselves import OURSELVES
from mcp_workbench.era.primitives import subscription_of
from mcp_workbench.era.revision import is_modern
from mcp_workbench.wire import envelope
from mcp_workbench.wire.envelope import Envelope

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
ACK_SECONDS = 5.0  # for a server to say that it has heard us; a slower one is believed
ANNOUNCED_TTL = 30_000  # milliseconds for a list whose changes a legacy server announces

METHODS: dict[Kind, str] = {
    "prompts": "prompts/list",
    "resources": "resources/list",
    "templates": "resources/templates/list",
}
MEMBERS: dict[Kind, str] = {
    "prompts": "prompts",
    "resources": "resources",
    "templates": "resourceTemplates",
}
_STALE: dict[str, tuple[Kind, ...]] = {
    "notifications/prompts/list_changed": ("prompts",),
    "notifications/resources/list_changed": ("resources", "templates"),
}
_TOLD = ("notifications/message", "notifications/resources/updated")


class Listed(msgspec.Struct, frozen=True):
    """A list as its server gave it, and how long a host may keep it."""

    offers: dict[str, Offer] = {}
    ttl: int = 0  # milliseconds
    public: bool = False


class Offers:
    """One connection's lists and subscriptions. Before `opened` there are none."""

    def __init__(self, place: Place, standing: Standing, heard: Callable[[Heard], None]) -> None:
        self.place = place
        self.declared = Declared()
        self.modern = False
        self.stale: set[Kind] = set()  # lists of which the server says that they have changed
        self._standing = standing
        self._heard = heard
        self._talk: Conversation | None = None
        self._listed: dict[Kind, Listed] = {}
        self._locks: dict[Kind, asyncio.Lock] = {}
        self._level = ""
        self._listening = 0  # the number of the request by which we hear of resources
        self._acks: dict[int, asyncio.Future[None]] = {}

    @classmethod
    def alone(cls, address: ServerAddress) -> Offers:
        """Of a connection about which nobody wants to hear."""
        return cls(Place(address), Standing(), lambda heard: None)

    def opened(self, talk: Conversation, agreed: Agreed) -> None:
        """The server takes requests: whatever hosts wanted before it came is asked for now."""
        self._talk = talk
        self.declared = agreed.declared
        self.modern = is_modern(agreed.revision)
        self.heed_level()
        if uris := self._standing.uris(self.place):
            if self.modern:
                self._listen(uris)
            else:
                for uri in uris:
                    self._tell("resources/subscribe", {"uri": uri})

    # Lists

    def succeed(self, before: Offers | None) -> None:
        """Read the lists that were read there, or any, and say which of them differ."""
        if before is not None:
            self._listed = dict(before._listed)  # noqa: SLF001 - one of us
        self.stale = set(self._listed if before is not None else METHODS)

    def offers_any(self, kind: Kind) -> bool:
        return self.declared.prompts if kind == "prompts" else self.declared.resources

    def known(self, kind: Kind) -> Listed | None:
        """The list as it was last read, if it was."""
        return self._listed.get(kind)

    async def listed(self, kind: Kind) -> Listed:
        """The list: the one we have while its server would announce a change, else read anew."""
        if not self.offers_any(kind):
            return Listed(ttl=ANNOUNCED_TTL)
        async with self._locks.setdefault(kind, asyncio.Lock()):
            known = self._listed.get(kind)
            if known is not None and self._announces(kind) and kind not in self.stale:
                return known
            return await self._read(kind)

    async def refresh(self) -> None:
        """Read again what has changed, and say so where it really has."""
        stale, self.stale = self.stale, set()
        changed = [kind for kind in sorted(stale) if await self._differs(kind)]
        for method, kinds in _STALE.items():
            if any(kind in changed for kind in kinds):
                self._say(method, msgspec.Raw(b"{}"))

    async def _differs(self, kind: Kind) -> bool:
        """Is the list another than before? One that nobody has read is as its server says."""
        before = self._listed.get(kind)
        if before is None:
            return True
        async with self._locks.setdefault(kind, asyncio.Lock()):
            try:
                found = await self._read(kind)
            except (Unlistable, Lost):
                return False
        return list(before.offers.values()) != list(found.offers.values())

    def _announces(self, kind: Kind) -> bool:
        said = self.declared
        return said.prompts_changed if kind == "prompts" else said.resources_changed

    async def _read(self, kind: Kind) -> Listed:
        self.stale.discard(kind)  # an announcement from here on asks for yet another reading
        default = ANNOUNCED_TTL if self._announces(kind) and not self.modern else 0
        offers: dict[str, Offer] = {}
        lives: list[int] = []
        public = self.modern
        cursor, seen = "", set[str]()
        for _ in range(PAGES):
            page = await self._page(kind, cursor)
            for key, offer in read_offers(kind, page.items).items():
                offers.setdefault(key, offer)
            lives.append(max(page.ttl, 0) if self.modern else default)
            public = public and page.scope == "public"
            cursor = page.cursor
            if not cursor or cursor in seen:
                break
            seen.add(cursor)
        found = self._listed[kind] = Listed(offers, min(lives), public)
        return found

    async def _page(self, kind: Kind, cursor: str) -> _Page:
        params = list_params(cursor, OURSELVES, modern=self.modern)
        try:
            answer = await self._talking.ask(METHODS[kind], params, LIST_SECONDS)
        except TimeoutError:
            raise Unlistable(f"it did not list its {kind} within {LIST_SECONDS:g} s") from None
        if answer.error:
            error = envelope.read_error(answer.error)
            if error.code == envelope.METHOD_NOT_FOUND:  # resources without templates are common
                return _Page()
            raise Unlistable(f"it refused to list its {kind}: {error.message} ({error.code})")
        return _read_page(kind, answer.result)

    @property
    def _talking(self) -> Conversation:
        if self._talk is None:
            raise Unlistable("it is not ready")
        return self._talk

    # Logging

    def heed_level(self) -> None:
        """Tell a legacy server the most verbose level that any host wants."""
        level = self._standing.level_at(self.place.address.toolbox)
        if level and level != self._level and self.declared.logging and not self.modern:
            self._level = level
            self._tell("logging/setLevel", {"level": level})

    # Subscriptions

    async def subscribe(self, uri: str, holder: object) -> None:
        """Hear of this resource's changes. Raises ServerError where the server refuses."""
        first = uri not in self._standing.uris(self.place)
        if first and not self.modern:
            await self._subscribe_there(uri)
        self._standing.subscribe(self.place, uri, holder)
        if first and self.modern:
            await self._acknowledged(self._listen(self._standing.uris(self.place)))

    async def _subscribe_there(self, uri: str) -> None:
        params = envelope.encode({"uri": uri})
        answer = await self._talking.ask("resources/subscribe", params, LIST_SECONDS)
        if answer.error:
            told = envelope.read_error(answer.error)
            raise ServerError(told.code, told.message, bytes(answer.error))

    def unsubscribed(self, uri: str) -> None:
        """Nobody wants to hear of this resource any more."""
        if self.modern:
            self._listen(self._standing.uris(self.place))
        else:
            self._tell("resources/unsubscribe", {"uri": uri})

    def _listen(self, uris: list[str]) -> int:
        """A new set means a new request; the old one ends when this one is acknowledged."""
        if not uris:
            self._end(self._listening)
            self._listening = 0
            return 0
        before = self._listening
        self._listening = number = listen(self._talking, OURSELVES, {"resourceSubscriptions": uris})
        ack = self._acks[number] = asyncio.get_running_loop().create_future()
        ack.add_done_callback(lambda _: self._end(before))
        return number

    def _end(self, number: int) -> None:
        if number and self._talk is not None:
            self._talk.tell_cancelled(number, "a newer subscription replaces this one")

    async def _acknowledged(self, number: int) -> None:
        ack = self._acks.get(number)
        if ack is not None:
            await asyncio.wait([ack], timeout=ACK_SECONDS)
        self._believe(number)

    def _believe(self, number: int) -> None:
        ack = self._acks.pop(number, None)
        if ack is not None:
            ack.set_result(None)

    def _tell(self, method: str, params: dict[str, Any]) -> None:
        """A request whose answer nobody waits for."""
        if self._talk is not None:
            number = self._talk.pending.reserve()
            self._talk.channel.send(envelope.request(number, method, envelope.encode(params)))

    # What the server says unasked

    def noticed(self, message: Envelope) -> bool:
        """Take a notification; is there now something to read again?"""
        stale = _STALE.get(message.method)
        if stale is not None:
            self.stale.update(stale)
            return True
        if message.method == ACKNOWLEDGED:
            self._believe(subscription_of(message.params))
        elif message.method in _TOLD and message.params:
            self._say(message.method, message.params)
        return False

    def _say(self, method: str, params: msgspec.Raw) -> None:
        askers = set[object]() if self._talk is None else self._talk.pending.askers()
        asker = askers.pop() if len(askers) == 1 else None
        self._heard(Heard(self.place, method, params, self.modern, asker))


class _Page(msgspec.Struct):
    items: list[msgspec.Raw] = []
    cursor: str = ""
    ttl: int = 0
    scope: str = ""


class _PageTail(msgspec.Struct):
    nextCursor: str | None = None  # noqa: N815 - the wire's word
    ttlMs: Any = None  # noqa: N815
    cacheScope: Any = None  # noqa: N815


def _read_page(kind: Kind, result: msgspec.Raw) -> _Page:
    try:
        tail = msgspec.json.decode(result, type=_PageTail)
        members = msgspec.json.decode(result, type=dict[str, msgspec.Raw])
        items = msgspec.json.decode(members.get(MEMBERS[kind], b"[]"), type=list[msgspec.Raw])
    except msgspec.DecodeError as error:
        raise Unlistable(f"its list of {kind} has no usable form: {error}") from None
    ttl = tail.ttlMs if isinstance(tail.ttlMs, int) else 0
    return _Page(items, tail.nextCursor or "", ttl, str(tail.cacheScope))
