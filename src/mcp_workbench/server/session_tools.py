"""A session's tools: what `tools/list` shows in its mode and era, and how our own tools are answered.

`SessionTools` handles the requests of one session, `ToolView` builds what its host is shown. The result of
`open_toolbox` follows. `cost` uses it without an event loop, so this module does not load asyncio.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from mcp_workbench.core.apps import is_for_model
from mcp_workbench.core.catalogue import (
    Definition,
    OpenedToolbox,
    tool_info_json,
)
from mcp_workbench.core.errors import WorkbenchError
from mcp_workbench.core.raw_json import Members
from mcp_workbench.core.spec import (
    SEPARATOR,
    Detail,
    ServerAddress,
    ToolIdentifier,
    generate_tool_name,
    parse_tool_name,
)
from mcp_workbench.gateway.script_extra import has_scripts
from mcp_workbench.server import text
from mcp_workbench.server.flat_tools import (
    ListReader,
    flat_definition,
    flat_parts,
    native_definition,
    shared_names,
)
from mcp_workbench.server.own_definitions import (
    OwnDefinitions,
    native_definitions,
    own_definitions,
)
from mcp_workbench.server.parse import (
    SEARCH_TOOLS,
    refuse_cursor,
)
from mcp_workbench.server.text import (
    TimeSlice,
    collect,
    comma_separated,
    quoted,
    whole_result,
)
from mcp_workbench.server.tool_requests import OpenToolbox, OwnTool
from mcp_workbench.transport import jsonrpc

if TYPE_CHECKING:
    from mcp_workbench.gateway.reload import Reloaded
    from mcp_workbench.gateway.views import View
    from mcp_workbench.server.app_tools import AppTools
    from mcp_workbench.server.session import HostSession
    from mcp_workbench.server.session_primitives import SessionPrimitives

encode = msgspec.json.encode

LIST_CHANGED = "notifications/tools/list_changed"
PROGRESS = "notifications/progress"
STALE_KEY = "mcp-workbench/stale"  # in `_meta` of tools: the servers whose tools are cached ones
# Cached as private only: the tools come from servers, which may treat each of their users differently.
_LIVE_CACHE = b',"ttlMs":0,"cacheScope":"private"'


class SessionTools:
    """The tools of one session: lists them, opens toolboxes, announces changes."""

    def __init__(
        self, session: HostSession, tool_view: ToolView, primitives: SessionPrimitives
    ) -> None:
        self._session = session
        self._view = session.view
        self._tool_view = tool_view
        self._primitives = primitives
        self._has_listed = False  # the host has asked for its tools
        tool_view.refresh()  # hosts without a session share one, which may have missed a change

    def list_tools(self, id: bytes, members: Members, meta: Members) -> None:
        refuse_cursor(members)
        self._has_listed = True
        if self._tool_view.dynamic or self._session.elicitation.shows_apps:
            self._session.run(id, self._live_list, id)
        else:
            modern = self._session.era.modern
            self._session.reply_own(id, self._tool_view.static_list(modern=modern))

    async def _live_list(self, id: bytes) -> None:
        session = self._session
        reader = ListReader(session.era.modern, session.elicitation.shows_apps)
        try:
            result = await self._tool_view.live_list(reader)
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
        self._session.changed()
        modern = self._session.era.modern
        shown = opened.for_model()
        result = await self._tool_view.opened_result(shown, request.detail, modern=modern)
        self._session.reply(id, result)
        await self._primitives.opened(name)

    async def answer(
        self, id: bytes, request: OpenToolbox | OwnTool, token: msgspec.Raw | None = None
    ) -> None:
        """Answer a call of one of our own tools; `token` is that of its progress, if the host wants it."""
        if isinstance(request, OpenToolbox):
            await self._open(id, request)
            return
        from mcp_workbench.server import own_tools  # loads the search

        try:
            if request.name == SEARCH_TOOLS:
                report = None if token is None else self._progress(id, token)
                result = await own_tools.search_tools(
                    self._view,
                    request.arguments,
                    report,
                    skills=self._session.elicitation.loads_skills,
                )
            else:
                results = self._view.gateway.kept_results
                owner = self._tool_view.owner
                result = await own_tools.read_result(results, owner, request.arguments)
        except WorkbenchError as error:
            result = text.error_result(error)
        self._session.reply_own(id, result)

    def _progress(self, id: bytes, token: msgspec.Raw) -> Callable[[int, int, str], None]:
        """Notifies the host of progress; each is further than the one before."""
        before = -1

        def report(progress: int, total: int, message: str) -> None:
            nonlocal before
            if progress > before:
                before = progress
                params = {"progressToken": token, "progress": progress, "total": total}
                self._session.notify(PROGRESS, encode({**params, "message": message}), id)

        return report

    def tools_changed(self, server: ServerAddress) -> None:
        """The tools of a connected server have changed: in dynamic mode, so have those of its hosts."""
        shown = self._tool_view.shows(server.toolbox, modern=self._session.era.modern)
        if shown or self._is_of_an_app(server):
            self._announce()

    def first_listed(self, server: ServerAddress) -> None:
        """The tools of a server are known for the first time: its app may be among them.

        Lists that show all tools of its toolbox have waited for it.
        """
        shown = self._tool_view.shows(server.toolbox, modern=self._session.era.modern)
        if not shown and self._is_of_an_app(server):
            self._announce()

    def _is_of_an_app(self, server: ServerAddress) -> bool:
        tool_view = self._tool_view
        shows_apps = self._session.elicitation.shows_apps and not tool_view.bare
        has_list = self._session.era.modern or self._has_listed
        return shows_apps and has_list and tool_view.apps.concerns(server)

    def _announce(self) -> None:
        if self._session.era.modern:
            self._primitives.list_changed(LIST_CHANGED)
        elif self._session.era.legacy:
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
            others = any(kind == "tools" and box in either for box, kind in change.lists)
            if others and self._session.elicitation.shows_apps:
                differ.add("tools")
            watched = watched - {"tools"}
        elif era.legacy:
            watched = watched | {"tools"}
        ours = native_definitions if tool_view.dynamic else own_definitions
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


class NameCollision(Exception):
    """Two tools have the same bare name."""

    def __init__(self, first: ToolIdentifier, second: ToolIdentifier) -> None:
        super().__init__(
            f"'naming' is 'bare', but {first} and {second} have the same name: "
            "hide one with toolFilters, or leave 'naming' out"
        )


class ToolView:
    """The tools that one host is shown. In dynamic mode, those of the toolboxes that it opened.

    Several hosts with the same view can share the definitions of our own tools.
    """

    def __init__(
        self, view: View, opened: tuple[str, ...], definitions: OwnDefinitions | None = None
    ) -> None:
        self._view = view
        self._opened: list[str] = list(opened)
        snapshot = view.snapshot
        self.dynamic = snapshot.tool_mode == "dynamic"
        self.bare = self.dynamic and snapshot.naming == "bare"
        self._routes: dict[str, ToolIdentifier] = {}  # by bare name, once listed
        self._shared = frozenset[str]()  # with bare names: the tools that several servers have
        self._apps: AppTools | None = None
        # Of the long results that `read_result` reads.
        self.owner = view.gateway.results_owner(view.principal, opened)
        self.definitions = definitions.of(snapshot) if definitions else OwnDefinitions(snapshot)

    def refresh(self) -> None:
        """Follow the configuration, which may have changed since the last time."""
        snapshot = self._view.snapshot
        if snapshot is not self.definitions.snapshot:
            self.definitions = self.definitions.of(snapshot)
            self._routes = {}

    def use_view(self, view: View) -> None:
        """Use the view of the one host that this is for: some servers may be its own."""
        self._view, self._apps = view, None

    def shows(self, toolbox: str, *, modern: bool) -> bool:
        """Whether tools of this toolbox are in the host's list."""
        return self.dynamic and toolbox in self.toolboxes(modern=modern)

    def sees(self, toolbox: str, *, modern: bool) -> bool:
        """Whether the host sees what this toolbox has, or saw it before the toolbox was removed."""
        return modern or self.bare or toolbox in self._opened

    def opened(self, toolbox: str) -> bool:
        """Note that a toolbox was opened. Returns whether that changes the host's list."""
        if toolbox in self._opened:
            return False
        self._opened.append(toolbox)
        return self.dynamic

    @property
    def opened_toolboxes(self) -> tuple[str, ...]:
        return tuple(self._opened)

    def toolboxes(self, *, modern: bool) -> list[str]:
        """The toolboxes that the host sees: the opened ones; all of them if it is modern."""
        return [box for box in self._view.snapshot.toolboxes if self.sees(box, modern=modern)]

    async def opened_result(
        self, opened: OpenedToolbox, detail: Detail | None, *, modern: bool
    ) -> bytes:
        """The result of `open_toolbox`."""
        parts = await collect(quoted(await self._opened_parts(opened, detail)))
        content = (b'"content":[{"type":"text","text":"', *parts, b'"}]')
        return await whole_result(_stale_meta(opened.stale), content, modern=modern)

    async def _opened_parts(self, opened: OpenedToolbox, detail: Detail | None) -> Iterable[bytes]:
        if self.dynamic:
            return opened_flat_parts(opened)
        detail = detail or opened.spec.detail
        if detail == "schema":
            return opened_parts(opened)
        # Most hosts use the contract's level.
        from mcp_workbench.server.own_tools import describe_tools, opened_text

        tools = (tool for server in opened.servers for tool in server.tools)
        texts = await describe_tools(tools, detail, returns=has_scripts(self._view.snapshot))
        return [opened_text(opened, detail, texts).encode()]

    def static_list(self, *, modern: bool) -> bytes:
        """The list of proxy mode."""
        self.refresh()
        body = b'{"tools":[%b]' % self.definitions.all
        return body + (self.definitions.cache if modern else b"}")

    @property
    def apps(self) -> AppTools:
        """The tools of apps; loaded for hosts that show them."""
        if self._apps is None:
            from mcp_workbench.server.app_tools import AppTools

            self._apps = AppTools(self._view)
        return self._apps

    async def list_with_apps(self, reader: ListReader) -> bytes:
        """The list of proxy mode for a host that shows apps."""
        self.refresh()
        tools = await collect(self.apps.definitions(self._view.snapshot.toolboxes, reader))
        tools.insert(0, self.definitions.all)
        cache = _LIVE_CACHE if reader.modern else b""
        members = (b'"tools":[', *comma_separated(tools), b"]", cache)
        return await whole_result(b"{}", members, modern=reader.modern)

    async def live_list(self, reader: ListReader) -> bytes:
        """The list of dynamic mode: a legacy host's opened toolboxes, all of them for a modern one."""
        if not self.dynamic:
            return await self.list_with_apps(reader)
        self.refresh()
        modern = reader.modern
        boxes = self.toolboxes(modern=modern)
        stale = b"{}"  # with bare names, we add nothing of our own
        if self.bare:
            tools = await self._bare_definitions(boxes, reader)
        else:
            # Some hosts ignore the notification that their list has changed.
            ours = self.definitions
            tools = [*ours.native] if modern else [*ours.native, ours.use_tool]
            opened = await self._open_all(boxes)
            for toolbox in opened:
                tools += await collect(flat_parts(toolbox, reader))
            if reader.apps:
                others = [box for box in self._view.snapshot.toolboxes if box not in boxes]
                tools += await collect(self.apps.definitions(others, reader))
            stale = _stale_meta(_stale_servers(opened))
        members = (b'"tools":[', *comma_separated(tools), b"]", _LIVE_CACHE if modern else b"")
        return await whole_result(stale, members, modern=modern)

    def known(self, name: str) -> ToolIdentifier | None:
        """The tool with this flat or bare name, if that is known without asking a server."""
        if not self.dynamic:
            return self.apps.find(name) if SEPARATOR in name else None
        self.refresh()
        return self._routes.get(name) if self.bare else parse_tool_name(name)

    async def route(self, name: str, *, apps: bool = False) -> ToolIdentifier | None:
        """The tool with this bare name; asks the servers if it is not known. Raises NameCollision."""
        self.refresh()
        if name not in self._routes:
            await self._bare_definitions(self.toolboxes(modern=True), ListReader(apps=apps))
        return self._routes.get(name)

    async def flat_names(self) -> frozenset[str] | None:
        """The tools that have flat names for hosts that show apps; None: all of them."""
        if not self.bare:
            return None
        self.refresh()
        if not self._routes:
            await self._bare_definitions(self.toolboxes(modern=True), ListReader(apps=True))
        return self._shared

    async def _bare_definitions(self, boxes: list[str], reader: ListReader) -> list[bytes]:
        """Definitions as their servers sent them, as far as the host can read them. Raises NameCollision.

        A host that shows apps lists tools with the same name under flat names: each app calls its own.
        """
        routes: dict[str, ToolIdentifier] = {}
        tools: list[bytes] = []
        listed_for, time_slice = self.definitions.snapshot, TimeSlice()
        opened = await self._open_all(boxes)
        shared = shared_names(opened) if reader.apps else frozenset[str]()
        for server in (server for box in opened for server in box.servers):
            for tool in server.tools:
                address = server.address
                identifier = ToolIdentifier(address.toolbox, address.server, tool.name)
                name, raw = tool.name, native_definition(tool, server, reader)
                if name in shared:
                    name = generate_tool_name(address.toolbox, address.server, name)
                    raw = flat_definition(Definition(tool.name, raw), address, is_tool=True)
                if name in routes:
                    raise NameCollision(routes[name], identifier)
                routes[name] = identifier
                if reader.apps or is_for_model(tool.raw):
                    tools.append(raw)
                await time_slice.yield_if_over()
        if listed_for is self.definitions.snapshot:
            self._routes, self._shared = routes, shared
        return tools

    async def _open_all(self, names: list[str]) -> list[OpenedToolbox]:
        """Open these toolboxes at the same time; those that can't be opened are left out."""
        opened: dict[str, OpenedToolbox] = {}

        async def open_one(name: str) -> None:
            try:
                opened[name] = await self._view.open(name, remembered=True)
            except WorkbenchError:  # no server is available, or it was removed meanwhile
                return

        from mcp_workbench.transport.tasks import task_scope  # loads asyncio

        async with task_scope() as opening:
            for task in [opening.start(open_one(name), f"open {name}") for name in names]:
                await task
        return [opened[name] for name in names if name in opened]


