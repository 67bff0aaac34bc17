"""What a host or a Python program can ask of the workbench: policy and routing, no bytes."""

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from copy import copy
from typing import TYPE_CHECKING, Any

import msgspec

from mcp_workbench.callers import Caller, PythonCaller, send_again
from mcp_workbench.core.call import ToolCall
from mcp_workbench.core.catalogue import OpenToolboxResult
from mcp_workbench.core.errors import ServerUnavailable, empty_component, no_tool, not_connected
from mcp_workbench.core.known import Known
from mcp_workbench.core.names import ServerAddress, ToolIdentifier
from mcp_workbench.core.reports import OpenedToolbox, ServerHealth, ServerReport, for_programs
from mcp_workbench.core.sight import Shows, Sights
from mcp_workbench.core.spec import ServerSpec, Snapshot
from mcp_workbench.downstream import looks
from mcp_workbench.downstream.connection import Connection
from mcp_workbench.downstream.hosts import Host
from mcp_workbench.downstream.pool import ConnectionPool, owner_of
from mcp_workbench.downstream.standing import Heard, Standing
from mcp_workbench.downstream.waiters import Loss
from mcp_workbench.express import Route, find_route
from mcp_workbench.timing import pause
from mcp_workbench.wire.tasks import Lifetime

if TYPE_CHECKING:
    from mcp_workbench.core.reload import Reloaded

Listener = Callable[[ServerAddress], None]
OnReload = Callable[["Reloaded"], None]
FRESH = pause(1.0)  # seconds; an unknown tool is looked for again in an older list
ATTEMPTS = 3  # to find a connection that does not end under our hands


