"""The tools of all servers as the page lists them: what each costs a model, and which are shown."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import msgspec

from mcp_workbench.core.apps import is_for_model
from mcp_workbench.core.catalogue import (
    MOST_WEIGHED,
    Definition,
    definition_tokens,
    estimate_tokens,
    listed_tokens,
    read_object,
)
from mcp_workbench.core.errors import no_tool
from mcp_workbench.core.spec import ServerAddress, ServerSpec, Snapshot, ToolIdentifier
from mcp_workbench.gateway.tool_search import find, known_tools
from mcp_workbench.gateway.views import View
from mcp_workbench.schema.signature import first_sentence
from mcp_workbench.search.queries import Query, SearchableServer, SearchScope
from mcp_workbench.server.example_call import example_call
from mcp_workbench.server.own_definitions import own_definitions
from mcp_workbench.server.text import instructions

PAGE = 200  # tools of one answer
ABOUT = 240  # characters of a description in a list
NAME = 512  # characters of a name in a list
FOUND = 50  # tools of one search


class ToolLine(msgspec.Struct, frozen=True, rename="camel"):
    """One tool in a list. Every text is the server's own."""

    toolbox: str
    server: str
    name: str
    about: str
    tokens: int
    is_shown: bool
    is_for_model: bool = True
    hint: str = ""  # reads only, or destroys, as the server says


class ServerTools(msgspec.Struct, frozen=True):
    """All tools of one server, hidden ones included."""

    source: SearchableServer
    lines: tuple[ToolLine, ...]
    shown: int
    tokens: int  # that a model would read in every request if they were listed directly


class Budget(msgspec.Struct, frozen=True, rename="camel"):
    """Tokens of every request: with each tool listed directly, and with the workbench."""

    direct: int
    shown: int
    menu: int
    instructions: int
    instruction_characters: int


class KnownTools:
    """What is known of the tools of all servers, computed again only where something has changed."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._scope = SearchScope({}, ())
        self._servers: dict[ServerAddress, ServerTools] = {}
        self._menu: tuple[object, tuple[int, int, int]] = (None, (0, 0, 0))
        self._reading = asyncio.Lock()

    async def read(self) -> dict[ServerAddress, ServerTools]:
        """The tools of each server that is, or was, connected. Starts none."""
        async with self._reading:
            scope = known_tools(self._view, self._scope.known)
            news = [
                one
                for address, one in scope.known.items()
                if address not in self._servers or self._servers[address].source is not one
            ]
            if news:
                read = await asyncio.to_thread(_all_lines, news)
                self._servers |= {one.source.spec.address: one for one in read}
            self._scope = scope
            self._servers = {a: self._servers[a] for a in scope.known}
            return self._servers

    async def budget(self, servers: dict[ServerAddress, ServerTools]) -> Budget:
        direct = sum(one.tokens for one in servers.values())
        snapshot = self._view.snapshot
        if self._menu[0] is not snapshot:
            self._menu = snapshot, await asyncio.to_thread(self._menu_tokens, snapshot)
        menu, text, characters = self._menu[1]
        return Budget(direct, menu + text, menu, text, characters)

    def _menu_tokens(self, snapshot: Snapshot) -> tuple[int, int, int]:
        menu = sum(map(listed_tokens, own_definitions(snapshot)))
        text = instructions(snapshot, example=example_call(snapshot, self._view.remembered))
        return menu, estimate_tokens(text), len(text)

    async def search(self, words: str, toolbox: str) -> list[ToolLine]:
        """The tools that an agent would find with these words, in its order."""
        result = await find(self._view, Query(words, toolbox, "", FOUND))
        servers = await self.read()
        addresses = {found.tool.address for found in result.tools} & servers.keys()
        named = {
            address: {line.name: line for line in servers[address].lines} for address in addresses
        }
        found = [named.get(one.tool.address, {}).get(one.tool.tool[:NAME]) for one in result.tools]
        return [line for line in found if line is not None]

    def definition(self, tool: ToolIdentifier) -> Definition:
        """A tool as its server defines it. Raises NotFound."""
        spec = self._view.spec(tool.address)
        known = known_tools(self._view, self._scope.known).known.get(spec.address)
        found = None if known is None else known.catalogue.tools.get(tool.tool)
        if found is None:
            names = list(known.catalogue.tools) if known is not None else []
            raise no_tool(tool, names[:PAGE])
        return found

    def spec(self, address: ServerAddress) -> ServerSpec:
        return self._view.spec(address)


def _all_lines(servers: list[SearchableServer]) -> list[ServerTools]:
    return [_server_tools(one) for one in servers]


def _server_tools(server: SearchableServer) -> ServerTools:
    lines = tuple(_lines(server))
    shown = [line for line in lines if line.is_shown]
    tokens = sum(line.tokens for line in shown if line.is_for_model)
    return ServerTools(server, lines, len(shown), tokens)


def _lines(server: SearchableServer) -> Iterator[ToolLine]:
    address, shows = server.spec.address, server.spec.tools.shows
    for name, definition in server.catalogue.tools.items():
        is_short = len(definition.raw) <= MOST_WEIGHED
        whole = read_object(definition.raw) if is_short else {}
        text = whole.get("description")
        yield ToolLine(
            address.toolbox,
            address.server,
            name[:NAME],
            first_sentence(text)[:ABOUT] if isinstance(text, str) else "",
            definition_tokens(definition.raw),
            shows(name),
            is_for_model(definition.raw),
            _hint(whole.get("annotations")),
        )


def _hint(annotations: Any) -> str:
    if not isinstance(annotations, dict):
        return ""
    hints = cast("dict[str, Any]", annotations)
    if hints.get("readOnlyHint") is True:
        return "reads"
    return "destroys" if hints.get("destructiveHint") is True else ""
