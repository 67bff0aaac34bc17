"""Tools of one server: listed page by page, cached, read again, and shown through a filter."""

from __future__ import annotations

import asyncio
import time
from collections.abc import (
    AsyncGenerator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from mcp_workbench.core.catalogue import Catalogue, Definition, KnownCatalogue, read_definitions
from mcp_workbench.core.errors import shown_name
from mcp_workbench.core.raw_json import (
    MOST_ELEMENTS,
    Members,
    TooLong,
    check_elements,
    read_elements,
)
from mcp_workbench.core.spec import ServerSpec, ToolFilter
from mcp_workbench.protocol import handshake
from mcp_workbench.protocol.elicitation import capability_names
from mcp_workbench.protocol.handshake import IMPLEMENTATION, Agreed, is_modern
from mcp_workbench.transport import jsonrpc
from mcp_workbench.transport.tasks import TaskScope, task_scope
from mcp_workbench.upstream.conversation import Conversation, RequestFailed

if TYPE_CHECKING:
    from mcp_workbench.core.lock_states import ListKind, Review, State
    from mcp_workbench.upstream.connection import PoolContext

TOOLS_CHANGED = "notifications/tools/list_changed"
LIST_SECONDS = 30.0  # for a whole list, however many pages it has
PAGES = 100  # a list that never ends is cut here
MOST_COMPLAINTS = 50
LONGEST_CURSOR = 1 << 20  # bytes, which we send back
TOO_LARGE = f"a whole list has limits.messageBytes at most, and {MOST_ELEMENTS} entries"
AT_ONCE = 500  # entries of a page that are read in one step of the loop, or
AT_ONCE_BYTES = 1 << 20
NAME_EFFORT = 16  # bytes, about as costly as to compare a name with a pattern


class Unlistable(Exception):
    """The server did not list what it offers; the text says why."""


class _RawPage(msgspec.Struct, frozen=True):
    tools: msgspec.Raw = msgspec.Raw(b"[]")
    nextCursor: msgspec.Raw = msgspec.Raw(b"null")  # noqa: N815 - the protocol's name


class _Page(msgspec.Struct, frozen=True):
    tools: list[msgspec.Raw] = []
    cursor: str = ""
    size: int = 0  # bytes


class Total:
    """Size of all pages of a list, which together have the limit of a single message."""

    def __init__(self) -> None:
        self._bytes = self._entries = 0

    def is_beyond(self, size: int, entries: int, most: int) -> bool:
        """Add a page; is the list too large now?"""
        self._bytes += size
        self._entries += entries
        return self._bytes > most or self._entries > MOST_ELEMENTS


def list_seconds(timeout: float) -> float:
    """The time limit of a whole list: that of a call, but at most LIST_SECONDS."""
    return min(LIST_SECONDS, timeout)


async def list_tools(
    conversation: Conversation, most: int, within: float, *, modern: bool
) -> tuple[Catalogue, tuple[str, ...]]:
    """All tools in the server's order, and what is wrong with those left out. Raises Unlistable."""
    seconds = list_seconds(within)
    try:
        async with asyncio.timeout(seconds):
            return await _list_tools(conversation, most, seconds, modern=modern)
    except TimeoutError:
        raise Unlistable(f"it did not list its tools within {seconds:g} s") from None


async def _list_tools(
    conversation: Conversation, most: int, seconds: float, *, modern: bool
) -> tuple[Catalogue, tuple[str, ...]]:
    tools: dict[str, Definition] = {}
    complaints: list[str] = []
    cursor, seen, total = "", set[str](), Total()
    for _ in range(PAGES):
        params = list_params(conversation, cursor, modern=modern)
        page = await _page(conversation, params, seconds)
        if total.is_beyond(page.size, len(page.tools), conversation.message_bytes):
            complaints.insert(0, f"tools beyond the first {len(tools)} were left out ({TOO_LARGE})")
            break
        await yield_after(page.tools)
        for raws in in_steps(page.tools):
            definitions, problems = read_definitions(raws)
            complaints += problems
            complaints += [
                f"a second tool named {shown_name(name)!r} was left out"
                for name in definitions
                if name in tools
            ]
            tools |= {name: definitions[name] for name in definitions if name not in tools}
            await yield_after(raws)
        cursor = page.cursor
        if len(tools) > most:
            complaints.append(
                f"tools beyond the first {most} were left out (limits.toolsPerServer)"
            )
            tools = dict(islice(tools.items(), most))
            break
        if not cursor or cursor in seen:
            break
        seen.add(cursor)
    more = len(complaints) - MOST_COMPLAINTS
    if more > 0:
        complaints[MOST_COMPLAINTS:] = [f"{more} more tools were left out"]
    return Catalogue(tools), tuple(complaints)


def in_steps(raws: list[msgspec.Raw]) -> Iterator[list[msgspec.Raw]]:
    """A page in parts, each read in one step of the loop."""
    part: list[msgspec.Raw] = []
    size = 0
    for raw in raws:
        part.append(raw)
        size += len(raw)
        if len(part) == AT_ONCE or size >= AT_ONCE_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


async def yield_after(raws: Sequence[msgspec.Raw]) -> None:
    """Let other tasks run after a part of full size."""
    if len(raws) == AT_ONCE or sum(map(len, raws)) >= AT_ONCE_BYTES:
        await asyncio.sleep(0)


async def filter_in_steps(tool_filter: ToolFilter, names: Iterable[str]) -> None:
    """Decide which names the filter shows. It keeps that, so that those who ask later have only to look it up."""
    patterns, effort = len(tool_filter.include) + len(tool_filter.exclude), 0
    for name in names:
        effort += patterns * (NAME_EFFORT + len(name))
        tool_filter.shows(name)
        if effort > AT_ONCE_BYTES:
            effort = 0
            await asyncio.sleep(0)


async def page_elements(listed: msgspec.Raw) -> list[msgspec.Raw]:
    """The entries of a page. Other tasks run between the passes over a large one."""
    await yield_after([listed])
    check_elements(listed)
    await yield_after([listed])
    return read_elements(listed, checked=True)


def read_cursor(raw: msgspec.Raw) -> str:
    """The cursor of the next page; empty if there is none. Raises a DecodeError."""
    if len(raw) > LONGEST_CURSOR:
        raise TooLong("its cursor is longer than anybody would send")
    return msgspec.json.decode(raw, type=str | None) or ""


def request_meta(conversation: Conversation, capabilities: Members | None = None) -> Members:
    """`_meta` of our own requests to a modern server."""
    return handshake.request_meta(IMPLEMENTATION, capabilities or conversation.capabilities)


def list_params(conversation: Conversation, cursor: str, *, modern: bool) -> bytes:
    """The params of a `*/list` request."""
    params: dict[str, object] = {"cursor": cursor} if cursor else {}
    if modern:
        params["_meta"] = request_meta(conversation)
    return jsonrpc.encode(params)


async def _page(conversation: Conversation, params: bytes, seconds: float) -> _Page:
    answer = await conversation.ask("tools/list", params, seconds)
    if answer.error:
        error = jsonrpc.read_error(answer.error)
        if error.code == jsonrpc.METHOD_NOT_FOUND:  # a server without tools
            return _Page()
        raise Unlistable(f"it refused to list its tools: {error.message} ({error.code})")
    await yield_after([answer.result])
    try:
        page = msgspec.json.decode(answer.result, type=_RawPage)
        tools = await page_elements(page.tools)
        return _Page(tools, read_cursor(page.nextCursor), len(answer.result))
    except msgspec.DecodeError as error:
        raise Unlistable(f"its list of tools has no usable form: {error}") from None


class ToolList:
    """The tools of one server. Until they are listed, those of its last connection."""

    def __init__(self, spec: ServerSpec, context: PoolContext) -> None:
        self._address = spec.address
        self._spec = spec
        known = context.cache.held(spec)
        self.is_cached = known is not None  # so that hosts may have been shown it
        self.catalogue = Catalogue() if known is None else known.catalogue
        self.received = self.catalogue  # with tools that the lock file does not let through
        self.capabilities: tuple[str, ...] = ()  # of the host, as the server was told
        self.reviews: dict[ListKind, Review] = {}  # of its lists, where there is a lock file
        self.complaints: tuple[str, ...] = ()
        self.stale = False  # the server announced a change
        self.listed_at = 0.0  # the last attempt
        self.read_at = 0.0  # the last success
        self._unread = False  # an announced change is being read, or the last reading failed
        self._context = context
        self._cached: tuple[ServerSpec, KnownCatalogue] | None = None  # what we wrote to the cache
        self._tokens: Mapping[str, str] = {}  # that must not get there
        self._filter: ToolFilter | None = None
        self._last_filter = spec.tools
        self._visible: dict[str, bytes] = {}

    def visible(self, tool_filter: ToolFilter) -> dict[str, bytes]:
        """The names of the tools that the filter shows, each with its JSON form."""
        if self._filter is not tool_filter:
            self._filter = self._last_filter = tool_filter
            if self.read_at:
                self._context.record_idle_filters(self._address, self.idle_filters(tool_filter))
            self._visible = {
                name: jsonrpc.encode(name)
                for name in self.catalogue.tools
                if tool_filter.shows(name)
            }
        return self._visible

    def idle_filters(self, tool_filter: ToolFilter) -> tuple[str, ...]:
        """The patterns of the filter that match none of the tools."""
        return tuple(tool_filter.idle(self.catalogue.names))

    def fresh(self, seconds: float) -> bool:
        return not self.stale and time.monotonic() - self.listed_at < seconds

    @property
    def behind(self) -> bool:
        """May the server have other tools by now?"""
        return self.stale or self._unread

    def begin(self) -> None:
        """A reading begins: an announcement from here on needs another one."""
        self._unread = self.behind
        self.stale = False

    async def read(self, conversation: Conversation, within: float, *, modern: bool) -> bool:
        """List the tools; have they changed? Raises Unlistable or RequestFailed."""
        most, catalogue = self._context.limits.tools_per_server, None
        self._tokens = conversation.tokens
        try:
            catalogue, self.complaints = await list_tools(conversation, most, within, modern=modern)
        finally:
            self._unread = catalogue is None
        await filter_in_steps(self._last_filter, catalogue.tools)
        self.listed_at = self.read_at = time.monotonic()
        has_changed, self.received = catalogue != self.received, catalogue
        if has_changed and self._cached is not None:
            spec, known = self._cached
            self._cache(spec, msgspec.structs.replace(known, catalogue=catalogue), expected=True)
        if self._context.locks is not None:
            await self.admit("tools", {name: tool.raw for name, tool in catalogue.tools.items()})
            catalogue = self._admitted()
        return self._show(catalogue)

    def _show(self, catalogue: Catalogue) -> bool:
        """Offer these tools; are they others than before?"""
        if catalogue == self.catalogue:
            return False
        self.catalogue, self._filter = catalogue, None
        return True

    async def reread(self, conversation: Conversation, within: float, *, modern: bool) -> bool:
        """The same; a failure keeps the current list."""
        try:
            return await self.read(conversation, within, modern=modern)
        except (Unlistable, RequestFailed):
            self.listed_at = time.monotonic()  # no immediate retry
            return False

    # The lock file

    async def admit(self, kind: ListKind, raws: Mapping[str, bytes]) -> Mapping[str, State]:
        """Compare a list as received with the lock file. Returns what is not shown."""
        locks = self._context.locks
        if locks is None:
            return {}
        review = await locks.admit(self._spec, kind, raws, self.capabilities)
        self.reviews[kind] = review
        return review.blocked

    async def admit_agreed(self, agreed: Agreed) -> Agreed:
        """The same for its instructions, and for lists that it does not have."""
        if self._context.locks is None:
            return agreed
        declared, text = agreed.declared, msgspec.json.encode(agreed.instructions)
        blocked = await self.admit("instructions", {"": text} if agreed.instructions else {})
        if not declared.prompts:
            await self.admit("prompts", {})
        if not declared.resources:
            await self.admit("templates", {})
        return msgspec.structs.replace(agreed, instructions="") if blocked else agreed

    def blocked(self, kind: ListKind, name: str) -> State | None:
        """Why this definition is not shown; None if it is, or is not known."""
        review = self.reviews.get(kind)
        return None if review is None else review.blocked.get(name)

    def relock(self, spec: ServerSpec) -> bool:
        """The lock file or the level has changed: compare again. Are other tools offered now?"""
        self._spec, locks = spec, self._context.locks
        if locks is None:
            self.reviews = {}
            return self._show(self.received)
        if "tools" not in self.reviews:  # listed before there was a lock file, or not at all
            self.stale = self.read_at > 0
            return False
        for kind, review in self.reviews.items():
            self.reviews[kind] = now = locks.admit_again(spec, kind, review, self.capabilities)
            if spec.lock == "pin" and "unrecorded" in now.blocked.values():
                self.stale = True  # reading it again may record it
        return self._show(self._admitted())

    def _admitted(self) -> Catalogue:
        blocked = self.reviews["tools"].blocked
        tools = self.received.tools
        return Catalogue({name: tool for name, tool in tools.items() if name not in blocked})

    # Cache

    def remember(self, spec: ServerSpec, agreed: Agreed, seconds: float, asking: Members) -> None:
        """Cache what a server that is ready offers; its primitives are those of the last listing.

        `asking` is what its host can be asked for, as the server was told.
        """
        before = self._context.cache.received(spec.key)
        self._cache(
            spec,
            KnownCatalogue(
                self.received,
                is_modern(agreed.revision),
                agreed.revision,
                agreed.name,
                agreed.version,
                agreed.instructions,
                msgspec.structs.asdict(agreed.declared),
                seconds,
                host_capabilities=capability_names(asking),
                offers={} if before is None else before.offers,
                extensions=agreed.extensions,
            ),
        )

    def remember_primitives(self, kind: str, raws: tuple[bytes, ...]) -> None:
        """Cache a list of its primitives."""
        if self._cached is not None and self._cached[1].offers.get(kind) != raws:
            spec, known = self._cached
            self._cache(spec, msgspec.structs.replace(known, offers={**known.offers, kind: raws}))

    def retire(self) -> None:
        """The connection is being replaced: cache nothing more."""
        self._cached = None

    def _cache(self, spec: ServerSpec, known: KnownCatalogue, *, expected: bool = False) -> None:
        self._cached = (spec, known)
        self._context.cache.note(spec, known, dict(self._tokens), expected=expected)


class ToolRefresh:
    """Reads a server's tools again: one reading at a time, shared by all who ask meanwhile."""

    def __init__(self, tools: ToolList) -> None:
        self._scope: TaskScope | None = None
        self._tools = tools
        self._reading: asyncio.Task[None] | None = None

    @property
    def is_under_way(self) -> bool:
        return self._reading is not None

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Allow readings for the duration of the block."""
        async with task_scope() as scope:
            self._scope = scope
            try:
                yield
            finally:
                self._scope = None

    async def wait(self, read: Callable[[], Coroutine[Any, Any, None]], seconds: float) -> None:
        """Wait, at most `seconds`, for a list that is as new as the server's last announcement.

        A reading that began before that announcement does not count: the next one does, and all who
        waited share it.
        """
        until = time.monotonic() + seconds
        if self._reading is not None and self._tools.stale:
            await asyncio.wait([self._reading], timeout=seconds)
        if self._reading is None and self._scope is not None:
            self._tools.begin()  # now, not when the task first runs
            self._reading = self._scope.start(read(), "list tools")
            self._reading.add_done_callback(self._ended)
        if self._reading is not None:  # it goes on for the others where one leaves early
            await asyncio.wait([self._reading], timeout=max(0.0, until - time.monotonic()))

    def _ended(self, reading: asyncio.Task[None]) -> None:
        self._reading = None
