"""What a host or a Python program can ask of the workbench: policy and routing, no bytes."""

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from copy import copy
from typing import Any

import msgspec

from mcp_workbench.callers import Caller, PythonCaller
from mcp_workbench.core.call import ToolCall
from mcp_workbench.core.catalogue import OpenToolboxResult, Unavailable, tool_info
from mcp_workbench.core.errors import (
    ServerUnavailable,
    WorkbenchError,
    empty_component,
    no_tool,
    not_connected,
)
from mcp_workbench.core.names import ServerAddress, ToolIdentifier
from mcp_workbench.core.reports import OpenedServer, OpenedToolbox, ServerHealth, ServerReport
from mcp_workbench.core.spec import ServerSpec, Snapshot
from mcp_workbench.downstream.connection import Connection
from mcp_workbench.downstream.conversation import Loss
from mcp_workbench.downstream.hosts import Host
from mcp_workbench.downstream.looks import health, report, shown, why_not
from mcp_workbench.downstream.pool import ConnectionPool, owner_of
from mcp_workbench.downstream.standing import Heard, Standing
from mcp_workbench.downstream.states import Closed
from mcp_workbench.wire.tasks import Lifetime, task_scope

RESTART = 0.25  # seconds before a server behind a URL that nobody answers for is tried once more
FRESH = 1.0  # seconds; an unknown tool is looked for again in an older list
ATTEMPTS = 3  # to find a connection that does not end under our hands


class Workbench(Lifetime):
    """One configuration, its servers, and what can be asked of them. Use it with `async with`."""

    def __init__(self, snapshot: Snapshot, *, environ: Mapping[str, str] | None = None) -> None:
        self.snapshot = snapshot
        self._pool = ConnectionPool(
            snapshot.limits, os.environ if environ is None else environ, self._catalogue_changed
        )
        self._listeners: list[Callable[[ServerAddress], None]] = []
        self._host: Host | None = None

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

    def view(self, toolboxes: tuple[str, ...]) -> "Workbench":
        """The same workbench, its servers shared, with these toolboxes only."""
        narrowed = copy(self)
        narrowed.snapshot = self.snapshot.narrowed(toolboxes)
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
        spec = self.snapshot.toolbox(tool.toolbox).server(tool.server)
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
        if tool.tool not in visible:
            raise no_tool(tool, list(visible))

    async def dispatch(self, call: ToolCall, caller: Caller) -> None:
        """The patient way to `begin`: connect first where that is needed."""
        for _ in range(ATTEMPTS):
            await self.prepare(call)
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

        async def sending() -> None:
            if loss.code == "connect_failed":
                await asyncio.sleep(RESTART)
            try:
                await send(caller)
            except WorkbenchError as error:
                if loss.may_have_run:
                    caller.report(loss)  # that it may have run matters more than why not again
                else:
                    caller.failed(error)

        return self._pool.start(sending(), f"again {caller.call.tool}")

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
        opened = await self.open(name)
        tools = (tool_info(tool, s.address) for s in opened.servers for tool in s.tools)
        return OpenToolboxResult(
            toolbox=name,
            description=opened.spec.description,
            servers_connected=len(opened.servers),
            tools=tuple(tools),
            unavailable=opened.unavailable,
        )

    async def open(self, name: str, *, remembered: bool = False) -> OpenedToolbox:
        """The same with definitions as received. Raises only where no server could be reached.

        `remembered`: a server that is not there, but was, has the tools that it had; none is started
        for them, and none that is starting is waited for.
        """
        toolbox = self.snapshot.toolbox(name)
        specs = list(toolbox.servers.values())
        known = {spec.address: self._remembered(spec) for spec in specs if remembered}
        # All are begun before the first wait, so that they start at once.
        begun = {
            spec.address: self._pool.connection(spec, self._host)
            for spec in specs
            if known.get(spec.address) is None
        }
        await self._wait_for(list(begun.values()))
        servers: list[OpenedServer] = []
        unavailable: list[Unavailable] = []
        for spec in specs:
            connection = begun.get(spec.address)
            found = known.get(spec.address) if connection is None else shown(spec, connection)
            if found is not None:
                servers.append(found)
            elif connection is not None:
                unavailable.append(Unavailable(spec.address.server, why_not(connection)))
        if unavailable and not servers:
            raise _none_reached(name, unavailable)
        return OpenedToolbox(toolbox, tuple(servers), tuple(unavailable))

    def _remembered(self, spec: ServerSpec) -> OpenedServer | None:
        """What a server showed that is not there now, but was."""
        known = self._pool.known(spec.address)
        if known is None or self._pool.met(spec, self._host) is not None:
            return None
        tools = (tool for name, tool in known.catalogue.tools.items() if spec.tools.shows(name))
        return OpenedServer(spec.address, tuple(tools), known.modern)

    async def _wait_for(self, connections: list[Connection]) -> None:
        """Until all have decided, or the slow ones have had their time; they go on starting."""
        async with task_scope() as waiting:
            tasks = [waiting.start(c.ready(), "wait") for c in connections if not c.usable]
            if tasks:
                await asyncio.wait(tasks, timeout=self.snapshot.limits.open_wait)

    async def connections(self, specs: Iterable[ServerSpec]) -> list[Connection]:
        """Those of these servers that can be reached in time; all are begun at once."""
        begun = [self._pool.connection(spec, self._host) for spec in specs]
        await self._wait_for(begun)
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
        connection = self._pool.connection(spec, self._host)
        if connection.awaited >= self.snapshot.limits.calls_per_server:
            why = f"{connection.awaited} calls wait for it to start (limits.callsPerServer)"
            text = f"[{spec.address}] Error: the server is busy: {why}"
            raise ServerUnavailable("overloaded", text, reason=why)
        await connection.ready()
        if isinstance(connection.state, Closed):
            reason = connection.state.told(time.monotonic())
            raise not_connected(spec.address.server, spec.address.toolbox, reason)
        return connection

    async def survey(self, address: ServerAddress) -> ServerReport:
        """Look at one server closely; trouble with it is part of the report."""
        spec = self.snapshot.toolbox(address.toolbox).server(address.server)
        since = time.monotonic()
        try:
            connection = await self.connected(spec)
        except ServerUnavailable as error:
            return ServerReport(address, error.reason, seconds=time.monotonic() - since)
        return report(spec, connection, since, self._pool.environ)

    def health(self) -> list[ServerHealth]:
        """How every server of the configuration does; nothing is started for it."""
        specs = [spec for box in self.snapshot.toolboxes.values() for spec in box.servers.values()]
        return [health(spec, self._pool.last(spec.address)) for spec in specs]

    # Changes

    def on_change(self, listener: Callable[[ServerAddress], None]) -> Callable[[], None]:
        """Be told when a connected server's tools have changed; call what is returned to end that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def on_heard(self, hearer: Callable[[Heard], None]) -> Callable[[], None]:
        """Be told what servers say unasked, beside changes of tools; what is returned ends that."""
        return self.standing.on_heard(owner_of(self._host), hearer)

    def _catalogue_changed(self, address: ServerAddress) -> None:
        for listener in tuple(self._listeners):
            listener(address)


def _none_reached(toolbox: str, unavailable: list[Unavailable]) -> WorkbenchError:
    errors = [not_connected(u.server, toolbox, u.reason) for u in unavailable]
    return ServerUnavailable(
        "connect_failed",
        "\n".join(error.message for error in errors),
        reason="; ".join(u.reason for u in unavailable),
    )
