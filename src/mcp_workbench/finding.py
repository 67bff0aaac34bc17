"""Finding tools in all toolboxes that a host may see, without starting a server that is known."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

import msgspec

from mcp_workbench.core.errors import InvalidCall, no_server_anywhere
from mcp_workbench.core.names import ServerAddress
from mcp_workbench.core.spec import ServerSpec, Snapshot, ToolboxSpec
from mcp_workbench.search.index import Index, Shows
from mcp_workbench.search.query import Found, Knowledge, KnownServer, Query, Search, Unread
from mcp_workbench.search.words import Words
from mcp_workbench.workbench import Workbench

if TYPE_CHECKING:
    from mcp_workbench.search.fields import Counted

AT_ONCE = 150  # tools whose words are counted between two messages; more of them in a thread
VIEWS = 16  # indexes that are kept: hosts may see different toolboxes
MOST_CHARACTERS = 20_000  # of a query; a text that long is to be looked into, not for
AGAIN = 60.0  # seconds until a search may start a server again that did not answer one
EAGER_WAIT = 5.0  # seconds for servers that a search starts; slower ones are known to the next


def known_tools(workbench: Workbench) -> Knowledge:
    """What is known of every server's tools. Nothing is started for it."""
    known: dict[ServerAddress, KnownServer] = {}
    unknown: list[ServerSpec] = []
    for toolbox in workbench.snapshot.toolboxes.values():
        for spec in toolbox.servers.values():
            server = _known(workbench, toolbox, spec)
            if server is None:
                unknown.append(spec)
            else:
                known[spec.address] = server
    return Knowledge(known, tuple(unknown))


def _known(workbench: Workbench, toolbox: ToolboxSpec, spec: ServerSpec) -> KnownServer | None:
    for live in workbench.live((spec,)):
        agreed = getattr(live.state, "agreed", None)
        title, text = getattr(agreed, "name", ""), getattr(agreed, "instructions", "")
        return KnownServer(spec, toolbox, live.catalogue, title, text)
    known = workbench.remembered(spec)
    if known is None:
        return None
    title, text = getattr(known, "server_name", ""), getattr(known, "instructions", "")
    return KnownServer(spec, toolbox, known.catalogue, title, text)


class Finder:
    """The indexes of one workbench, one for each set of toolboxes that somebody sees."""

    def __init__(self) -> None:
        self._words = Words()
        self._counted: dict[bytes, Counted] = {}
        self._tried: dict[ServerAddress, float] = {}  # servers that a search has started, and when
        self._indexes: OrderedDict[tuple[str, ...], Index] = OrderedDict()

    @staticmethod
    def of(workbench: Workbench) -> Finder:
        return workbench.beside.setdefault("finder", Finder())

    async def find(self, workbench: Workbench, query: Query) -> Found:
        """Raises NotFound where the query names a place that is not there, InvalidCall where it is too long."""
        if len(query.words) > MOST_CHARACTERS:
            text = f"query: must have at most {MOST_CHARACTERS} characters"
            raise InvalidCall(f"Invalid parameters: {text}")
        shows = _scope(workbench.snapshot, query)
        await self._discover(workbench, query)
        index, knowledge = await self._current(workbench)
        found = Search(index, knowledge, self._words, shows).find(query)
        return _with_states(found, workbench) if found.unknown else found

    async def _discover(self, workbench: Workbench, query: Query) -> None:
        """Start unknown servers where their toolbox allows it; who is slow goes on by itself."""
        boxes, now = workbench.snapshot.toolboxes, time.monotonic()
        wanted = [
            spec
            for spec in known_tools(workbench).unknown
            if boxes[spec.address.toolbox].discover == "eager"
            and query.covers(spec.address)
            and now - self._tried.get(spec.address, -AGAIN) >= AGAIN
        ]
        if wanted:
            self._tried.update((spec.address, now) for spec in wanted)
            try:
                async with asyncio.timeout(EAGER_WAIT):
                    await workbench.connections(wanted)
            except TimeoutError:
                return

    async def _current(self, workbench: Workbench) -> tuple[Index, Knowledge]:
        """The index of what is known now; a large one is made off the loop, and swapped whole."""
        for _ in range(3):  # while it is made, servers may change
            index, knowledge = self._index(workbench), known_tools(workbench)
            news = _news(index, knowledge)
            if sum(len(one.catalogue.tools) for one in news) <= AT_ONCE:
                break
            made = await asyncio.to_thread(self._made, list(knowledge.known.values()))
            self._indexes[tuple(workbench.snapshot.toolboxes)] = made
        index, knowledge = self._index(workbench), known_tools(workbench)
        for address in [a for a in index.servers if a not in knowledge.known]:
            index.remove(address)
        for one in _news(index, knowledge):
            index.put(one.spec.address, one.visible(), one.about, one.fingerprint)
        return index, knowledge

    def _index(self, workbench: Workbench) -> Index:
        key = tuple(workbench.snapshot.toolboxes)
        index = self._indexes.setdefault(key, Index(self._words, self._counted))
        self._indexes.move_to_end(key)
        while len(self._indexes) > VIEWS:
            self._indexes.popitem(last=False)
        return index

    def _made(self, servers: list[KnownServer]) -> Index:
        index = Index(self._words, self._counted)
        for one in servers:
            index.put(one.spec.address, one.visible(), one.about, one.fingerprint, weigh=False)
        index.fill()
        return index


def _news(index: Index, knowledge: Knowledge) -> list[KnownServer]:
    known = knowledge.known.items()
    return [one for at, one in known if not index.is_current(at, one.fingerprint)]


def _with_states(found: Found, workbench: Workbench) -> Found:
    """The same with what is known of the servers that could not be looked at."""
    states = {one.address: one for one in workbench.health()}
    unknown: list[Unread] = []
    for one in found.unknown:
        state = states[one.address]
        starting = state.state == "starting"
        unknown.append(Unread(one.address, starting, "" if starting else state.reason))
    return msgspec.structs.replace(found, unknown=tuple(unknown))


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
