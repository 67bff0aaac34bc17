"""Views: what one principal may see and use, from one host. Every request goes through one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING
from weakref import WeakSet

import msgspec

from mcp_workbench.core.apps import is_for_model
from mcp_workbench.core.call_request import TOOLS_CALL, CallRequest
from mcp_workbench.core.catalogue import KnownCatalogue, OpenedServer, OpenedToolbox, ServerReport
from mcp_workbench.core.errors import ServerUnavailable, WorkbenchError, no_tool, not_connected
from mcp_workbench.core.spec import ServerAddress, ServerSpec, Snapshot
from mcp_workbench.gateway.calls import Call
from mcp_workbench.gateway.interceptors import AfterCall, Interceptor, with_after
from mcp_workbench.gateway.routes import Route, Routes
from mcp_workbench.timing import pause
from mcp_workbench.upstream import reports
from mcp_workbench.upstream.connection import Connection
from mcp_workbench.upstream.conversation import Failure
from mcp_workbench.upstream.pool import owner_of

if TYPE_CHECKING:
    from mcp_workbench.gateway.reload import Reloaded
    from mcp_workbench.gateway.sign_ins import OpenSignIn
    from mcp_workbench.gateway.workbench import Gateway
    from mcp_workbench.upstream.server_requests import ConnectionHost
    from mcp_workbench.upstream.subscriptions import ServerNotification

Shows = Callable[[str], bool]  # whether a toolbox of this name is visible

FRESH = pause(1.0)  # seconds; for an unknown tool, an older list is requested again
LOCKING = ("pin", "review")  # levels of the lock file that hide prompts, too
PROMPT_METHODS = ("prompts/get", "completion/complete")
ATTEMPTS = 3  # to get a connection that stays open until the call is sent
RESTART = 0.25  # seconds before a call that could not connect to its URL is tried once more


class Scope:
    """All toolboxes of the current configuration, or some of them, as one principal uses them."""

    def __init__(
        self,
        snapshot: Snapshot,
        shows: Shows | None = None,
        *,
        principal: str = "",
        private: bool = False,
    ) -> None:
        self._shows = shows
        self.principal = principal  # whose sign-ins are used
        self._private = private
        self.snapshot = self.of(snapshot)

    def of(self, snapshot: Snapshot) -> Snapshot:
        """The part of this configuration that is visible here."""
        if self._shows is None:
            return snapshot
        names = tuple(filter(self._shows, snapshot.toolboxes))
        return snapshot.only(names, private=self._private).for_principal(self.principal)


class Scopes:
    """All scopes of one configuration, so that it can be replaced in one step."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.whole = Scope(snapshot)
        self.warnings: tuple[str, ...] = ()  # shown in every opened toolbox
        self._parts: WeakSet[Scope] = WeakSet()

    def part(self, shows: Shows, *, principal: str = "", private: bool = False) -> Scope:
        """The toolboxes for which `shows` is true, now and after every change."""
        part = Scope(self.whole.snapshot, shows, principal=principal, private=private)
        self._parts.add(part)
        return part

    def replace(self, snapshot: Snapshot) -> None:
        """Use this configuration everywhere from now on."""
        for scope in (self.whole, *self._parts):
            scope.snapshot = scope.of(snapshot)
        self.warnings = ()

    def renew(self) -> None:
        """Have every route compiled again: the same configuration, as a new object."""
        for scope in (self.whole, *self._parts):
            scope.snapshot = msgspec.structs.replace(scope.snapshot)


