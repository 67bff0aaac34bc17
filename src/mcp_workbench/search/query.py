"""A query over all known tools: the best matches, related tools, and servers that are not known."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from mcp_workbench.core.catalogue import Catalogue, Definition
from mcp_workbench.core.spec import ServerAddress, ServerSpec, ToolboxSpec, ToolIdentifier
from mcp_workbench.search.index import Hit, Index, Shows
from mcp_workbench.search.words import ServerDescription, Words

DEEP = 100  # hits from which the best servers are determined
BEST_SERVERS = 3
MOST_NAMED = 20  # tools that a query may ask for by their names, whatever its limit
BEST_TOOLS = 3  # of a server, whose scores are summed for the server's own
SHORT = 8  # words; of a longer query, a low score says nothing
WEAK = 0.15  # of the best possible score
NAMED = 1.0  # the score of a tool that the query names


class SearchableServer(msgspec.Struct, frozen=True):
    """A server whose tools are known, connected or not."""

    spec: ServerSpec
    toolbox: ToolboxSpec
    catalogue: Catalogue
    title: str = ""
    text: str = ""

    @property
    def fingerprint(self) -> tuple[object, ...]:
        """Equal as long as none of the searched texts has changed."""
        return (self.catalogue, self.spec.tools, self.title, self.text, self.toolbox.description)

    @property
    def about(self) -> ServerDescription:
        box = self.toolbox
        words = f"{box.name} {box.description}"
        return ServerDescription(self.spec.address.server, self.title, self.text, words)

    def visible(self) -> list[Definition]:
        shows = self.spec.tools.shows
        return [tool for name, tool in self.catalogue.tools.items() if shows(name)]


class SearchScope(msgspec.Struct, frozen=True):
    """All servers of a view: those whose tools are known, and the others."""

    known: dict[ServerAddress, SearchableServer]
    unknown: tuple[ServerSpec, ...]


class Query(msgspec.Struct, frozen=True):
    """What to search for, and where."""

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
    """A server whose tools are not known: not asked yet, starting, or failed for a reason."""

    address: ServerAddress
    starting: bool = False
    reason: str = ""


class SearchResult(msgspec.Struct, frozen=True):
    """The result of a query."""

    tools: tuple[FoundTool, ...]
    total: int  # tools that were searched
    siblings: tuple[Siblings, ...] = ()
    strange: tuple[str, ...] = ()  # words of the query that no tool has
    unknown: tuple[Unread, ...] = ()  # servers that could not be searched
    weak: bool = False
    named: bool = False  # the query consists of tool names
    left_out: tuple[ToolIdentifier, ...] = ()  # named too, beyond the limit
    wordless: bool = False  # the query has no word to search for


class Search:
    """Runs queries over an index and its scope."""

    def __init__(self, index: Index, scope: SearchScope, words: Words, shows: Shows | None) -> None:
        self._index = index
        self._known = scope.known
        self._unknown = scope.unknown
        self._words = words
        self._shows = shows

    def find(self, query: Query) -> SearchResult:
        total = self._index.count(self._shows)
        unknown = tuple(Unread(s.address) for s in self._unknown if query.covers(s.address))
        if names := self._listed(query.words):
            tools = tuple(self._tool(Hit(tool, NAMED)) for tool in names[:MOST_NAMED])
            left_out = tuple(names[MOST_NAMED:])
            return SearchResult(tools, total, unknown=unknown, named=True, left_out=left_out)
        index, asked = self._index, self._words.asked(query.words)
        hits = index.ranked(asked, self._shows, DEEP)
        strange = tuple(word for stem, word in asked.spelled.items() if not index.holds(stem))
        best = hits[0].score if hits else NAMED  # a named tool ranks first
        exact = [Hit(tool, best) for tool in index.named(query.words, self._shows)]
        first = {hit.tool for hit in exact}
        ranked = [*exact, *(hit for hit in hits if hit.tool not in first)]
        shown = self._distinct(ranked, query.limit)
        weak = bool(hits) and not exact and len(asked.times) <= SHORT
        weak = weak and hits[0].score < WEAK * index.most_possible(asked)
        siblings = self._siblings(hits or exact, {match.tool for match in shown})
        wordless = not asked.times
        return SearchResult(
            tuple(shown), total, siblings, strange, unknown, weak, wordless=wordless
        )

    def _listed(self, words: str) -> list[ToolIdentifier]:
        """Return the tools of a query that consists of their full names only."""
        parts = [part for part in re.split(r"[,\s]+", words) if part]
        whole = self._index.named(words, self._shows) if "/" in words else []
        if whole or not parts or not all("/" in part for part in parts):
            return whole
        named = [self._index.named(part, self._shows) for part in parts]
        return list(dict.fromkeys(tool for tools in named for tool in tools)) if all(named) else []

    def _tool(self, hit: Hit) -> FoundTool:
        tools = self._known[hit.tool.address].catalogue.tools
        return FoundTool(hit.tool, tools[hit.tool.tool], hit.score)

    def _distinct(self, hits: Iterable[Hit], most: int) -> list[FoundTool]:
        """Merge the hits of a server that is in several toolboxes into one that names them all."""
        matches: dict[tuple[str, Definition], FoundTool] = {}
        names: set[tuple[str, str]] = set()  # beyond the most, only twins of these matter
        for hit in hits:
            name = (hit.tool.server, hit.tool.tool)
            if len(matches) >= most and name not in names:
                continue
            match = self._tool(hit)
            key = (hit.tool.server, match.definition)
            if key in matches:
                twins = (*matches[key].twins, hit.tool.address)
                matches[key] = msgspec.structs.replace(matches[key], twins=twins)
            elif len(matches) < most:
                matches[key] = match
                names.add(name)
        return list(matches.values())

    def _siblings(self, hits: list[Hit], shown: set[ToolIdentifier]) -> tuple[Siblings, ...]:
        """Return the other tools of the best servers, ranked by the sum of their best tools' scores."""
        scores: dict[ServerAddress, list[float]] = {}
        for hit in hits:  # the best come first
            scores.setdefault(hit.tool.address, []).append(hit.score)
        best = sorted(scores, key=lambda a: (-sum(scores[a][:BEST_TOOLS]), a))
        siblings: dict[tuple[str, ...], Siblings] = {}
        for address in best:
            names = self._index.names(address)
            hidden = {tool.tool for tool in shown if tool.server == address.server}
            rest = tuple(name for name in names if name not in hidden)
            siblings.setdefault((address.server, *names), Siblings(address, rest))
            if len(siblings) == BEST_SERVERS:
                break
        return tuple(entry for entry in siblings.values() if entry.names)
