"""Where commands find servers: in the running workbench, or started for them alone.

`up` has started the first (`daemon`). The second ends with the command, so what it learns of servers that
can't start is kept for the next one (`RecentFailures`).
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click
import msgspec

from mcp_workbench.cli.settings import Settings
from mcp_workbench.core.catalogue import ServerReport
from mcp_workbench.core.errors import WorkbenchError
from mcp_workbench.core.spec import ServerAddress, Snapshot, ToolIdentifier
from mcp_workbench.daemon.paths import daemon_paths
from mcp_workbench.gateway.tool_search import Reading, find
from mcp_workbench.gateway.workbench import Gateway
from mcp_workbench.search.queries import Query, SearchResult
from mcp_workbench.upstream.recent_failures import RecentFailures

if TYPE_CHECKING:
    import socket

    from mcp_workbench.daemon.command_session import CommandSession
    from mcp_workbench.gateway.interactive import InteractiveSession, Person

Json = dict[str, Any]
OnProgress = Callable[[Json], None]
T = TypeVar("T")

_OWN = "this command starts servers of its own"


class Backend(Protocol):
    """The servers of a configuration, for the length of one command."""

    async def survey(self, address: ServerAddress, *, fresh: bool = False) -> ServerReport:
        """Report on one server; `fresh`: whatever is known of it."""
        ...

    async def search(self, query: Query, show: Callable[[str], None]) -> SearchResult:
        """Search the tools of all servers; `show` is called with what is being read."""
        ...

    async def use_tool(
        self,
        tool: ToolIdentifier,
        arguments: Mapping[str, Any],
        on_progress: OnProgress,
        parent: str = "",
    ) -> Json:
        """The server's own result; `parent` is the script that calls. Raises a WorkbenchError."""
        ...

    async def refuse(
        self, tool: ToolIdentifier, arguments: Mapping[str, Any], error: WorkbenchError
    ) -> None:
        """A call is not made because of this error, which is raised."""
        ...


class Nobody:
    """No terminal, or --no-input: declares no elicitation capability to servers."""

    capabilities: Json = {}  # noqa: RUF012 - never changed

    async def answer(self, question: object) -> None:
        return None


class BackendOptions(msgspec.Struct, frozen=True):
    """How a command uses servers."""

    person: Person | Nobody = Nobody()
    environ: Mapping[str, str] | None = (
        None  # another environment: servers are started for the command
    )
    log_calls: str = ""  # likewise: the running workbench has a log of its own


USUAL = BackendOptions()


def running_workbench(
    settings: Settings, snapshot: Snapshot, options: BackendOptions = USUAL
) -> socket.socket | None:
    """A connection to the running workbench of this configuration, if there is one that admits us."""
    if settings.attach == "never" or options.environ is not None or options.log_calls:
        return None
    paths = daemon_paths(snapshot.origin) if snapshot.origin else None  # the demo is not shared
    if paths is None or not paths.home or not os.path.exists(paths.socket):  # noqa: PTH110
        return None
    from mcp_workbench.daemon.command_session import NotJoined, join  # only if there may be one

    context = click.get_current_context(silent=True)
    name = "mcp-workbench" if context is None else context.command_path
    try:
        return join(paths, name, options.person.capabilities)
    except NotJoined as error:
        if not settings.quiet:
            click.echo(
                f"mcp-workbench: the shared workbench is not used: {error}; {_OWN}", err=True
            )
        return None


@asynccontextmanager
async def open_backend(
    snapshot: Snapshot, connection: socket.socket | None, options: BackendOptions = USUAL
) -> AsyncGenerator[Backend]:
    """The servers of the workbench at the other end of this connection, or our own."""
    if connection is not None:
        from mcp_workbench.daemon.command_session import command_session

        async with command_session(connection, options.person) as session:
            yield SharedServers(session)
        return
    from mcp_workbench.gateway.interactive import interactive_session

    gateway = Gateway(snapshot, environ=options.environ, log_calls=options.log_calls)
    async with gateway, interactive_session(gateway.view, options.person) as session:
        failures = RecentFailures(os.environ if options.environ is None else options.environ)
        yield LocalBackend(session, failures)


