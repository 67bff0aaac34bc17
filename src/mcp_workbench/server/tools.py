"""A session's tools: what `tools/list` shows in its mode and era, and what our own tools do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from mcp_workbench.core.catalogue import OpenedToolbox
from mcp_workbench.core.errors import WorkbenchError
from mcp_workbench.core.names import ServerAddress, ToolIdentifier, parse_tool_name
from mcp_workbench.core.raw_json import Members
from mcp_workbench.core.spec import Detail, Snapshot
from mcp_workbench.gateway.views import View
from mcp_workbench.server import text
from mcp_workbench.server.long_answers import (
    TimeSlice,
    collect,
    comma_separated,
    quoted,
    whole_result,
)
from mcp_workbench.server.parse import SEARCH_TOOLS, OpenToolbox, OwnTool, RequestError
from mcp_workbench.server.text import STATIC_TTL, cache_scope, stale_meta
from mcp_workbench.server.tool_definitions import (
    flat_parts,
    legacy_tool,
    open_toolbox_definition,
    opened_flat_parts,
    opened_parts,
    own_definitions,
    stale_servers_meta,
    use_tool_definition,
)
from mcp_workbench.transport import jsonrpc
from mcp_workbench.transport.tasks import task_scope

if TYPE_CHECKING:
    from mcp_workbench.core.reload_plan import Reloaded
    from mcp_workbench.server.primitives import SessionPrimitives
    from mcp_workbench.server.session import HostSession

LIST_CHANGED = "notifications/tools/list_changed"
# Cached as private only: the tools come from servers, which may treat each of their users differently.
_LIVE_CACHE = b',"ttlMs":0,"cacheScope":"private"'
_STATIC_CACHE = b',"ttlMs":%d,"cacheScope":"%b"}'


class NameCollision(Exception):
    """Two tools have the same bare name."""

    def __init__(self, first: ToolIdentifier, second: ToolIdentifier) -> None:
        super().__init__(
            f"'naming' is 'bare', but {first} and {second} have the same name: "
            "hide one with toolFilters, or leave 'naming' out"
        )


class ToolView:
    """The tools that one host is shown. In dynamic mode, those of the toolboxes that it opened."""

    def __init__(self, view: View, opened: tuple[str, ...]) -> None:
        self._view = view
        self._opened: list[str] = list(opened)
        snapshot = view.snapshot
        self.dynamic = snapshot.tool_mode == "dynamic"
        self.bare = self.dynamic and snapshot.naming == "bare"
        self._routes: dict[str, ToolIdentifier]  # by bare name, once listed
        self._cache = _STATIC_CACHE % (STATIC_TTL, cache_scope(snapshot).encode())
        self._use_tool = msgspec.json.encode(use_tool_definition(native=True))
        self.owner = object()  # of the long results that `read_result` reads
        self._load(snapshot)

    def refresh(self) -> None:
        """Follow the configuration, which may have changed since the last time."""
        snapshot = self._view.snapshot
        if snapshot is not self._snapshot:
            self._load(snapshot)

    def _load(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot  # from which the rest is made
        self._routes = {}
        self._open_toolbox = msgspec.json.encode(open_toolbox_definition(snapshot))
        self._own = b",".join(map(msgspec.json.encode, own_definitions(snapshot)))

    def use_view(self, view: View) -> None:
        """Use the view of the one host that this is for: some servers may be its own."""
        self._view = view

    @property
    def is_static(self) -> bool:
        """Whether the list needs no server."""
        return not self.dynamic

    def shows(self, toolbox: str) -> bool:
        """Whether tools of this toolbox are in the list of a legacy host."""
        if not self.dynamic or toolbox not in self._view.snapshot.toolboxes:
            return False
        return self.bare or toolbox in self._opened

    def sees(self, toolbox: str, *, modern: bool) -> bool:
        """Whether the host sees what this toolbox has, or saw it before the toolbox was removed."""
        return modern or self.bare or toolbox in self._opened

    def opened(self, toolbox: str) -> bool:
        """Note that a toolbox was opened. Returns whether that changes the host's list."""
        if toolbox in self._opened:
            return False
        self._opened.append(toolbox)
        return self.dynamic

    def toolboxes(self, *, modern: bool) -> list[str]:
        """The toolboxes that the host sees: the opened ones; all of them if it is modern."""
        everything = modern or self.bare
        return list(self._view.snapshot.toolboxes) if everything else self._in_order()

    async def opened_result(
        self, opened: OpenedToolbox, detail: Detail | None, *, modern: bool
    ) -> bytes:
        """The result of `open_toolbox`."""
        parts = await collect(quoted(await self._opened_parts(opened, detail)))
        content = (b'"content":[{"type":"text","text":"', *parts, b'"}]')
        return await whole_result(stale_meta(opened.stale), content, modern=modern)

    async def _opened_parts(self, opened: OpenedToolbox, detail: Detail | None) -> Iterable[bytes]:
        if self.dynamic:
            return opened_flat_parts(opened)
        detail = detail or opened.spec.detail
        if detail == "schema":
            return opened_parts(opened)
        # Most hosts use the contract's level.
        from mcp_workbench.server.tool_text import describe_tools, opened_text

        tools = (tool for server in opened.servers for tool in server.tools)
        return [opened_text(opened, detail, await describe_tools(tools, detail)).encode()]

    def static_list(self, *, modern: bool) -> bytes:
        """The list of proxy mode."""
        self.refresh()
        body = b'{"tools":[%b]' % self._own
        return body + (self._cache if modern else b"}")

    async def live_list(self, *, modern: bool) -> bytes:
        """The list of dynamic mode: a legacy host's opened toolboxes, all of them for a modern one."""
        self.refresh()
        boxes = self.toolboxes(modern=modern)
        stale = b"{}"  # with bare names, we add nothing of our own
        if self.bare:
            tools = await self._bare_definitions(boxes, modern=modern)
        else:
            # Some hosts ignore the notification that their list has changed.
            tools = [self._open_toolbox] if modern else [self._open_toolbox, self._use_tool]
            opened = await self._open_all(boxes)
            for toolbox in opened:
                tools += await collect(flat_parts(toolbox, modern=modern))
            stale = stale_servers_meta(opened)
        members = (b'"tools":[', *comma_separated(tools), b"]", _LIVE_CACHE if modern else b"")
        return await whole_result(stale, members, modern=modern)

    def known(self, name: str) -> ToolIdentifier | None:
        """The tool with this name in dynamic mode, if that is known without asking a server."""
        if not self.dynamic:
            return None
        self.refresh()
        return self._routes.get(name) if self.bare else parse_tool_name(name)

    async def route(self, name: str) -> ToolIdentifier | None:
        """The tool with this bare name; asks the servers if it is not known. Raises NameCollision."""
        self.refresh()
        if name not in self._routes:
            await self._bare_definitions(self.toolboxes(modern=True), modern=True)
        return self._routes.get(name)

    async def _bare_definitions(self, boxes: list[str], *, modern: bool) -> list[bytes]:
        """Definitions as their servers sent them. Raises NameCollision."""
        routes: dict[str, ToolIdentifier] = {}
        tools: list[bytes] = []
        listed_for, time_slice = self._snapshot, TimeSlice()
        opened = await self._open_all(boxes)
        for server in (server for box in opened for server in box.servers):
            for tool in server.tools:
                identifier = ToolIdentifier(
                    server.address.toolbox, server.address.server, tool.name
                )
                if tool.name in routes:
                    raise NameCollision(routes[tool.name], identifier)
                routes[tool.name] = identifier
                tools.append(tool.raw if modern else legacy_tool(tool, server).raw)
                await time_slice.yield_if_over()
        if listed_for is self._snapshot:
            self._routes = routes
        return tools

    def _in_order(self) -> list[str]:
        return [name for name in self._view.snapshot.toolboxes if name in self._opened]

    async def _open_all(self, names: list[str]) -> list[OpenedToolbox]:
        """Open these toolboxes at the same time; those that can't be opened are left out."""
        opened: dict[str, OpenedToolbox] = {}

        async def open_one(name: str) -> None:
            try:
                opened[name] = await self._view.open(name, remembered=True)
            except WorkbenchError:  # no server is available, or it was removed meanwhile
                return

        async with task_scope() as opening:
            for task in [opening.start(open_one(name), f"open {name}") for name in names]:
                await task
        return [opened[name] for name in names if name in opened]


