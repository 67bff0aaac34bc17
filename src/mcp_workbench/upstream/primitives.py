"""What one live server offers beside tools: listed when somebody asks, kept while it holds."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from mcp_workbench.bounded import read_members
from mcp_workbench.core.names import ServerAddress
from mcp_workbench.core.offers import Kind, Offer, read_offers
from mcp_workbench.era.declared import Declared
from mcp_workbench.era.negotiate import Agreed
from mcp_workbench.era.ourselves import OURSELVES
from mcp_workbench.era.primitives import subscription_of
from mcp_workbench.era.revision import is_modern
from mcp_workbench.timing import pause
from mcp_workbench.upstream.conversation import Conversation
from mcp_workbench.upstream.responses import Lost, Waiter
from mcp_workbench.upstream.subscriptions import Heard, Place, Standing, Wishes
from mcp_workbench.upstream.tools import (
    LIST_SECONDS,
    PAGES,
    TOO_LARGE,
    Total,
    Unlistable,
    in_turns,
    list_params,
    list_seconds,
    others_turn,
    page_elements,
)
from mcp_workbench.wire import envelope
from mcp_workbench.wire.envelope import Envelope
from mcp_workbench.wire.tasks import TaskScope, task_scope

log = logging.getLogger(__name__)

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
SILENCE = pause(10.0)  # seconds until a list is asked for again that did not come in its time
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
# Resources and templates are one capability: who is silent about one is not asked for the other.
_CAPABILITIES: dict[Kind, str] = {
    "prompts": "prompts",
    "resources": "resources",
    "templates": "resources",
}
_STALE: dict[str, tuple[Kind, ...]] = {
    "notifications/prompts/list_changed": ("prompts",),
    "notifications/resources/list_changed": ("resources", "templates"),
}
_TOLD = (
    "notifications/message",
    "notifications/resources/updated",
    "notifications/elicitation/complete",
)


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
        self.remember: Callable[[Kind, tuple[bytes, ...]], None] = lambda kind, raws: None
        self._heard = heard
        self._talk: Conversation | None = None
        self._listed: dict[Kind, Listed] = {}
        self._scope: TaskScope | None = None  # of what is read now
        self._readings: dict[Kind, asyncio.Task[Listed | Exception]] = {}
        self._silent: dict[str, tuple[float, str]] = {}  # until when a list is not asked for again
        self._patience: Callable[[], float] = lambda: LIST_SECONDS  # for a whole list
        self.wishes = Wishes(place, standing, self._doubt, self._touched)

    @classmethod
    def alone(cls, address: ServerAddress) -> Offers:
        """Of a connection about which nobody wants to hear."""
        return cls(Place(address), Standing(), lambda heard: None)

    @asynccontextmanager
    async def open(
        self, talk: Conversation, agreed: Agreed, within: Callable[[], float]
    ) -> AsyncGenerator[None]:
        """The server takes requests for the length of the block; each list comes `within` seconds."""
        async with task_scope() as scope:
            self._scope, self._talk = scope, talk
            self._patience = self.wishes.patience = lambda: list_seconds(within())
            self.declared = agreed.declared
            self.modern = is_modern(agreed.revision)
            self.wishes.opened(talk, agreed)
            try:
                yield
            finally:
                self._scope = None

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
        known = self._listed.get(kind)
        if known is not None and self._announces(kind) and kind not in self.stale:
            return known
        if why := self.is_silent(kind):
            raise Unlistable(why)
        return await self._read(kind)

    def is_silent(self, kind: Kind) -> str:
        """Why this list is not asked for now: a while ago its server has let its time pass."""
        until, why = self._silent.get(_CAPABILITIES[kind], (0.0, ""))
        return why if time.monotonic() < until else ""

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
        try:
            if kind in self._readings:  # begun before the server said that there is another list
                await self._read(kind)
            found = await self._read(kind)
        except (Unlistable, Lost):
            return False
        return list(before.offers.values()) != list(found.offers.values())

    def _announces(self, kind: Kind) -> bool:
        said = self.declared
        announced = said.prompts_changed if kind == "prompts" else said.resources_changed
        return announced and not self.wishes.deaf

    def _doubt(self) -> None:
        """Lists that were read may have changed, and we have not heard of it."""
        self.stale.update(self._listed)

    async def _read(self, kind: Kind) -> Listed:
        """Read the list, together with whoever wants it meanwhile: nobody waits for another's turn."""
        reading = self._readings.get(kind)
        if reading is None:
            if self._scope is None:
                raise Unlistable("it is not ready")
            reading = self._scope.start(self._outcome(kind), f"list {kind} of {self.place}")
            self._readings[kind] = reading
            reading.add_done_callback(lambda _: self._readings.pop(kind, None))
        await asyncio.wait([reading])  # whoever leaves early leaves it to the others
        outcome = Unlistable("it was closed") if reading.cancelled() else reading.result()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def _outcome(self, kind: Kind) -> Listed | Exception:
        """All pages within one deadline, or what was wrong."""
        seconds = self._patience()
        try:
            async with asyncio.timeout(seconds):
                return await self._pages(kind, seconds)
        except (Unlistable, Lost) as error:
            return error
        except TimeoutError:
            why = f"it did not list its {kind} within {seconds:g} s"
            self._silent[_CAPABILITIES[kind]] = (time.monotonic() + SILENCE, why)
            return Unlistable(why)

    async def _pages(self, kind: Kind, seconds: float) -> Listed:
        self.stale.discard(kind)  # an announcement from here on asks for yet another reading
        default = ANNOUNCED_TTL if self._announces(kind) and not self.modern else 0
        offers: dict[str, Offer] = {}
        lives: list[int] = []
        public = self.modern
        cursor, seen, total = "", set[str](), Total()
        for _ in range(PAGES):
            page = await self._page(kind, cursor, seconds)
            if total.is_beyond(page.size, len(page.items), self._talking.message_bytes):
                log.warning(
                    "%s: %s beyond the first %d were left out (%s)",
                    self.place.address,
                    kind,
                    len(offers),
                    TOO_LARGE,
                )
                break
            for raws in in_turns(page.items):
                for key, offer in read_offers(kind, raws).items():
                    offers.setdefault(key, offer)
                await others_turn(raws)
            lives.append(max(page.ttl, 0) if self.modern else default)
            public = public and page.scope == "public"
            cursor = page.cursor
            if not cursor or cursor in seen:
                break
            seen.add(cursor)
        found = self._listed[kind] = Listed(offers, min(lives), public)
        self.remember(kind, tuple(offer.raw for offer in offers.values()))
        return found

    async def _page(self, kind: Kind, cursor: str, seconds: float) -> _Page:
        params = list_params(cursor, OURSELVES, modern=self.modern)
        answer = await self._talking.ask(METHODS[kind], params, seconds)
        if answer.error:
            error = envelope.read_error(answer.error)
            if error.code == envelope.METHOD_NOT_FOUND:  # resources without templates are common
                return _Page()
            raise Unlistable(f"it refused to list its {kind}: {error.message} ({error.code})")
        return await _read_page(kind, answer.result)

    @property
    def _talking(self) -> Conversation:
        if self._talk is None:
            raise Unlistable("it is not ready")
        return self._talk

    # What the server says unasked

    def noticed(self, message: Envelope) -> bool:
        """Take a notification; is there now something to read again?"""
        stale = _STALE.get(message.method)
        if stale is not None:
            self._silent.clear()  # it has something to say
            self.stale.update(stale)
            return True
        if message.method == ACKNOWLEDGED:
            self.wishes.acknowledged(subscription_of(message.params))
        elif message.method in _TOLD and message.params:
            self._say(message.method, message.params)
        return False

    def _touched(self, uri: str) -> None:
        self._say("notifications/resources/updated", msgspec.Raw(envelope.encode({"uri": uri})))

    def _say(self, method: str, params: msgspec.Raw) -> None:
        asker, caller = (None, None) if self._talk is None else _attributed(self._talk)
        self._heard(Heard(self.place, method, params, self.modern, asker, caller))


