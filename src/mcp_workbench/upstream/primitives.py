"""Primitives of one server beside tools (prompts, resources, templates): listed on demand and kept."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from mcp_workbench.core.primitive_names import Primitive, PrimitiveKind, read_primitives
from mcp_workbench.core.raw_json import TooLong, read_members, read_short
from mcp_workbench.core.spec import ServerAddress
from mcp_workbench.protocol.extensions import SKILLS
from mcp_workbench.protocol.handshake import Agreed, ServerCapabilities, is_modern
from mcp_workbench.protocol.primitive_messages import check_uri, level_of, subscription_of
from mcp_workbench.timing import pause
from mcp_workbench.transport import jsonrpc
from mcp_workbench.transport.jsonrpc import Envelope
from mcp_workbench.transport.tasks import TaskScope, task_scope
from mcp_workbench.upstream.conversation import (
    LOG_MESSAGE,
    Conversation,
    RequestFailed,
    ResponseHandler,
)
from mcp_workbench.upstream.subscriptions import (
    ConnectionId,
    ConnectionSubscriptions,
    ServerNotification,
    SubscriptionRegistry,
)
from mcp_workbench.upstream.tool_list import (
    LIST_SECONDS,
    PAGES,
    TOO_LARGE,
    Total,
    Unlistable,
    in_steps,
    list_params,
    list_seconds,
    page_elements,
    read_cursor,
    yield_after,
)

if TYPE_CHECKING:
    from mcp_workbench.core.lock_states import ListKind

log = logging.getLogger(__name__)

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
SILENCE = pause(10.0)  # seconds for which a list that timed out is not requested again
ANNOUNCED_TTL = 30_000  # milliseconds for a list whose changes a legacy server announces

METHODS: dict[PrimitiveKind, str] = {
    "prompts": "prompts/list",
    "resources": "resources/list",
    "templates": "resources/templates/list",
    "skills": "skills/list",
}
MEMBERS: dict[PrimitiveKind, str] = {
    "prompts": "prompts",
    "resources": "resources",
    "templates": "resourceTemplates",
    "skills": "skills",
}
# Resources and templates are one capability: a timeout of one holds for the other.
_CAPABILITIES: dict[PrimitiveKind, str] = {
    "prompts": "prompts",
    "resources": "resources",
    "templates": "resources",
    "skills": "skills",
}
_STALE: dict[str, tuple[PrimitiveKind, ...]] = {
    "notifications/prompts/list_changed": ("prompts",),
    "notifications/resources/list_changed": ("resources", "templates"),
}
UPDATED = "notifications/resources/updated"
_PASSED_ON = (
    LOG_MESSAGE,
    UPDATED,
    "notifications/elicitation/complete",
)


class PrimitiveList(msgspec.Struct, frozen=True):
    """A list as its server sent it, and how long a host may cache it."""

    offers: dict[str, Primitive] = {}
    ttl: int = 0  # milliseconds
    public: bool = False


class Primitives:
    """Lists and subscriptions of one connection. Empty before `open`."""

    def __init__(
        self,
        connection_id: ConnectionId,
        registry: SubscriptionRegistry,
        notify: Callable[[ServerNotification], None],
    ) -> None:
        self.connection_id = connection_id
        self.declared = ServerCapabilities()
        self.modern = False
        self._has_skills = False
        self.stale: set[PrimitiveKind] = set()  # lists whose change the server announced
        self.remember: Callable[[PrimitiveKind, tuple[bytes, ...]], None] = lambda kind, raws: None
        # Compares a list with the lock file: returns what is not shown.
        self.admit: (
            Callable[[ListKind, Mapping[str, bytes]], Awaitable[Mapping[str, Any]]] | None
        ) = None
        self._notify = notify
        self._conversation: Conversation | None = None
        self._listed: dict[PrimitiveKind, PrimitiveList] = {}
        self._scope: TaskScope | None = None  # of the readings
        self._readings: dict[PrimitiveKind, asyncio.Task[PrimitiveList | Exception]] = {}
        self._silent: dict[str, tuple[float, str]] = {}  # not requested until then, and why
        self._patience: Callable[[], float] = lambda: LIST_SECONDS  # seconds for a whole list
        self.subscriptions = ConnectionSubscriptions(
            connection_id, registry, self._lists_missed, self._updated
        )

    @classmethod
    def alone(cls, address: ServerAddress) -> Primitives:
        """Of a connection whose notifications nobody wants."""
        return cls(ConnectionId(address), SubscriptionRegistry(), lambda notification: None)

    @asynccontextmanager
    async def open(
        self, conversation: Conversation, agreed: Agreed, within: Callable[[], float]
    ) -> AsyncGenerator[None]:
        """Allow requests for the duration of the block; each list has `within()` seconds."""
        async with task_scope() as scope:
            self._scope, self._conversation = scope, conversation
            self._patience = self.subscriptions.patience = lambda: list_seconds(within())
            self.declared = agreed.declared
            self.modern = is_modern(agreed.revision)
            self._has_skills = self.modern and SKILLS in agreed.extensions
            self.subscriptions.opened(conversation, agreed)
            try:
                yield
            finally:
                self._scope = None

    # Lists

    def succeed(self, before: Primitives | None) -> None:
        """Take over the lists of a predecessor, or expect new ones; changes are announced."""
        if before is not None:
            self._listed = dict(before._listed)  # noqa: SLF001 - of the same class
        self.stale = set(self._listed if before is not None else METHODS)

    def offers_any(self, kind: PrimitiveKind) -> bool:
        if kind == "skills":
            return self._has_skills
        return self.declared.prompts if kind == "prompts" else self.declared.resources

    def known(self, kind: PrimitiveKind) -> PrimitiveList | None:
        """The list as last read, if it was."""
        return self._listed.get(kind)

    async def listed(self, kind: PrimitiveKind) -> PrimitiveList:
        """The list: the one we have as long as its server announces changes, else a new reading."""
        if not self.offers_any(kind):
            return PrimitiveList(ttl=ANNOUNCED_TTL)
        known = self._listed.get(kind)
        if known is not None and self._announces(kind) and kind not in self.stale:
            return known
        if reason := self.is_silent(kind):
            raise Unlistable(reason)
        return await self._read(kind)

    def is_silent(self, kind: PrimitiveKind) -> str:
        """Why this list is not requested now: it timed out a short while ago."""
        until, reason = self._silent.get(_CAPABILITIES[kind], (0.0, ""))
        return reason if time.monotonic() < until else ""

    async def refresh(self) -> None:
        """Read the stale lists again, and notify hosts of those that really changed."""
        stale, self.stale = self.stale, set()
        changed = [kind for kind in sorted(stale) if await self._differs(kind)]
        for method, kinds in _STALE.items():
            if any(kind in changed for kind in kinds):
                self._publish(method, msgspec.Raw(b"{}"))

    async def _differs(self, kind: PrimitiveKind) -> bool:
        """Has the list changed? For one that was never read, the server's word counts."""
        before = self._listed.get(kind)
        if before is None:
            return True
        try:
            if kind in self._readings:  # begun before the announcement
                await self._read(kind)
            current = await self._read(kind)
        except (Unlistable, RequestFailed):
            return False
        return list(before.offers.values()) != list(current.offers.values())

    def _announces(self, kind: PrimitiveKind) -> bool:
        if kind == "skills":  # nobody announces changes of them
            return False
        declared = self.declared
        announced = declared.prompts_changed if kind == "prompts" else declared.resources_changed
        return announced and not self.subscriptions.is_interrupted

    def expire(self) -> None:
        """The lists are to be compared with another lock file."""
        self.stale.update(self._listed.keys() - {"resources", "skills"})

    def _lists_missed(self) -> None:
        """Announcements may have been missed: all lists are stale."""
        self.stale.update(self._listed)

    async def _read(self, kind: PrimitiveKind) -> PrimitiveList:
        """Read the list. Those who ask meanwhile share the reading."""
        reading = self._readings.get(kind)
        if reading is None:
            if self._scope is None:
                raise Unlistable("it is not ready")
            reading = self._scope.start(self._outcome(kind), f"list {kind} of {self.connection_id}")
            self._readings[kind] = reading
            reading.add_done_callback(lambda _: self._readings.pop(kind, None))
        await asyncio.wait([reading])  # it goes on for the others where one leaves early
        outcome = Unlistable("it was closed") if reading.cancelled() else reading.result()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def _outcome(self, kind: PrimitiveKind) -> PrimitiveList | Exception:
        """All pages within one deadline, or the error."""
        seconds = self._patience()
        try:
            async with asyncio.timeout(seconds):
                return await self._pages(kind, seconds)
        except (Unlistable, RequestFailed) as error:
            return error
        except TimeoutError:
            reason = f"it did not list its {kind} within {seconds:g} s"
            self._silent[_CAPABILITIES[kind]] = (time.monotonic() + SILENCE, reason)
            return Unlistable(reason)

    async def _pages(self, kind: PrimitiveKind, seconds: float) -> PrimitiveList:
        self.stale.discard(kind)  # an announcement from here on needs another reading
        default = ANNOUNCED_TTL if self._announces(kind) and not self.modern else 0
        offers: dict[str, Primitive] = {}
        ttls: list[int] = []
        public = self.modern
        cursor, seen, total = "", set[str](), Total()
        for _ in range(PAGES):
            page = await self._page(kind, cursor, seconds)
            if total.is_beyond(page.size, len(page.items), self._open_conversation.message_bytes):
                log.warning(
                    "%s: %s beyond the first %d were left out (%s)",
                    self.connection_id.address,
                    kind,
                    len(offers),
                    TOO_LARGE,
                )
                break
            for raws in in_steps(page.items):
                for key, offer in read_primitives(kind, raws).items():
                    offers.setdefault(key, offer)
                await yield_after(raws)
            ttls.append(max(page.ttl, 0) if self.modern else default)
            public = public and page.scope == "public"
            cursor = page.cursor
            if not cursor or cursor in seen:
                break
            seen.add(cursor)
        received = tuple(offer.raw for offer in offers.values())
        if self.admit is not None and kind != "resources" and kind != "skills":
            blocked = await self.admit(kind, {key: offer.raw for key, offer in offers.items()})
            offers = {key: offer for key, offer in offers.items() if key not in blocked}
        listed = self._listed[kind] = PrimitiveList(offers, min(ttls), public)
        self.remember(kind, received)
        return listed

    async def _page(self, kind: PrimitiveKind, cursor: str, seconds: float) -> _Page:
        conversation = self._open_conversation
        params = list_params(conversation, cursor, modern=self.modern)
        answer = await conversation.ask(METHODS[kind], params, seconds)
        if answer.error:
            error = jsonrpc.read_error(answer.error)
            if error.code == jsonrpc.METHOD_NOT_FOUND:  # resources without templates are common
                return _Page()
            raise Unlistable(f"it refused to list its {kind}: {error.message} ({error.code})")
        return await read_page(kind, answer.result)

    @property
    def _open_conversation(self) -> Conversation:
        if self._conversation is None:
            raise Unlistable("it is not ready")
        return self._conversation

    # Notifications

    def received(self, message: Envelope) -> bool:
        """Take a notification; is there now a list to read again?"""
        stale = _STALE.get(message.method)
        if stale is not None:
            self._silent.clear()  # it answers again
            self.stale.update(stale)
            return True
        if message.method == ACKNOWLEDGED:
            number = subscription_of(message.params)
            self.subscriptions.acknowledged(number, message.params)
        elif message.method in _PASSED_ON and message.params:
            self._pass_on(message)
        return False

    def _pass_on(self, message: Envelope) -> None:
        level = ""
        try:
            if message.method == LOG_MESSAGE:
                level = level_of(message.params)  # once for all hosts: its data may be large
            elif message.method == UPDATED:
                check_uri(message.params)
        except TooLong:
            if self._conversation is not None:
                self._conversation.drop_notice(message.method)
            return
        self._publish(message.method, message.params, level)

    def _updated(self, uri: str) -> None:
        self._publish(UPDATED, msgspec.Raw(jsonrpc.encode({"uri": uri})))

    def _publish(self, method: str, params: msgspec.Raw, level: str = "") -> None:
        asker, caller = (
            (None, None) if self._conversation is None else _attribute(self._conversation)
        )
        self._notify(
            ServerNotification(
                self.connection_id, method, params, self.modern, asker, caller, level
            )
        )


