"""Searches the tools of all toolboxes that a host may see.

Servers whose tools nobody has ever read are started by the first search; those that are known are not.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from mcp_workbench.core.errors import InvalidCall, no_server_anywhere
from mcp_workbench.core.spec import ServerAddress, ServerKey, ServerSpec, Snapshot, ToolboxSpec
from mcp_workbench.gateway.views import View
from mcp_workbench.search.index import Index, Search, Shows
from mcp_workbench.search.queries import (
    Query,
    SearchableServer,
    SearchResult,
    SearchScope,
    Unread,
    Words,
)
from mcp_workbench.timing import deadline
from mcp_workbench.transport.tasks import task_scope

if TYPE_CHECKING:
    from mcp_workbench.core.catalogue import Catalogue
    from mcp_workbench.search.queries import FieldCounts
    from mcp_workbench.upstream.connection import Connection

Description = tuple["Catalogue", str, str]

AT_ONCE = 150  # tools whose words are counted between two messages; more of them in a thread
BYTES_AT_ONCE = 32 << 10  # of their definitions, where every word may be a new one
INDEXES = 16  # indexes that are kept: hosts may see different toolboxes
MOST_CHARACTERS = 20_000  # of a query; nobody searches for a longer text
MOST_READ = 32  # servers that one search starts; the next one starts more
MOST_SHOWN = 5  # servers that a report of progress names
AGAIN = 60.0  # seconds until a search may start a server again that did not answer
# Seconds for servers that a search starts; the tools of slower ones are found by a later search.
READ_WAIT = deadline(5.0)
FIRST_WAIT = deadline(20.0)  # as long as there is no tool at all to search


class Reading(msgspec.Struct, frozen=True):
    """How a search reads servers of which nothing is known."""

    report: Callable[[int, int, str], None] | None = None  # of how many, how many are read; a text
    lazy: bool = False  # reads those of lazy toolboxes, too
    wait: float = 0.0  # seconds; 0: the usual ones
    skipped: frozenset[ServerAddress] = frozenset()  # are not started


USUAL_READING = Reading()


def known_tools(
    view: View, before: Mapping[ServerAddress, SearchableServer] | None = None
) -> SearchScope:
    """Return what is known of every server's tools, without starting any.

    If nothing has changed since `before`, the same objects are returned.
    """
    known: dict[ServerAddress, SearchableServer] = {}
    unknown: list[ServerSpec] = []
    boxes = view.snapshot.toolboxes.values()
    specs = (spec for box in boxes for spec in box.servers.values())
    live = {connection.spec.address: connection for connection in view.live(specs)}
    for box in boxes:
        for spec in box.servers.values():
            address = spec.address
            description = _description(view, spec, live.get(address))
            old = before.get(address) if before else None
            if description is None:
                unknown.append(spec)
            elif old is not None and _is_current(old, box, description):
                known[address] = old
            else:
                known[address] = SearchableServer(spec, box, *description)
    return SearchScope(known, tuple(unknown))


def _description(view: View, spec: ServerSpec, live: Connection | None) -> Description | None:
    """Return a server's tools, title and instructions: now, or when it was last connected."""
    if live is not None:
        agreed = getattr(live.state, "agreed", None)
        return live.catalogue, getattr(agreed, "name", ""), getattr(agreed, "instructions", "")
    known = view.remembered(spec)
    return None if known is None else (known.catalogue, known.server_name, known.instructions)


def _is_current(old: SearchableServer, box: ToolboxSpec, description: Description) -> bool:
    catalogue, title, text = description
    return (
        old.catalogue is catalogue
        and old.toolbox is box  # which holds its entry, too
        and old.title == title
        and old.text == text
    )


async def find(view: View, query: Query, reading: Reading = USUAL_READING) -> SearchResult:
    """Return the tools of this view that match the query. Raises as `Finder.find` does."""
    gateway = view.gateway
    if gateway.finder is None:
        gateway.finder = Finder()
    return await gateway.finder.find(view, query, reading)