def _attributed(talk: Conversation) -> tuple[object, Waiter | None]:
    """Whose request it is about that the server says something, and which, where that is known."""
    caller = talk.pending.find(talk.about) if talk.about else None
    if caller is not None and caller.asker is not None:
        return caller.asker, caller
    askers = talk.pending.askers()
    return (askers.pop() if len(askers) == 1 else None), None


class _Page(msgspec.Struct):
    items: list[msgspec.Raw] = []
    cursor: str = ""
    ttl: int = 0
    scope: str = ""
    size: int = 0  # bytes


class _PageTail(msgspec.Struct):
    nextCursor: str | None = None  # noqa: N815 - the wire's word
    ttlMs: Any = None  # noqa: N815
    cacheScope: Any = None  # noqa: N815


async def _read_page(kind: Kind, result: msgspec.Raw) -> _Page:
    await others_turn([result])
    try:
        tail = msgspec.json.decode(result, type=_PageTail)
        await others_turn([result])
        listed = read_members(result).get(MEMBERS[kind], msgspec.Raw(b"[]"))
        items = await page_elements(listed)
    except msgspec.DecodeError as error:
        raise Unlistable(f"its list of {kind} has no usable form: {error}") from None
    ttl = tail.ttlMs if isinstance(tail.ttlMs, int) else 0
    return _Page(items, tail.nextCursor or "", ttl, str(tail.cacheScope), len(result))