def _attribute(conversation: Conversation) -> tuple[object, ResponseHandler | None]:
    """The host that a notification is for, and its request, where they are known."""
    caller = (
        conversation.pending.find(conversation.response_to) if conversation.response_to else None
    )
    if caller is not None and caller.asker is not None:
        return caller.asker, caller
    askers = conversation.pending.askers()
    return (askers.pop() if len(askers) == 1 else None), None


class _Page(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw] = []
    cursor: str = ""
    ttl: int = 0
    scope: str = ""
    size: int = 0  # bytes


class _PageTail(msgspec.Struct, frozen=True):
    nextCursor: msgspec.Raw = msgspec.Raw(b"null")  # noqa: N815 - the protocol's name
    ttlMs: msgspec.Raw = msgspec.Raw(b"null")  # noqa: N815
    cacheScope: msgspec.Raw = msgspec.Raw(b"null")  # noqa: N815


async def read_page(kind: PrimitiveKind, result: msgspec.Raw) -> _Page:
    await yield_after([result])
    try:
        tail = msgspec.json.decode(result, type=_PageTail)
        await yield_after([result])
        listed = read_members(result).get(MEMBERS[kind], msgspec.Raw(b"[]"))
        items = await page_elements(listed)
        cursor = read_cursor(tail.nextCursor)
    except msgspec.DecodeError as error:
        raise Unlistable(f"its list of {kind} has no usable form: {error}") from None
    ttl, scope = read_short(tail.ttlMs), read_short(tail.cacheScope)
    return _Page(items, cursor, ttl if isinstance(ttl, int) else 0, str(scope), len(result))