def with_backend(
    settings: Settings,
    snapshot: Snapshot,
    work: Callable[[Backend], Coroutine[Any, Any, T]],
    options: BackendOptions = USUAL,
) -> T:
    """Returns what `work` does with the servers of this configuration.

    If the running workbench ends meanwhile, it is done once more with servers of our own, unless a call
    may have run.
    """
    from mcp_workbench.app import run_interruptible

    async def done(connection: socket.socket | None) -> T:
        async with open_backend(snapshot, connection, options) as backend:
            return await work(backend)

    connection = running_workbench(settings, snapshot, options)
    try:
        return run_interruptible(done(connection))
    except WorkbenchError as error:
        if connection is None or error.may_have_run or not _is_of_ended_workbench(error):
            raise
    if not settings.quiet:
        click.echo(f"mcp-workbench: the shared workbench has ended; {_OWN}", err=True)
    return run_interruptible(done(None))


def _is_of_ended_workbench(error: WorkbenchError) -> bool:
    from mcp_workbench.daemon.command_session import WorkbenchEnded  # loaded with the connection

    return isinstance(error, WorkbenchEnded)


class SharedServers:
    """The servers of the running workbench."""

    def __init__(self, session: CommandSession) -> None:
        self._session = session

    async def survey(self, address: ServerAddress, *, fresh: bool = False) -> ServerReport:
        return await self._session.survey(address, fresh=fresh)

    async def search(self, query: Query, show: Callable[[str], None]) -> SearchResult:
        return await self._session.search(query, lambda params: show(str(params["message"])))

    async def use_tool(
        self,
        tool: ToolIdentifier,
        arguments: Mapping[str, Any],
        on_progress: OnProgress,
        parent: str = "",
    ) -> Json:
        return await self._session.use_tool(tool, arguments, on_progress, parent)

    async def refuse(
        self, tool: ToolIdentifier, arguments: Mapping[str, Any], error: WorkbenchError
    ) -> None:
        await self._session.refuse(tool, arguments, error)


class LocalBackend:
    """Servers that this command starts, and stops at its end."""

    def __init__(self, session: InteractiveSession, failures: RecentFailures) -> None:
        self._session = session
        self._view = session.view
        self._failures = failures

    async def survey(self, address: ServerAddress, *, fresh: bool = False) -> ServerReport:
        spec = self._view.spec(address)
        failure = None if fresh else self._failures.find(spec, time.time())
        if failure is not None:
            return ServerReport(address, failure.describe(time.time()))
        report = await self._view.survey(address, fresh=fresh)
        if report.reason:
            self._failures.note(spec, report.reason, time.time())
        else:
            self._failures.forget(spec)
        return report

    async def search(self, query: Query, show: Callable[[str], None]) -> SearchResult:
        view, wait, now = self._view, self._view.snapshot.limits.open_wait, time.time()
        specs = [spec for box in view.snapshot.toolboxes.values() for spec in box.servers.values()]
        failed = {
            spec.address: failure.describe(now)
            for spec in specs
            if (failure := self._failures.find(spec, now)) is not None
        }
        reading = Reading(
            lambda _done, _total, text: show(text), lazy=True, wait=wait, skipped=frozenset(failed)
        )
        result = await find(view, query, reading)
        for server in result.unknown:
            if server.reason and not server.starting:
                self._failures.note(view.spec(server.address), server.reason, now)
        # What is still being read ends with this command.
        late = dict.fromkeys((s.address for s in result.unknown if s.starting), _late(wait))
        reasons = failed | late
        unknown = (
            msgspec.structs.replace(s, starting=False, reason=reasons.get(s.address, s.reason))
            for s in result.unknown
        )
        return msgspec.structs.replace(result, unknown=tuple(unknown))

    async def use_tool(
        self,
        tool: ToolIdentifier,
        arguments: Mapping[str, Any],
        on_progress: OnProgress,
        parent: str = "",
    ) -> Json:
        return await self._session.use_tool(tool, arguments, on_progress, parent)

    async def refuse(
        self, tool: ToolIdentifier, arguments: Mapping[str, Any], error: WorkbenchError
    ) -> None:
        await self._session.refuse(tool, arguments, error)


def _late(wait: float) -> str:
    return f"no answer within {wait:g} s"