class Workbench(Lifetime):
    """One configuration, its servers, and what can be asked of them. Use it with `async with`."""

    def __init__(self, snapshot: Snapshot, *, environ: Mapping[str, str] | None = None) -> None:
        self._sights = Sights(snapshot)
        self._sight = self._sights.whole
        self._pool = ConnectionPool(
            snapshot.limits, os.environ if environ is None else environ, self._catalogue_changed
        )
        self._listeners: list[tuple[Listener, OnReload | None]] = []
        self._host: Host | None = None
        self.beside: dict[str, Any] = {}  # what others keep that all our views share

    @property
    def snapshot(self) -> Snapshot:
        """The configuration that holds now, as far as it is seen from here."""
        return self._sight.snapshot

    def for_host(self, host: Host, *, alone: bool) -> "Workbench":
        """The same workbench as this host has it: `alone`, every server's questions are its own."""
        if alone:
            self._pool.sole_host = host
        mine = copy(self)
        mine._host = host  # noqa: SLF001 - a copy of ourselves
        return mine

    def release(self) -> None:
        """The host is gone: servers that belong to it alone are ended."""
        if self._host is not None:
            self._pool.release(self._host)

    def view(self, shows: Shows, *, private: bool = False) -> "Workbench":
        """The same workbench, its servers shared, with the toolboxes that are shown."""
        narrowed = copy(self)
        narrowed._sight = self._sights.part(shows, private=private)  # noqa: SLF001 - of ourselves
        return narrowed

    def _life(self) -> AbstractAsyncContextManager[None]:
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[None]:
        async with self._pool:
            yield

    # Calls

    def begin(self, call: ToolCall, caller: Caller) -> bool:
        """Send the call now if its server is ready and knows the tool; otherwise do nothing."""
        tool = call.tool
        spec = self._sight.snapshot.toolbox(tool.toolbox).server(tool.server)
        connection = self._pool.connection(spec, self._host)
        if not connection.usable:
            return False
        name = connection.visible(spec.tools).get(tool.tool)
        if name is None:
            return False
        number = connection.begin(call, name, caller, time.monotonic() + spec.timeout)
        caller.begun(connection, number, self)
        self._pool.watch_deadlines()
        return True

    def route(self, tool: ToolIdentifier) -> Route | None:
        """How calls of this tool are sent in one step, where nothing stands against that now."""
        return find_route(tool, self._sight, self._pool)

    async def prepare(self, call: ToolCall) -> None:
        """Wait until the call's server is ready and its tool known, or raise what is wrong."""
        tool = call.tool
        spec = self.snapshot.toolbox(tool.toolbox).server(tool.server)
        connection = await self.connected(spec)
        if tool.tool in connection.visible(spec.tools):
            return
        if not connection.fresh(FRESH):
            await connection.refresh()
        visible = connection.visible(spec.tools)
        if tool.tool not in visible and not connection.retired:
            raise no_tool(tool, list(visible))

    async def dispatch(self, call: ToolCall, caller: Caller) -> None:
        """The patient way to `begin`: connect first where that is needed."""
        for _ in range(ATTEMPTS):
            await self.prepare(call)
            if caller.on_leaving is not None:
                caller.on_leaving()
            if self.begin(call, caller):
                return
        raise not_connected(call.tool.server, call.tool.toolbox, "it keeps ending")

    def again(self, caller: Caller, loss: Loss) -> asyncio.Task[Any]:
        """Send a call once more that its server has not run, or may run twice."""
        return self.send_again(caller, loss, lambda it: self.dispatch(it.call, it))

    def send_again(
        self, caller: Caller, loss: Loss, send: Callable[[Caller], Awaitable[None]]
    ) -> asyncio.Task[Any]:
        """Do so in a task of the pool's, which outlives whoever noticed the loss."""
        return self._pool.start(send_again(caller, loss, send), f"again {caller.call.tool}")

    async def use_tool(
        self,
        tool: ToolIdentifier,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: Callable[[dict[str, Any]], None] | None = None,
    ) -> dict[str, Any]:
        """The server's own result. Raises a WorkbenchError where there is none."""
        for field in ("toolbox", "server", "tool"):
            if not getattr(tool, field):
                raise ValueError(empty_component(field))
        params = {"arguments": msgspec.Raw(msgspec.json.encode(arguments or {}))}
        meta = {} if on_progress is None else {"progressToken": msgspec.Raw(b"0")}
        call = ToolCall(tool, params, meta)
        caller = PythonCaller(call, on_progress)
        await self.dispatch(call, caller)
        return await caller.result()

    def hold(self, held: bool) -> None:  # noqa: FBT001 - a callback's one argument
        """A host reads too slowly: let the servers wait, or go on."""
        self._pool.hold(held=held)

    # Toolboxes

    async def open_toolbox(self, name: str) -> OpenToolboxResult:
        """Connect to every server of a toolbox and say what it offers."""
        return for_programs(await self.open(name))

    async def open(self, name: str, *, remembered: bool = False) -> OpenedToolbox:
        """The same with definitions as received. Raises only where no server could be reached.

        `remembered`: a server that is not there, but was, has the tools that it had; none is started
        for them, and none that is starting is waited for.
        """
        until = time.monotonic() + self.snapshot.limits.open_wait
        while True:
            toolbox = self.snapshot.toolbox(name)
            # All are begun before the first wait, so that they start at once.
            found = [
                (remembered and looks.remembered(spec, self._pool, self._host))
                or self._pool.begun(spec, self._host)
                for spec in toolbox.servers.values()
            ]
            begun = [one for one in found if isinstance(one, Connection)]
            await looks.decided(begun, self.snapshot.limits.open_wait)
            if time.monotonic() > until or not any(one.retired for one in begun):
                break  # otherwise it is another toolbox by now
        return looks.opened(toolbox, found, self._pool.memory, self.warnings)

    def remembered(self, spec: ServerSpec) -> Known | None:
        """What this server offered when it was last connected, by us or others; none is started."""
        return self._pool.memory.recall(spec)

    async def connections(self, specs: Iterable[ServerSpec]) -> list[Connection]:
        """Those of these servers that can be reached in time; all are begun at once."""
        found = [self._pool.begun(spec, self._host) for spec in specs]
        begun = [one for one in found if isinstance(one, Connection)]
        await looks.decided(begun, self.snapshot.limits.open_wait)
        return [connection for connection in begun if connection.usable]

    def live(self, specs: Iterable[ServerSpec]) -> list[Connection]:
        """Those of these servers that are connected already."""
        found = (self._pool.met(spec, self._host) for spec in specs)
        return [connection for connection in found if connection is not None]

    @property
    def all_live(self) -> list[Connection]:
        return self._pool.all_met()

    @property
    def standing(self) -> Standing:
        return self._pool.standing

    def watch_deadlines(self) -> None:
        self._pool.watch_deadlines()

    async def connected(self, spec: ServerSpec) -> Connection:
        """The server, ready for calls; where its entry changes meanwhile, its successor."""
        address, until = spec.address, time.monotonic() + spec.connect_timeout
        while True:
            connection = self._pool.connection(spec, self._host)
            looks.require_patience(connection, self.snapshot.limits)
            await connection.ready()
            if not connection.retired or time.monotonic() > until:
                break
            spec = self.snapshot.toolbox(address.toolbox).server(address.server)
        if connection.over:
            raise looks.not_ready(connection)
        return connection

    async def survey(self, address: ServerAddress) -> ServerReport:
        """Look at one server closely; trouble with it is part of the report."""
        spec = self.snapshot.toolbox(address.toolbox).server(address.server)
        since = time.monotonic()
        try:
            connection = await self.connected(spec)
        except ServerUnavailable as error:
            return ServerReport(address, error.reason, seconds=time.monotonic() - since)
        return looks.report(spec, connection, since, self._pool.around)

    def health(self) -> list[ServerHealth]:
        """How every server of the configuration does; nothing is started for it."""
        specs = [spec for box in self.snapshot.toolboxes.values() for spec in box.servers.values()]
        count = self._pool.around.processes.of
        return [looks.health(s, self._pool.last(s.address), count(s.address)) for s in specs]

    @property
    def processes(self) -> int:
        """How many processes of servers run now, those that are being seen out included."""
        return self._pool.around.processes.count

    # Changes

    def reload(self, snapshot: Snapshot) -> "Reloaded":
        """Take another configuration, in one step. Says what that changed.

        Calls under way finish on the connection they began on; a server whose entry leads to
        another process or URL is connected anew at the next need, the others stay connected.
        """
        from mcp_workbench.reloading import reload  # not before there is something to reload

        change = reload(snapshot, self._sights, self._pool)
        if change.anything:
            for _, reloaded in tuple(self._listeners):
                if reloaded is not None:
                    reloaded(change)
        return change

    def warn(self, *warnings: str) -> None:
        """Say this in every opened toolbox, until another configuration is taken."""
        self._sights.warnings = warnings

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._sights.warnings

    def seen(self, snapshot: Snapshot) -> Snapshot:
        """What of this configuration is seen from here."""
        return self._sight.of(snapshot)

    def revive(self, addresses: Iterable[ServerAddress]) -> None:
        """Begin these servers; whoever shows their lists is told where those are others."""
        for address in addresses:
            if (spec := self.snapshot.find(address)) is not None:
                self._pool.revive(spec, self._host)

    def on_change(self, listener: Listener, reloaded: OnReload | None = None) -> Callable[[], None]:
        """Be told when a connected server's tools have changed, and when another configuration
        holds; call what is returned to end that."""
        both = (listener, reloaded)
        self._listeners.append(both)
        return lambda: self._listeners.remove(both)

    def on_heard(self, hearer: Callable[[Heard], None]) -> Callable[[], None]:
        """Be told what servers say unasked, beside changes of tools; what is returned ends that."""
        # A modern host says with its request what it can do, and so whose connections it has.
        return self.standing.on_heard(lambda: owner_of(self._host), hearer)

    def _catalogue_changed(self, address: ServerAddress) -> None:
        for listener, _ in tuple(self._listeners):
            listener(address)
