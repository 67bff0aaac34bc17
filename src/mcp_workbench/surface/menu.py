"""The tools that a host is shown, in its mode and era."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from mcp_workbench.core.errors import WorkbenchError
from mcp_workbench.core.names import ToolIdentifier, parse_tool_name
from mcp_workbench.core.reports import OpenedToolbox
from mcp_workbench.core.spec import Detail, Snapshot
from mcp_workbench.gateway.views import View
from mcp_workbench.surface.flat_tools import flat_parts, legacy_tool, opened_flat, stale_mark
from mcp_workbench.surface.long_answers import Turns, in_turns, listed, quoted, whole_result
from mcp_workbench.surface.meta_tools import (
    open_toolbox_definition,
    opened_parts,
    own_definitions,
    use_tool_definition,
)
from mcp_workbench.surface.texts import stale_meta
from mcp_workbench.wire.tasks import task_scope

STATIC_TTL = 60_000  # milliseconds that a modern host may keep what changes with the file alone
# Cached only as private: the tools come from servers, which may tell each of their users apart.
_LIVE_CACHE = b',"ttlMs":0,"cacheScope":"private"'
_STATIC_CACHE = b',"ttlMs":%d,"cacheScope":"%b"}'


def cache_scope(snapshot: Snapshot) -> str:
    """Whether what we say of ourselves is the same for everybody, tokens or not."""
    http = snapshot.http
    return "private" if snapshot.private or http.token or http.tokens else "public"


class Collision(Exception):
    """Two tools want the same bare name."""

    def __init__(self, first: ToolIdentifier, second: ToolIdentifier) -> None:
        super().__init__(
            f"'naming' is 'bare', but {first} and {second} have the same name: "
            "hide one with toolFilters, or leave 'naming' out"
        )


class Menu:
    """One host's view. Toolboxes that it opened show their tools in dynamic mode."""

    def __init__(self, view: View, opened: tuple[str, ...]) -> None:
        self._view = view
        self._opened: list[str] = list(opened)
        snapshot = view.snapshot
        self.dynamic = snapshot.tool_mode == "dynamic"
        self.bare = self.dynamic and snapshot.naming == "bare"
        self._routes: dict[str, ToolIdentifier]  # bare names, once they have been listed
        self._cache = _STATIC_CACHE % (STATIC_TTL, cache_scope(snapshot).encode())
        self._use_tool = msgspec.json.encode(use_tool_definition(native=True))
        self.owner = object()  # of results that are kept for whoever has this menu
        self._take(snapshot)

    def renew(self) -> None:
        """Another configuration may hold since the last time."""
        snapshot = self._view.snapshot
        if snapshot is not self._of:
            self._take(snapshot)

    def _take(self, snapshot: Snapshot) -> None:
        self._of = snapshot  # whose names the rest is about
        self._routes = {}
        self._open_toolbox = msgspec.json.encode(open_toolbox_definition(snapshot))
        self._own = b",".join(map(msgspec.json.encode, own_definitions(snapshot)))

    def belong_to(self, view: View) -> None:
        """List the servers as the one host has them that this menu is for: some are its own."""
        self._view = view

    @property
    def is_static(self) -> bool:
        """Can the list be given without asking any server?"""
        return not self.dynamic

    def shows(self, toolbox: str) -> bool:
        if not self.dynamic or toolbox not in self._view.snapshot.toolboxes:
            return False
        return self.bare or toolbox in self._opened

    def sees(self, toolbox: str, *, modern: bool) -> bool:
        """Is this one of those whose offers the host sees, or saw while it was there?"""
        return modern or self.bare or toolbox in self._opened

    def opened(self, toolbox: str) -> bool:
        """Note that a toolbox was opened; does that change which tools the host sees?"""
        if toolbox in self._opened:
            return False
        self._opened.append(toolbox)
        return self.dynamic

    def toolboxes(self, *, modern: bool) -> list[str]:
        """Those that the host sees: the opened ones, or all for a modern one."""
        everything = modern or self.bare
        return list(self._view.snapshot.toolboxes) if everything else self._in_order()

    async def opened_result(
        self, opened: OpenedToolbox, wanted: Detail | None, *, modern: bool
    ) -> bytes:
        """The answer of `open_toolbox`."""
        text = await in_turns(quoted(await self._opened_parts(opened, wanted)))
        content = (b'"content":[{"type":"text","text":"', *text, b'"}]')
        return await whole_result(stale_meta(opened.stale), content, modern=modern)

    async def _opened_parts(self, opened: OpenedToolbox, wanted: Detail | None) -> Iterable[bytes]:
        if self.dynamic:
            return opened_flat(opened)
        detail = wanted or opened.spec.detail
        if detail == "schema":
            return opened_parts(opened)
        from mcp_workbench.surface.detail import (
            in_words,
            opened_in_words,
        )  # most hosts take the contract's

        tools = (tool for server in opened.servers for tool in server.tools)
        return [opened_in_words(opened, detail, await in_words(tools, detail)).encode()]

    def static_list(self, *, modern: bool) -> bytes:
        """The list of proxy mode."""
        self.renew()
        body = b'{"tools":[%b]' % self._own
        return body + (self._cache if modern else b"}")

    async def live_list(self, *, modern: bool) -> bytes:
        """The list of dynamic mode: a legacy host's opened toolboxes, all of them for a modern one."""
        self.renew()
        boxes = self.toolboxes(modern=modern)
        mark = b"{}"  # there is none beside bare names: nothing of ours is
        if self.bare:
            tools = await self._bare_definitions(boxes, modern=modern)
        else:
            # Some hosts never hear that their list has changed.
            tools = [self._open_toolbox] if modern else [self._open_toolbox, self._use_tool]
            found = await self._open_all(boxes)
            for opened in found:
                tools += await in_turns(flat_parts(opened, modern=modern))
            mark = stale_mark(found)
        members = (b'"tools":[', *listed(tools), b"]", _LIVE_CACHE if modern else b"")
        return await whole_result(mark, members, modern=modern)

    def known(self, name: str) -> ToolIdentifier | None:
        """Which tool a name of dynamic mode means, as far as that is known without asking."""
        if not self.dynamic:
            return None
        self.renew()
        return self._routes.get(name) if self.bare else parse_tool_name(name)

    async def route(self, name: str) -> ToolIdentifier | None:
        """Which tool a bare name means; the servers are asked where it is not known."""
        self.renew()
        if name not in self._routes:
            await self._bare_definitions(self.toolboxes(modern=True), modern=True)
        return self._routes.get(name)

    async def _bare_definitions(self, boxes: list[str], *, modern: bool) -> list[bytes]:
        """Definitions as their servers gave them. Two tools of one name can't be shown."""
        routes: dict[str, ToolIdentifier] = {}
        tools: list[bytes] = []
        listed_for, turns = self._of, Turns()
        opened = await self._open_all(boxes)
        for server in (server for box in opened for server in box.servers):
            for tool in server.tools:
                found = ToolIdentifier(server.address.toolbox, server.address.server, tool.name)
                if tool.name in routes:
                    raise Collision(routes[tool.name], found)
                routes[tool.name] = found
                tools.append(tool.raw if modern else legacy_tool(tool, server).raw)
                await turns.next()
        if listed_for is self._of:
            self._routes = routes
        return tools

    def _in_order(self) -> list[str]:
        return [name for name in self._view.snapshot.toolboxes if name in self._opened]

    async def _open_all(self, names: list[str]) -> list[OpenedToolbox]:
        """Those that can be opened, all at once; the others are left out."""
        found: dict[str, OpenedToolbox] = {}

        async def open_one(name: str) -> None:
            try:
                found[name] = await self._view.open(name, remembered=True)
            except WorkbenchError:  # nobody there, or it was removed meanwhile
                return

        async with task_scope() as opening:
            for task in [opening.start(open_one(name), f"open {name}") for name in names]:
                await task
        return [found[name] for name in names if name in found]