def _stale_servers(opened: Iterable[OpenedToolbox]) -> list[dict[str, Any]]:
    return [
        {"toolbox": toolbox.spec.name, **msgspec.structs.asdict(server)}
        for toolbox in opened
        for server in toolbox.stale
    ]


def _stale_meta(stale: Sequence[Any]) -> bytes:
    """An object whose `_meta` names the servers with cached tools, if there are any."""
    return b'{"_meta":%b}' % encode({STALE_KEY: stale}) if stale else b"{}"


# The result of `open_toolbox`


def opened_json(opened: OpenedToolbox) -> str:
    """The result of `open_toolbox` in proxy mode: every definition as received, plus its server."""
    return b"".join(opened_parts(opened)).decode()


def opened_parts(opened: OpenedToolbox) -> Iterator[bytes]:
    """The same in parts, each built when it is consumed."""
    tools = (tool_info_json(tool, s.address) for s in opened.servers for tool in s.tools)
    return toolbox_parts(opened, tools)


def opened_flat_parts(opened: OpenedToolbox) -> Iterator[bytes]:
    """The result of `open_toolbox` in dynamic mode: names only; definitions come with `tools/list`."""
    tools = (_short(tool, s.address) for s in opened.servers for tool in s.tools)
    return toolbox_parts(opened, tools)


def _short(definition: Definition, owner: ServerAddress) -> bytes:
    return encode(
        {
            "name": generate_tool_name(owner.toolbox, owner.server, definition.name),
            "toolbox_name": owner.toolbox,
            "source_server": owner.server,
        }
    )


def toolbox_parts(opened: OpenedToolbox, tools: Iterable[bytes]) -> Iterator[bytes]:
    """The result of `open_toolbox` with these tools."""
    yield b'{"toolbox":%b,"description":%b,"servers_connected":%d,"tools":[' % (
        encode(opened.spec.name),
        encode(opened.spec.description),
        opened.connected,
    )
    yield from comma_separated(tools)
    yield b"]"
    if opened.unavailable:
        yield b',"unavailable":%b' % encode(opened.unavailable)
    if opened.warnings:
        yield b',"warnings":%b' % encode(opened.warnings)
    yield b"}"
