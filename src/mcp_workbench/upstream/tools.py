"""Asking a server for all its tools, page by page, and to be told when they change.
The tools of one live server: listed, kept, and shown through a filter."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec

from mcp_workbench.bounded import MOST_ELEMENTS, check_elements, read_elements
from mcp_workbench.core.catalogue import Catalogue, Definition, read_definitions
from mcp_workbench.core.errors import shown_name
from mcp_workbench.core.known import Known
from mcp_workbench.core.names import ServerAddress
from mcp_workbench.core.spec import ServerSpec, ToolFilter
from mcp_workbench.era.declared import Declared
from mcp_workbench.era.negotiate import Agreed
from mcp_workbench.era.ourselves import OURSELVES
from mcp_workbench.era.revision import (
    CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    MODERN,
    VERSION_KEY,
    is_modern,
)
from mcp_workbench.upstream.context import Surroundings
from mcp_workbench.upstream.conversation import Conversation
from mcp_workbench.upstream.responses import Lost
from mcp_workbench.wire import envelope

LIST_SECONDS = 30.0  # for a whole list, however many pages it has
PAGES = 100  # a server that never ends its list is cut here
MOST_COMPLAINTS = 50
TOO_LARGE = f"a whole list has limits.messageBytes at most, and {MOST_ELEMENTS} entries"
AT_ONCE = 500  # entries of a page that are read before others have a turn, or
AT_ONCE_BYTES = 1 << 20


class Unlistable(Exception):
    """The server did not say what it offers."""


class _RawPage(msgspec.Struct):
    tools: msgspec.Raw = msgspec.Raw(b"[]")
    nextCursor: str | None = None  # noqa: N815 - the wire's word


class _Page(msgspec.Struct):
    tools: list[msgspec.Raw] = []
    nextCursor: str | None = None  # noqa: N815 - the wire's word
    size: int = 0  # bytes


class Total:
    """What all pages of a list have come to: together no more than a single one may have."""

    def __init__(self) -> None:
        self._bytes = self._entries = 0

    def is_beyond(self, size: int, entries: int, most: int) -> bool:
        """With one more page of this size."""
        self._bytes += size
        self._entries += entries
        return self._bytes > most or self._entries > MOST_ELEMENTS


def list_seconds(timeout: float) -> float:
    """How long a server has for a whole list: as long as for a call, but not longer than others wait."""
    return min(LIST_SECONDS, timeout)


async def list_tools(
    conversation: Conversation, most: int, within: float, *, modern: bool
) -> tuple[Catalogue, tuple[str, ...]]:
    """Every tool in the server's order, and what was wrong with those left out. Raises Unlistable."""
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
        params = list_params(cursor, OURSELVES, modern=modern)
        page = await _page(conversation, params, seconds)
        if total.is_beyond(page.size, len(page.tools), conversation.message_bytes):
            complaints.insert(0, f"tools beyond the first {len(tools)} were left out ({TOO_LARGE})")
            break
        for raws in in_turns(page.tools):
            found, wrong = read_definitions(raws)
            complaints += wrong
            complaints += [
                f"a second tool named {shown_name(name)!r} was left out"
                for name in found
                if name in tools
            ]
            tools |= {name: found[name] for name in found if name not in tools}
            await others_turn(raws)
        cursor = page.nextCursor or ""
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


def in_turns(raws: list[msgspec.Raw]) -> Iterator[list[msgspec.Raw]]:
    """A page in parts that are read one at a time."""
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


async def others_turn(raws: Sequence[msgspec.Raw]) -> None:
    """After a part that was not the last and only one."""
    if len(raws) == AT_ONCE or sum(map(len, raws)) >= AT_ONCE_BYTES:
        await asyncio.sleep(0)


async def page_elements(listed: msgspec.Raw) -> list[msgspec.Raw]:
    """The entries of a page, which is read several times; others have a turn before each of them."""
    await others_turn([listed])
    check_elements(listed)
    await others_turn([listed])
    return read_elements(listed, checked=True)


def listen(
    conversation: Conversation, ourselves: dict[str, str], notifications: dict[str, object]
) -> int:
    """Ask a modern server to announce changes; they arrive like a legacy server's."""
    params = {"_meta": _stamp(ourselves), "notifications": notifications}
    number = conversation.pending.reserve()  # answered when the server ends it, if ever
    request = envelope.request(number, "subscriptions/listen", envelope.encode(params))
    conversation.channel.send(request)
    return number


def changes(declared: Declared) -> dict[str, object]:
    """The changes of lists that a server announces, as one asks to hear of them."""
    offered = {
        "toolsListChanged": declared.tools_changed,
        "promptsListChanged": declared.prompts_changed,
        "resourcesListChanged": declared.resources_changed,
    }
    return {name: True for name, said in offered.items() if said}