class SessionTools:
    """The tools of one session: lists them, opens toolboxes, announces changes."""

    def __init__(
        self, session: HostSession, tool_view: ToolView, primitives: SessionPrimitives
    ) -> None:
        self._session = session
        self._view = session.view
        self._tool_view = tool_view
        self._primitives = primitives
        tool_view.refresh()  # hosts without a session share one, which may have missed a change

    def list_tools(self, id: bytes, members: Members, meta: Members) -> None:
        if "cursor" in members and not jsonrpc.is_null(members["cursor"]):
            raise RequestError(jsonrpc.INVALID_PARAMS, "Unknown cursor: the list has one page")
        if self._tool_view.is_static:
            modern = self._session.era.modern
            self._session.reply_own(id, self._tool_view.static_list(modern=modern))
        else:
            self._session.run(id, self._live_list, id)

    async def _live_list(self, id: bytes) -> None:
        try:
            result = await self._tool_view.live_list(modern=self._session.era.modern)
        except NameCollision as error:
            self._session.refuse(id, jsonrpc.error_object(jsonrpc.INTERNAL_ERROR, str(error)))
        else:
            self._session.reply(id, result)

    async def _open(self, id: bytes, request: OpenToolbox) -> None:
        """Open a toolbox, and announce which of the host's lists that changes."""
        name = request.toolbox
        try:
            opened = await self._view.open(name)
        except WorkbenchError as error:
            result = text.error_result(error, *self._view.gateway.warnings)
            self._session.reply_own(id, result)
            return
        if self._tool_view.opened(name) and not self._session.era.modern:
            self._session.notify(LIST_CHANGED)
        modern = self._session.era.modern
        result = await self._tool_view.opened_result(opened, request.detail, modern=modern)
        self._session.reply(id, result)
        await self._primitives.opened(name)

    async def answer(self, id: bytes, request: OpenToolbox | OwnTool) -> None:
        """Answer a call of one of our own tools."""
        if isinstance(request, OpenToolbox):
            await self._open(id, request)
            return
        from mcp_workbench.server import own_tools  # loads the search

        try:
            if request.name == SEARCH_TOOLS:
                result = await own_tools.search_tools(self._view, request.arguments)
            else:
                results = self._view.gateway.kept_results
                result = own_tools.read_result(results, self._tool_view.owner, request.arguments)
        except WorkbenchError as error:
            result = text.error_result(error)
        self._session.reply_own(id, result)

    def tools_changed(self, server: ServerAddress) -> None:
        """The tools of a connected server have changed."""
        if server.toolbox not in self._view.snapshot.toolboxes:
            return
        if self._session.era.modern:
            self._primitives.list_changed(LIST_CHANGED)
        elif self._session.era.legacy and self._tool_view.shows(server.toolbox):
            self._session.notify(LIST_CHANGED)

    def reloaded(self, change: Reloaded) -> None:
        """The configuration was replaced: announce which lists differ, start servers that may add to them."""
        era, tool_view, view = self._session.era, self._tool_view, self._view
        tool_view.refresh()
        if not (era.modern or era.legacy):
            return
        before, after = view.scope.of(change.before), view.scope.of(change.after)
        either = {**before.toolboxes, **after.toolboxes}
        boxes = {box for box in either if tool_view.sees(box, modern=era.modern)}
        differ = {kind for box, kind in change.lists if box in boxes}
        watched = self._primitives.watched_lists
        if not tool_view.dynamic:
            differ.discard("tools")
            watched = watched - {"tools"}
        elif era.legacy:
            watched = watched | {"tools"}
        ours = open_toolbox_definition if tool_view.dynamic else own_definitions
        if not tool_view.bare and ours(before) != ours(after):
            differ.add("tools")
        for kind in sorted(differ):
            self._list_changed(kind)
        plan, subscribed = change.plan, self._primitives.subscribed_servers
        view.revive(a for a in (*plan.changed, *plan.added) if watched and a.toolbox in boxes)
        view.revive(a for a in plan.changed if a in subscribed)

    def _list_changed(self, kind: str) -> None:
        method = f"notifications/{kind}/list_changed"
        if method == LIST_CHANGED and self._session.era.legacy:
            self._session.notify(LIST_CHANGED)
        else:
            self._primitives.list_changed(method)
