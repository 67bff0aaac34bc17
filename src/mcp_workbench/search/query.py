"""One query over all tools that are known: which fit, which stand beside them, what is missing."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from mcp_workbench.core.catalogue import Catalogue, Definition
from mcp_workbench.core.names import ServerAddress, ToolIdentifier
from mcp_workbench.core.spec import ServerSpec, ToolboxSpec
from mcp_workbench.search.fields import About
from mcp_workbench.search.index import Hit, Index, Shows
from mcp_workbench.search.words import Words

DEEP = 100  # hits of which the best servers are told
BEST_SERVERS = 3
MOST_NAMED = 20  # tools that a query may ask for by their names, whatever its limit
BEST_TOOLS = 3  # of a server, whose scores make its own
SHORT = 8  # words; how well a longer query is met, its best score does not tell
WEAK = 0.15  # of what a tool could score
NAMED = 1.0  # the score of a tool that is not looked for, but named


class KnownServer(msgspec.Struct, frozen=True):
    """A server whose tools are known, connected or not."""

    spec: ServerSpec
    toolbox: ToolboxSpec
    catalogue: Catalogue
    title: str = ""
    text: str = ""

    @property
    def fingerprint(self) -> tuple[object, ...]:
        """Equal as long as nothing that is searched has changed."""
        return (self.catalogue, self.spec.tools, self.title, self.text, self.toolbox.description)

    @property
    def about(self) -> About:
        box = self.toolbox
        words = f"{box.name} {box.description}"
        return About(self.spec.address.server, self.title, self.text, words)

    def visible(self) -> list[Definition]:
        shows = self.spec.tools.shows
        return [tool for name, tool in self.catalogue.tools.items() if shows(name)]


class Knowledge(msgspec.Struct, frozen=True):
    """All servers that are seen from here: those whose tools are known, and the others."""

    known: dict[ServerAddress, KnownServer]
    unknown: tuple[ServerSpec, ...]


class Query(msgspec.Struct, frozen=True):
    """What is looked for, and where."""

    words: str
    toolbox: str = ""
    server: str = ""
    limit: int = 5

    def covers(self, address: ServerAddress) -> bool:
        return self.toolbox in ("", address.toolbox) and self.server in ("", address.server)


class FoundTool(msgspec.Struct, frozen=True):
    """A hit; `twins` are the same tool of the same server in other toolboxes."""

    tool: ToolIdentifier
    definition: Definition
    score: float = 0.0
    twins: tuple[ServerAddress, ...] = ()


class Siblings(msgspec.Struct, frozen=True):
    """The other tools of a server that fits."""

    address: ServerAddress
    names: tuple[str, ...]


class Unread(msgspec.Struct, frozen=True):
    """A server whose tools are not known: not asked yet, being asked, or in vain for a reason."""

    address: ServerAddress
    starting: bool = False
    reason: str = ""


class Found(msgspec.Struct, frozen=True):
    """The answer to a query."""

    tools: tuple[FoundTool, ...]
    total: int  # tools that were looked at
    siblings: tuple[Siblings, ...] = ()
    strange: tuple[str, ...] = ()  # words that no tool has
    unknown: tuple[Unread, ...] = ()  # servers that could not be looked at
    weak: bool = False
    named: bool = False  # the query is the tools' names
    left_out: tuple[ToolIdentifier, ...] = ()  # named, too, but more than are shown at a time
    wordless: bool = False  # there is nothing in the query to look for


class Search:
    """One query over what is known."""

    def __init__(
        self, index: Index, knowledge: Knowledge, words: Words, shows: Shows | None
    ) -> None:
        self._index = index
        self._known = knowledge.known
        self._unknown = knowledge.unknown
        self._words = words
        self._shows = shows

    def find(self, query: Query) -> Found:
        total = self._index.count(self._shows)
        unknown = tuple(Unread(s.address) for s in self._unknown if query.covers(s.address))
        if names := self._listed(query.words):
            tools = tuple(self._tool(Hit(tool, NAMED)) for tool in names[:MOST_NAMED])
            left_out = tuple(names[MOST_NAMED:])
            return Found(tools, total, unknown=unknown, named=True, left_out=left_out)
        index, asked = self._index, self._words.asked(query.words)
        hits = index.ranked(asked, self._shows, DEEP)
        strange = tuple(word for stem, word in asked.spelled.items() if not index.holds(stem))
        best = hits[0].score if hits else NAMED  # whoever is called by name is as good as any
        exact = [Hit(tool, best) for tool in index.named(query.words, self._shows)]
        first = {hit.tool for hit in exact}
        ranked = [*exact, *(hit for hit in hits if hit.tool not in first)]
        shown = self._distinct(ranked, query.limit)
        weak = bool(hits) and not exact and len(asked.times) <= SHORT
        weak = weak and hits[0].score < WEAK * index.most_possible(asked)
        siblings = self._siblings(hits or exact, {one.tool for one in shown})
        wordless = not asked.times
        return Found(tuple(shown), total, siblings, strange, unknown, weak, wordless=wordless)

    def _listed(self, words: str) -> list[ToolIdentifier]:
        """The tools of a query that is nothing but their whole names."""
        parts = [part for part in re.split(r"[,\s]+", words) if part]
        whole = self._index.named(words, self._shows) if "/" in words else []
        if whole or not parts or not all("/" in part for part in parts):
            return whole
        found = [self._index.named(part, self._shows) for part in parts]
        return list(dict.fromkeys(tool for tools in found for tool in tools)) if all(found) else []

    def _tool(self, hit: Hit) -> FoundTool:
        tools = self._known[hit.tool.address].catalogue.tools
        return FoundTool(hit.tool, tools[hit.tool.tool], hit.score)

    def _distinct(self, hits: Iterable[Hit], most: int) -> list[FoundTool]:
        """A server that stands in several toolboxes is one hit that names them all."""
        found: dict[tuple[str, Definition], FoundTool] = {}
        names: set[tuple[str, str]] = set()  # beyond the most, only twins of these matter
        for hit in hits:
            name = (hit.tool.server, hit.tool.tool)
            if len(found) >= most and name not in names:
                continue
            one = self._tool(hit)
            key = (hit.tool.server, one.definition)
            if key in found:
                twins = (*found[key].twins, hit.tool.address)
                found[key] = msgspec.structs.replace(found[key], twins=twins)
            elif len(found) < most:
                found[key] = one
                names.add(name)
        return list(found.values())

    def _siblings(self, hits: list[Hit], shown: set[ToolIdentifier]) -> tuple[Siblings, ...]:
        """Those of the best servers, each as good as its three best tools together."""
        found: dict[ServerAddress, list[float]] = {}
        for hit in hits:  # the best come first
            found.setdefault(hit.tool.address, []).append(hit.score)
        best = sorted(found, key=lambda a: (-sum(found[a][:BEST_TOOLS]), a))
        told: dict[tuple[str, ...], Siblings] = {}
        for address in best:
            names = self._index.names(address)
            hidden = {tool.tool for tool in shown if tool.server == address.server}
            rest = tuple(name for name in names if name not in hidden)
            told.setdefault((address.server, *names), Siblings(address, rest))
            if len(told) == BEST_SERVERS:
                break
        return tuple(one for one in told.values() if one.names)