class View:
    """A gateway as seen by one principal, through one host or none."""

    def __init__(
        self,
        gateway: Gateway,
        scope: Scope,
        principal: str = "",
        host: ConnectionHost | None = None,
        interceptors: tuple[Interceptor, ...] = (),
    ) -> None:
        self.gateway = gateway
        self.scope = scope
        self.principal = principal
        self.interceptors = interceptors  # of all calls from here, beside those of the gateway
        self.routes = Routes()
        self._host = host
        self._pool = gateway.pool

    @property
    def snapshot(self) -> Snapshot:
        """The current configuration, as far as it is visible here."""
        return self.scope.snapshot

    @property
    def without_route(self) -> AfterCall:
        """Who looks at calls that ended before they had a route."""
        return with_after((*self.gateway.interceptors, *self.interceptors))

    def narrowed(
        self, shows: Shows, *, principal: str = "", account: str = "", private: bool = False
    ) -> View:
        """A view of the toolboxes for which `shows` is true, for this principal.

        `account` is under what its sign-ins at servers are kept, if that is not its name.
        """
        principal = principal or self.principal
        account = account or principal
        scope = self.gateway.scopes.part(shows, principal=account, private=private)
        return View(self.gateway, scope, principal, self._host, self.interceptors)

    def for_host(self, host: ConnectionHost, *, sole: bool) -> View:
        """The same view for one host. If it is the `sole` one, every server may ask it."""
        if sole:
            self._pool.sole_host = host
        return View(self.gateway, self.scope, self.principal, host, self.interceptors)

    def intercepted(self, *interceptors: Interceptor) -> View:
        """The same view with more interceptors, which run last before a call is sent."""
        mine = (*self.interceptors, *interceptors)
        return View(self.gateway, self.scope, self.principal, self._host, mine)

    def release(self) -> None:
        """The host is gone: stop the servers that belong to it alone, and end what it was asked."""
        if self._host is None:
            return
        self._pool.release(self._host)
        if not self._host.takes_turns:  # otherwise others of its kind go on
            self.gateway.end_sign_ins(self._host.owner)

    # Calls

    def start(self, call: Call, key: Hashable = None) -> bool:
        """Send the call now if its server is ready and knows the tool; otherwise do nothing.

        `key` is how its target is written, if not as the request has it. Raises a WorkbenchError where
        there is no such server, or it can't be started now.
        """
        request = call.request
        if call.pinned is not None:
            return self._routed(request, self.spec(request.tool.address), call.pinned).send(call)
        key = key or (request.method, request.tool)
        known = self.routes.get(key)
        if known is not None:
            if known.send(call):
                return True
            self.routes.drop(key)
        route = self._compile(request)
        if route is None:
            return False
        self.routes.keep(key, route)
        return route.send(call)

    def _compile(self, request: CallRequest) -> Route | None:
        tool = request.tool
        spec = self.spec(tool.address)
        connection = self._pool.connection(spec, self._host)
        if not connection.usable:
            return None
        if request.method == TOOLS_CALL and tool.tool not in connection.visible(spec.tools):
            return None
        return self._routed(request, spec, connection)

    def _routed(self, request: CallRequest, spec: ServerSpec, connection: Connection) -> Route:
        tool = request.tool
        policy = self.gateway.policy(request, spec, self.snapshot)
        gates: tuple[Interceptor, ...] = ()
        if spec.approve:
            from mcp_workbench.gateway.approvals import (
                approval_gates,
            )  # only where it is configured

            gates = approval_gates(request, spec, connection.catalogue.tools.get(tool.tool))
        if spec.lock in LOCKING and request.method in PROMPT_METHODS:
            from mcp_workbench.gateway.prompt_locks import PromptLock  # only where it is configured

            gates = (PromptLock(connection), *gates)
        limit: tuple[Interceptor, ...] = ()
        if self.gateway.quotas is not None and self.principal:
            from mcp_workbench.gateway.call_limits import CallLimit  # only where it is configured

            limit = (CallLimit(self.gateway.quotas, self.principal),)
        first = self.gateway.first_interceptors
        # What is approved is not changed any more, so gates come after interceptors of programs.
        interceptors = (
            *first,
            *limit,
            *policy,
            *self.gateway.interceptors,
            *gates,
            *self.interceptors,
        )
        return Route(request, spec, connection, self, interceptors)

    async def dispatch(self, call: Call) -> None:
        """Send the call as soon as its server is ready. Raises a WorkbenchError where it can't be sent."""
        if self.gateway.quotas is None or not self.principal:
            await self._dispatch(call)
            return
        from mcp_workbench.gateway.call_limits import limited  # only where it is configured

        async with limited(call, self.gateway.quotas, self.principal):
            await self._dispatch(call)

    async def _dispatch(self, call: Call) -> None:
        for _ in range(ATTEMPTS):
            since = time.monotonic()
            try:
                await self._prepare(call.request)
            finally:
                call.connecting += time.monotonic() - since
                call.has_details = True
            if self.start(call):
                return
        tool = call.request.tool
        raise not_connected(tool.server, tool.toolbox, "it keeps exiting")

    async def _prepare(self, request: CallRequest) -> None:
        """Wait until the request's server is ready and its tool known, or raise what is wrong."""
        tool = request.tool
        spec = self.spec(tool.address)
        connection = await self.connected(spec)
        if request.method != TOOLS_CALL or tool.tool in connection.visible(spec.tools):
            return
        if not connection.fresh(FRESH):
            await connection.refresh()
        visible = connection.visible(spec.tools)
        if tool.tool not in visible and not connection.retired:
            state = connection.tools.blocked("tools", tool.tool)
            if state is not None and spec.tools.shows(tool.tool):
                from mcp_workbench.core.lock_states import quarantined_tool  # loaded by then

                raise quarantined_tool(tool, state)
            known = connection.catalogue.tools
            raise no_tool(tool, [name for name in visible if is_for_model(known[name].raw)])

    async def resend(self, call: Call, loss: Failure) -> None:
        """Send a lost call once more; where that fails too, it has ended."""
        if loss.code == "connect_failed":
            await asyncio.sleep(RESTART)
        try:
            await self.dispatch(call)
        except WorkbenchError as error:
            if loss.may_have_run:
                call.report(loss)  # that it may have run matters more than why it can't be repeated
            else:
                call.fail(error)

    def let_ask(self, call: Call) -> bool:
        """A server could not ask its host in this call: can it from now on, on a connection of its own?"""
        connection = call.connection
        if self._host is None or connection is None or not connection.modern:
            return False
        if not self._pool.let_ask(connection.spec, self._host):
            return False
        self.routes.leave(connection)
        return True

    async def begin_sign_in(
        self, address: ServerAddress, origin: str = "", *, again: bool = False
    ) -> tuple[OpenSignIn, bool]:
        """Prepare the sign-in of this view's person at a server; is it new? Raises SignInFailed.

        `origin` is where the person reaches our pages; `again`: it was given the address before.
        """
        session = None if self._host is None else self._host.owner
        return await self.gateway.sign_ins.begin(self.spec(address), origin, session, again=again)

    # Toolboxes and servers

    @property
    def only_server(self) -> ServerSpec | None:
        """The server, if a single one is visible here."""
        boxes = self.snapshot.toolboxes.values()
        servers = [spec for box in boxes if len(box.servers) == 1 for spec in box.servers.values()]
        is_only = len(servers) == 1 and sum(len(box.servers) for box in boxes) == 1
        return servers[0] if is_only else None

    def spec(self, address: ServerAddress) -> ServerSpec:
        """Return the server's entry. Raises NotFound if there is none."""
        return self.scope.snapshot.toolbox(address.toolbox).server(address.server)

    async def open(self, name: str, *, remembered: bool = False) -> OpenedToolbox:
        """Connect to every server of a toolbox, whose definitions are as received.

        Raises only if no server could be reached. `remembered`: a server that is not connected, but was,
        is shown with its cached tools; it is neither started nor waited for.
        """
        until = time.monotonic() + self.snapshot.limits.open_wait
        while True:
            toolbox = self.snapshot.toolbox(name)
            # All are started before the first wait, so that they start in parallel.
            servers = [
                (remembered and reports.cached_server(spec, self._pool, self._host))
                or self._pool.begun(spec, self._host)
                for spec in toolbox.servers.values()
            ]
            begun = [server for server in servers if isinstance(server, Connection)]
            await reports.wait_until_decided(begun, self.snapshot.limits.open_wait)
            if time.monotonic() > until or not any(connection.retired for connection in begun):
                break  # otherwise the toolbox was reloaded meanwhile
        return reports.opened_toolbox(toolbox, servers, self._pool.cache, self.gateway.warnings)

    def remembered(self, spec: ServerSpec) -> KnownCatalogue | None:
        """Return what this server offered when it was last connected, by any workbench; starts none."""
        return self._pool.cache.recall(spec)

    def known_tools(self, spec: ServerSpec) -> OpenedServer | None:
        """Return the tools that this server has, or had when it was last connected; starts none."""
        live = self.live([spec])
        return reports.opened_server(spec, live[0]) if live else self._pool.cache.last_list(spec)

    async def connections(self, specs: Iterable[ServerSpec]) -> list[Connection]:
        """Return those of these servers that can be reached in time; all are started in parallel."""
        begun = self.begun(specs)
        await reports.wait_until_decided(begun, self.snapshot.limits.open_wait)
        return [connection for connection in begun if connection.usable]

    def begun(self, specs: Iterable[ServerSpec]) -> list[Connection]:
        """Start these servers, and return the connections of those that can be started now."""
        servers = [self._pool.begun(spec, self._host) for spec in specs]
        return [server for server in servers if isinstance(server, Connection)]

    def live(self, specs: Iterable[ServerSpec]) -> list[Connection]:
        """Return those of these servers that are connected already."""
        connections = (self._pool.met(spec, self._host) for spec in specs)
        return [connection for connection in connections if connection is not None]

    async def connected(self, spec: ServerSpec) -> Connection:
        """Return the server's connection, ready for calls; its successor, if the entry changes meanwhile."""
        address, until = spec.address, time.monotonic() + spec.connect_timeout
        while True:
            connection = self._pool.connection(spec, self._host)
            reports.require_queue_room(connection, self.snapshot.limits)
            await connection.ready()
            if not connection.retired or time.monotonic() > until:
                break
            spec = self.spec(address)
        if connection.over:
            raise reports.not_ready(connection)
        return connection

    async def survey(self, address: ServerAddress, *, fresh: bool = False) -> ServerReport:
        """Report on one server in detail. If it can't be reached, the report says why.

        `fresh`: it is tried again if it has just failed, lists its tools again if it is running, and its
        prompts and templates, too.
        """
        spec = self.spec(address)
        since = time.monotonic()
        running = self._pool.met(spec, self._host)
        if fresh:
            self._pool.end_backoff(spec, self._host)
        try:
            connection = await self.connected(spec)
            if fresh and connection is running:  # otherwise it has just listed them
                await connection.refresh()
            if fresh:
                await reports.list_offers(connection)
        except ServerUnavailable as error:
            return ServerReport(address, error.reason, seconds=time.monotonic() - since)
        return reports.report(spec, connection, since, self._pool.context)

    def revive(self, addresses: Iterable[ServerAddress]) -> None:
        """Start these servers; hosts are notified of the lists that this changes."""
        for address in addresses:
            if (spec := self.snapshot.find(address)) is not None:
                self._pool.revive(spec, self._host)

    def on_change(
        self,
        changed: Callable[[ServerAddress], None],
        reloaded: Callable[[Reloaded], None],
        first_listed: Callable[[ServerAddress], None],
    ) -> Callable[[], None]:
        """Call these as `Gateway.on_change` does, for what is seen here."""
        return self.gateway.on_change(changed, reloaded, first_listed, self.scope.principal)

    def on_heard(self, hearer: Callable[[ServerNotification], None]) -> Callable[[], None]:
        """Call `hearer` with notifications of servers, except changes of tools. Returns what ends that."""
        # A modern host declares its capabilities with each request, and they decide its connections.
        owners = lambda: (owner_of(self._host), self.scope.principal)  # noqa: E731
        return self._pool.subscriptions.on_notification(owners, hearer)


def narrowed_to(snapshot: Snapshot, names: tuple[str, ...]) -> Snapshot:
    """Like `Snapshot.narrowed`, for names that may not exist any more: those are left out."""
    if not names:
        return snapshot
    return snapshot.only(tuple(name for name in names if name in snapshot.toolboxes))