def _stamp(ourselves: dict[str, str]) -> dict[str, object]:
    return {VERSION_KEY: MODERN, CLIENT_INFO_KEY: ourselves, CAPABILITIES_KEY: {}}


def list_params(cursor: str, ourselves: dict[str, str], *, modern: bool) -> bytes:
    params: dict[str, object] = {"cursor": cursor} if cursor else {}
    if modern:
        params["_meta"] = _stamp(ourselves)
    return envelope.encode(params)


async def _page(conversation: Conversation, params: bytes, seconds: float) -> _Page:
    answer = await conversation.ask("tools/list", params, seconds)
    if answer.error:
        error = envelope.read_error(answer.error)
        if error.code == envelope.METHOD_NOT_FOUND:  # it has no tools, and that is allowed
            return _Page()
        raise Unlistable(f"it refused to list its tools: {error.message} ({error.code})")
    await others_turn([answer.result])
    try:
        page = msgspec.json.decode(answer.result, type=_RawPage)
        tools = await page_elements(page.tools)
        return _Page(tools, page.nextCursor, len(answer.result))
    except msgspec.DecodeError as error:
        raise Unlistable(f"its list of tools has no usable form: {error}") from None


class Wares:
    """Until it is listed, a server has the tools that it had when it was last connected."""

    def __init__(self, address: ServerAddress, around: Surroundings) -> None:
        known = around.memory.held(address)
        self.catalogue = Catalogue() if known is None else known.catalogue
        self.complaints: tuple[str, ...] = ()
        self.stale = False  # the server says that they have changed
        self.listed_at = 0.0  # or tried to
        self.read_at = 0.0
        self._unread = False  # what it has said of changes, or the last reading failed
        self._around = around
        self._told: tuple[ServerSpec, Known] | None = None  # what the memory knows from here
        self._filter: ToolFilter | None = None
        self._visible: dict[str, bytes] = {}

    def visible(self, shown: ToolFilter) -> dict[str, bytes]:
        """The names of the tools that this filter shows, each with its JSON form."""
        if self._filter is not shown:
            self._filter = shown
            self._visible = {
                name: envelope.encode(name) for name in self.catalogue.tools if shown.shows(name)
            }
        return self._visible

    def fresh(self, seconds: float) -> bool:
        return not self.stale and time.monotonic() - self.listed_at < seconds

    @property
    def behind(self) -> bool:
        """Is there reason to think that the server has others by now?"""
        return self.stale or self._unread

    def begin(self) -> None:
        """A reading begins: an announcement from here on asks for yet another."""
        self._unread = self.behind
        self.stale = False

    async def read(self, talk: Conversation, within: float, *, modern: bool) -> bool:
        """Ask the server for all of them, within this time. Are they others than before?"""
        most, found = self._around.limits.tools_per_server, None
        try:
            found, self.complaints = await list_tools(talk, most, within, modern=modern)
        finally:
            self._unread = found is None
        self.listed_at = self.read_at = time.monotonic()
        if found == self.catalogue:
            return False
        self.catalogue, self._filter = found, None
        if self._told is not None:
            spec, known = self._told
            self._note(spec, msgspec.structs.replace(known, catalogue=found), expected=True)
        return True

    async def read_again(self, talk: Conversation, within: float, *, modern: bool) -> bool:
        """The same; failing to leaves what we have."""
        try:
            return await self.read(talk, within, modern=modern)
        except (Unlistable, Lost):
            self.listed_at = time.monotonic()  # not again at once
            return False

    # For the next time

    def remember(self, spec: ServerSpec, said: Agreed, seconds: float) -> None:
        """It takes calls: this is what it has, and beside tools what it had when it was last asked."""
        before = self._around.memory.held(spec.address)
        self._note(
            spec,
            Known(
                self.catalogue,
                is_modern(said.revision),
                said.revision,
                said.name,
                said.version,
                said.instructions,
                msgspec.structs.asdict(said.declared),
                seconds,
                offers={} if before is None else before.offers,
            ),
        )

    def remember_offers(self, kind: str, raws: tuple[bytes, ...]) -> None:
        """Beside tools, it has these."""
        if self._told is not None and self._told[1].offers.get(kind) != raws:
            spec, known = self._told
            self._note(spec, msgspec.structs.replace(known, offers={**known.offers, kind: raws}))

    def retire(self) -> None:
        """Another server takes its place: what this one has is no news any more."""
        self._told = None

    def _note(self, spec: ServerSpec, known: Known, *, expected: bool = False) -> None:
        self._told = (spec, known)
        self._around.memory.note(spec, known, expected=expected)