class Indexed:
    """What is known of the tools of some toolboxes, and an index of it."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.knowledge = SearchScope({}, ())


class Finder:
    """The indexes of one gateway, one for each set of toolboxes that a host sees."""

    def __init__(self) -> None:
        self._words = Words()
        self._counted: dict[bytes, FieldCounts] = {}
        self._tried: dict[ServerKey, float] = {}  # servers that a search has started, and when
        self._indexes: OrderedDict[tuple[str, tuple[str, ...]], Indexed] = OrderedDict()

    async def find(
        self, view: View, query: Query, reading: Reading = USUAL_READING
    ) -> SearchResult:
        """Raises NotFound for an unknown toolbox or server, InvalidCall for a query that is too long."""
        if len(query.words) > MOST_CHARACTERS:
            text = f"query: must have at most {MOST_CHARACTERS} characters"
            raise InvalidCall(f"Invalid parameters: {text}")
        shows = _scope(view.snapshot, query)
        knowledge = known_tools(view, self._index_of(view).knowledge.known)
        if knowledge.unknown and await self._read_unknown(view, knowledge, query, reading):
            knowledge = known_tools(view, knowledge.known)
        indexed = await self._current(view, knowledge)
        result = Search(indexed.index, indexed.knowledge, self._words, shows).find(query)
        return _with_states(result, view) if result.unknown else result

    async def _read_unknown(
        self, view: View, knowledge: SearchScope, query: Query, reading: Reading
    ) -> bool:
        """Start servers that nobody has read, and wait a while; slow ones go on in the background.

        Returns whether there were any to start.
        """
        boxes = view.snapshot.toolboxes
        unknown = [
            spec
            for spec in knowledge.unknown
            if query.covers(spec.address)
            and spec.address not in reading.skipped
            and (reading.lazy or boxes[spec.address.toolbox].discover == "eager")
        ]
        wanted = self._to_read(view, unknown) if unknown else []
        if not wanted:
            return False
        known = knowledge.known.items()
        any_known = any(query.covers(address) and one.catalogue.tools for address, one in known)
        await _read(view.begun(wanted), reading, any_known=any_known)
        return True

    def _to_read(self, view: View, unknown: list[ServerSpec]) -> list[ServerSpec]:
        """Leave out those that were tried a moment ago, unless they are still likely to answer."""
        now = time.monotonic()
        healths = view.gateway.health(view.snapshot)
        starting = {health.address for health in healths if health.state == "starting"}
        wanted: list[ServerSpec] = []
        for spec in unknown:
            since = now - self._tried.get(spec.key, -AGAIN)
            if len(wanted) == MOST_READ:
                break
            if since >= AGAIN:
                self._tried[spec.key] = now
            elif spec.address not in starting or since > FIRST_WAIT:
                continue
            wanted.append(spec)
        return wanted

    async def _current(self, view: View, knowledge: SearchScope) -> Indexed:
        """Return the index of what is known now; a large one is built in a thread, and swapped whole."""
        tries = 3  # servers may change while a large one is built
        while True:
            indexed = self._index_of(view)
            news = _news(indexed, knowledge)
            tools = [tool for one in news for tool in one.catalogue.tools.values()]
            fresh = [tool for tool in tools if tool.raw not in self._counted]
            few = len(tools) <= AT_ONCE
            if few and sum(len(tool.raw) for tool in fresh) <= BYTES_AT_ONCE:
                _bring_up_to_date(indexed, knowledge, news)
                return indexed
            if tries == 0:  # it changes all the time: search what was known a moment ago
                return indexed
            tries -= 1
            if few:
                index = Index(self._words, self._counted)
                await asyncio.to_thread(index.count_words, fresh)
            else:
                made = await asyncio.to_thread(self._made, knowledge)
                self._indexes[_index_key(view)] = made
            knowledge = known_tools(view, self._index_of(view).knowledge.known)

    def _index_of(self, view: View) -> Indexed:
        key = _index_key(view)
        indexed = self._indexes.get(key)
        if indexed is None:
            indexed = self._indexes[key] = Indexed(Index(self._words, self._counted))
        self._indexes.move_to_end(key)
        while len(self._indexes) > INDEXES:
            self._indexes.popitem(last=False)
        return indexed

    def _made(self, knowledge: SearchScope) -> Indexed:
        indexed = Indexed(Index(self._words, self._counted))
        for one in knowledge.known.values():
            index = indexed.index
            index.put(one.spec.address, one.visible(), one.about, one.fingerprint, weigh=False)
        indexed.index.fill()
        indexed.knowledge = knowledge
        return indexed


def _index_key(view: View) -> tuple[str, tuple[str, ...]]:
    """Whose tools they are, where servers may list others for each principal; and the toolboxes."""
    snapshot = view.snapshot
    return view.scope.principal if snapshot.has_principals else "", tuple(snapshot.toolboxes)


async def _read(begun: list[Connection], reading: Reading, *, any_known: bool) -> None:
    """Wait until these servers are ready or have failed, within the time that a search has."""
    total = len(begun)
    loop = asyncio.get_running_loop()
    since = loop.time()
    async with task_scope() as waiting:
        tasks = {waiting.start(c.ready(), "read"): str(c.spec.address) for c in begun}
        left: set[asyncio.Task[Any]] = set(tasks)
        while left:
            if reading.report is not None:
                names = [name for task, name in tasks.items() if task in left]
                more = f" and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else ""
                text = f"reading {', '.join(names[:MOST_SHOWN])}{more}"
                reading.report(total - len(left), total, text)
            known = any_known or any(c.usable and c.catalogue.tools for c in begun)
            wait = reading.wait or (READ_WAIT if known else FIRST_WAIT)
            seconds = since + wait - loop.time()
            if seconds <= 0:
                return
            done, left = await asyncio.wait(
                left, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                return
    if reading.report is not None:
        reading.report(total, total, "read")


def _news(indexed: Indexed, knowledge: SearchScope) -> list[SearchableServer]:
    """Return the servers whose tools the index does not have, or has in an older version."""
    before = indexed.knowledge.known
    others = [one for at, one in knowledge.known.items() if before.get(at) is not one]
    return [
        one for one in others if not indexed.index.is_current(one.spec.address, one.fingerprint)
    ]


def _bring_up_to_date(
    indexed: Indexed, knowledge: SearchScope, news: list[SearchableServer]
) -> None:
    for one in news:
        indexed.index.put(one.spec.address, one.visible(), one.about, one.fingerprint)
    if len(indexed.index.servers) != len(knowledge.known):
        for address in [a for a in indexed.index.servers if a not in knowledge.known]:
            indexed.index.remove(address)
    indexed.knowledge = knowledge


def _with_states(result: SearchResult, view: View) -> SearchResult:
    """Return the result with the states of the servers that were not searched."""
    states = {health.address: health for health in view.gateway.health(view.snapshot)}
    unknown: list[Unread] = []
    for server in result.unknown:
        state = states[server.address]
        starting = state.state == "starting"
        unknown.append(Unread(server.address, starting, "" if starting else state.reason))
    return msgspec.structs.replace(result, unknown=tuple(unknown))


def _scope(snapshot: Snapshot, query: Query) -> Shows | None:
    if query.toolbox:
        box = snapshot.toolbox(query.toolbox)
        if query.server:
            box.server(query.server)
    elif query.server:
        names = {name for box in snapshot.toolboxes.values() for name in box.servers}
        if query.server not in names:
            raise no_server_anywhere(query.server, sorted(names))
    if not (query.toolbox or query.server):
        return None
    return query.covers
