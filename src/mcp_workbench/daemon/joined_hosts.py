"""Joined hosts in the daemon: who may join, and a host's session on its own pipes.

`HostRegistry` answers the requests of the control socket. A `JoinedHost` is served like a host of `serve`,
except that each request is recorded in its crash journal before it is handled.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from mcp_workbench import __version__
from mcp_workbench.app import DRAIN, FLUSH, HURRIED_DRAIN, INTERRUPTED
from mcp_workbench.config.expand import references, strings_of
from mcp_workbench.config.load import load_config
from mcp_workbench.core.errors import ConfigError, NotFound
from mcp_workbench.core.spec import ServerSpec, Snapshot, StdioCommand
from mcp_workbench.daemon import control
from mcp_workbench.daemon.control import ControlConnection
from mcp_workbench.daemon.crash_journal import (
    CrashJournal,
    JournalInterceptor,
    create_journal,
    open_journal,
)
from mcp_workbench.daemon.joined_front import JoinedFront, Notify
from mcp_workbench.daemon.outbox import Outbox, OutboxWriter, create_outbox
from mcp_workbench.daemon.status import DaemonInfo, current_status
from mcp_workbench.gateway.reload import applied_now, servers_of
from mcp_workbench.gateway.views import View
from mcp_workbench.gateway.workbench import Gateway
from mcp_workbench.server.session import HostSession
from mcp_workbench.server.session_tools import ToolView
from mcp_workbench.timing import deadline, pause
from mcp_workbench.transport.tasks import TaskScope, task_scope

if TYPE_CHECKING:
    from mcp_workbench.daemon.command_clients import CommandClient
    from mcp_workbench.daemon.lifecycle import BoundedLog

log = logging.getLogger(__name__)

RENEW = "mcp-workbench down, then up, renews it"
APPLY = deadline(2.0)  # seconds for a change of the file to be applied before a command uses it
BETWEEN = pause(0.1)  # seconds between two looks at that
LONGEST_FIELD = 1 << 16  # bytes of a path, or of a list of toolboxes
_JOINING = 4  # fields of a request to join, before its environment


class HostRegistry:
    """All joined hosts, and the handler of control requests."""

    def __init__(
        self, info: DaemonInfo, gateway: Gateway, scope: TaskScope, log_file: BoundedLog
    ) -> None:
        self._info = info
        self._gateway = gateway
        self._scope = scope
        self._log_file = log_file
        self._expected: dict[ControlConnection, JoinedHost] = {}  # welcomed, pipes not yet received
        self.hosts: set[JoinedHost] = set()
        self.commands: set[CommandClient] = set()
        self.is_stopping = False
        self.down: Callable[[], None] = lambda: None
        self.reload: Callable[[], None] = lambda: None
        self.send_figures: Callable[[ControlConnection], Coroutine[Any, Any, None]]
        self.on_empty: Callable[[], None] = lambda: None  # called when the last host has left

    def handle(self, connection: ControlConnection, request: bytes, fields: list[bytes]) -> None:
        if any(len(field) > LONGEST_FIELD for field in (request, *fields[:_JOINING])):
            connection.send(control.REFUSED, control.LOUDLY, b"the request is too long")
        elif request == control.JOIN and len(fields) >= _JOINING:
            self._scope.start(self._join(connection, fields), f"join {connection.pid}")
        elif request == control.COMMAND and len(fields) >= 5:
            self._scope.start(self._join_command(connection, fields), f"command {connection.pid}")
        elif request == control.STATUS:
            status = current_status(
                self._info,
                self._gateway,
                (*self.hosts, *self.commands),
                self._log_file.trouble,
                stopping=self.is_stopping,
            )
            connection.send(control.REPORT, msgspec.json.encode(status))
        elif request == control.FIGURES:
            self._scope.start(self.send_figures(connection), "figures")
        elif request == control.DOWN:
            connection.send(control.GOING, b"%d" % os.getpid())
            self.down()
        else:
            reason = b"it does not know this request: " + request[:20]
            connection.send(control.REFUSED, control.LOUDLY, reason)

    # Joining

    async def _join(self, connection: ControlConnection, fields: list[bytes]) -> None:
        version, config, names, folder, *variables = fields
        toolboxes = tuple(filter(None, names.decode("utf-8", "replace").split(",")))
        claims = HostClaims(version, config, toolboxes, variables)
        if not await self._is_admitted(connection, claims):
            return
        try:
            self._welcome(connection, toolboxes, other_folder(os.fsdecode(folder)))
        except OSError as error:
            reason = error.strerror or str(error)
            connection.send(control.REFUSED, control.LOUDLY, reason.encode())

    async def _join_command(self, connection: ControlConnection, fields: list[bytes]) -> None:
        """Serve a command until it disconnects."""
        version, config, name, capabilities, folder, *variables = fields
        claims = HostClaims(version, config, (), variables)
        await self._apply_file()  # the command has read it just now
        if not await self._is_admitted(connection, claims):
            return
        from mcp_workbench.daemon.command_clients import CommandClient  # only for commands

        try:
            declared = msgspec.json.decode(capabilities, type=dict[str, Any])
        except (ValueError, RecursionError):
            connection.send(control.REFUSED, control.LOUDLY, b"its capabilities are no JSON object")
            return
        at = other_folder(os.fsdecode(folder))
        command = CommandClient(connection.pid, name.decode("utf-8", "replace"), at, declared)
        self.commands.add(command)
        connection.send(control.WELCOME)
        try:
            await command.serve(self._gateway.view, connection.detach())
        finally:
            self.commands.discard(command)
            if not self.is_used:
                self.on_empty()

    async def _apply_file(self) -> None:
        """Wait, at most a moment, until the configuration is that of the file."""
        until = time.monotonic() + APPLY
        while time.monotonic() < until and await asyncio.to_thread(self._is_behind):
            self.reload()
            await asyncio.sleep(BETWEEN)

    def _is_behind(self) -> bool:
        """Has the file other servers than those that are served?"""
        try:
            wanted = load_config(self._info.config)
        except ConfigError:  # the previous configuration stays in force
            return False
        served = servers_of(self._gateway.snapshot)
        return {a: _own(s) for a, s in servers_of(wanted).items()} != {
            a: _own(s) for a, s in served.items()
        }

    async def _is_admitted(self, connection: ControlConnection, claims: HostClaims) -> bool:
        """Whether this host may join; if not, it is told why."""
        # In a thread: a file may be long, or a pipe that nobody writes to.
        outdated = await asyncio.to_thread(self._outdated_reason, self._gateway.snapshot)
        if connection.is_closed:
            return False
        try:
            reason = self._refusal(claims) or outdated
        except NotFound as error:
            connection.send(control.REFUSED, control.QUIETLY, error.message.encode())
            return False
        if reason:
            log.info("host refused (pid %d): %s", connection.pid, reason)
            connection.send(control.REFUSED, control.LOUDLY, reason.encode())
        return not reason

    def _welcome(
        self, connection: ControlConnection, toolboxes: tuple[str, ...], folder: str
    ) -> None:
        """Send the attached process the descriptors that it needs to continue on its own."""
        fd = create_journal(os.path.dirname(self._info.log))  # noqa: PTH120
        try:
            outbox = create_outbox()
            self._discard_closed()
            host = JoinedHost(connection.pid, toolboxes, open_journal(fd), outbox, connection.send)
            host.folder = folder
            self._expected[connection] = host
            fds = [fd] if outbox is None else [fd, outbox.outlet]
            connection.send(control.WELCOME, fds=fds)
        finally:
            os.close(fd)

    def _discard_closed(self) -> None:
        """Discard hosts that were welcomed and disconnected before they sent their pipes."""
        for connection in [client for client in self._expected if client.is_closed]:
            self._expected.pop(connection).discard()

    def _refusal(self, claims: HostClaims) -> str:
        """Why a host may not join; empty if it may."""
        if claims.version != __version__.encode():
            other = claims.version.decode("utf-8", "replace")
            return f"it is version {__version__}, this is {other}: {RENEW}"
        if claims.config != os.fsencode(self._info.config):
            return f"it serves {self._info.config}"
        if self.is_stopping:
            return "it is ending"
        snapshot = self._gateway.snapshot.narrowed(claims.toolboxes)
        return _different_variables(snapshot, _environment(claims.variables))

    def _outdated_reason(self, snapshot: Snapshot) -> str:
        """Which changes of the file only the next start applies; a host served alone has them already."""
        try:
            wanted = load_config(self._info.config)
        except ConfigError:  # the previous configuration stays in force, and hosts get a warning
            return ""
        _, later = applied_now(snapshot, wanted)
        keys = [key for key in later if key != "http"]
        return (
            f"{', '.join(keys)} has changed in the file since it was started: {RENEW}"
            if keys
            else ""
        )

    def receive_pipes(self, connection: ControlConnection, fds: list[int]) -> None:
        """The pipes of a host that was welcomed."""
        host = self._expected.pop(connection, None)
        if host is None or len(fds) != 2 or self.is_stopping:
            for fd in fds:
                os.close(fd)
            if host is not None:
                host.discard()
            connection.close()  # the attached process continues on its own
            return
        connection.host = host
        self.hosts.add(host)
        log.info("host joined (pid %d; %d connected)", host.pid, len(self.hosts))
        self._scope.start(self._serve(host, connection, *fds), f"host {host.pid}")

    async def _serve(
        self, host: JoinedHost, connection: ControlConnection, own_in: int, own_out: int
    ) -> None:
        try:
            await host.serve(self._gateway.view, own_in, own_out)
        finally:
            connection.close()
            self.hosts.discard(host)
            log.info("host left (pid %d; %d connected)", host.pid, len(self.hosts))
            if not self.is_used:
                self.on_empty()

    @property
    def is_used(self) -> bool:
        return bool(self.hosts or self.commands)

    async def release_all(self, seconds: float, at_once: asyncio.Event) -> None:
        """Stop serving: the attached process of every host continues on its own."""
        self.is_stopping = True
        for command in tuple(self.commands):
            self._scope.start(command.finished(seconds), f"release {command.pid}")
        hosts = tuple(self.hosts)
        for host in hosts:
            host.release(seconds)
        while self.is_used:
            try:
                async with asyncio.timeout(0.05):
                    await at_once.wait()
            except TimeoutError:
                continue
            for host in self.hosts:
                host.gone()
            for command in self.commands:
                command.disconnect()
            await asyncio.sleep(0.01)


class HostClaims(msgspec.Struct, frozen=True):
    """What a client says of itself."""

    version: bytes
    config: bytes
    toolboxes: tuple[str, ...]  # that it is to see; empty: all
    variables: list[bytes]


def _own(spec: ServerSpec) -> ServerSpec:
    """An entry without what the daemon sets itself."""
    return msgspec.structs.replace(spec, idle_timeout=0.0, place="")


def other_folder(folder: str) -> str:
    """The folder of a host; empty where it is ours, or not known."""
    if not os.path.isabs(folder) or os.path.realpath(folder) == os.getcwd():  # noqa: PTH109, PTH117
        return ""
    return folder


def _environment(variables: list[bytes]) -> dict[str, str]:
    pairs = (os.fsdecode(variable).partition("=") for variable in variables)
    return {name: value for name, _, value in pairs}


def _different_variables(snapshot: Snapshot, environment: Mapping[str, str]) -> str:
    """Which variables of the servers' entries have another value where the host runs.

    A variable that is not set there is no reason: programs not started from a shell have few.
    """
    targets = [spec.target for spec in servers_of(snapshot).values()]
    names = dict.fromkeys(
        name for target in targets for _, text in strings_of(target) for name in references(text)
    )
    for name, _ in snapshot.secrets:  # never taken from the environment
        names.pop(name, None)
    for target in targets:
        if isinstance(target, StdioCommand):
            names |= dict.fromkeys(target.inherited_names)
    different = [
        name for name in names if environment.get(name, "") not in ("", os.environ.get(name))
    ]
    return f"variables have another value here: {', '.join(different)}" if different else ""


# One host


class JoinedHost:
    """A host that shares the daemon's servers, from its arrival to its end."""

    def __init__(
        self,
        pid: int,
        toolboxes: tuple[str, ...],
        journal: CrashJournal,
        outbox: Outbox | None,
        notify: Notify,
    ) -> None:
        self.pid = pid  # of its attached process
        self.toolboxes = toolboxes
        self.folder = ""  # in which it runs, if that is not ours
        self.since = time.monotonic()
        self._journal = journal
        self._outbox = outbox
        self._notify = notify
        self._over = asyncio.Event()
        self._at_once = asyncio.Event()
        self._patience = DRAIN
        self._status = 0
        self._is_released = False
        self.session: HostSession | None = None

    def discard(self) -> None:
        """Free what was prepared for it: its pipes have not arrived, and will not be served."""
        if self._outbox is not None:
            self._outbox.close()

    # Reasons to end

    def left(self) -> None:
        """The host has closed its output, or its attached process received SIGTERM."""
        self._over.set()

    def interrupted(self) -> None:
        """Its attached process received SIGINT."""
        self._status, self._patience = INTERRUPTED, HURRIED_DRAIN
        self._over.set()

    def gone(self) -> None:
        """The host or its attached process has disappeared: nothing is awaited."""
        self._at_once.set()
        self._over.set()

    def release(self, seconds: float) -> None:
        """The daemon stops: the attached process continues once the calls in flight have finished."""
        self._is_released, self._patience = True, seconds
        self._over.set()

    @property
    def under_way(self) -> int:
        return 0 if self.session is None else len(self.session.under_way)

    @property
    def revision(self) -> str:
        return "" if self.session is None else self.session.era.revision

    @property
    def name(self) -> str:
        return ""

    # Its session

    async def serve(self, view: View, own_in: int, own_out: int) -> None:
        """Serve the host until it ends, then close its pipes."""
        if self.toolboxes:
            view = view.narrowed(frozenset(self.toolboxes).__contains__)
        view = view.intercepted(JournalInterceptor(self._journal))
        largest = view.snapshot.limits.message_bytes
        channel = OutboxWriter(own_out, self.gone, self._journal, largest, self._outbox)
        try:
            async with task_scope() as requests:
                await self._run_session(view, channel, own_in, requests)
            await channel.flushed(FLUSH)
        finally:
            channel.abort()
        if not self._is_released:
            self._notify(control.ENDED, b"%d" % self._status)

    async def _run_session(
        self, view: View, channel: OutboxWriter, own_in: int, requests: TaskScope
    ) -> None:
        tools = JoinedToolView(view, self.toolboxes, self._notify)
        asked = "by its own servers"
        session = HostSession(view, channel, requests, tools, asked=asked)
        session.door = "daemon"
        session.elicitation.folder = self.folder
        self.session = session
        limit = view.snapshot.limits.message_bytes
        front = JoinedFront(session, channel, limit, self._journal, self._notify)
        reader = front.listen(own_in, self.left)
        # Only this host is held back while it does not read: its servers have other hosts.
        channel.on_pressure(lambda held: front.hold(held=held))
        try:
            await self._over.wait()
            await front.all_read()
            if self._is_released:
                front.is_closing = True
            else:
                session.drain()
            await self._drain(session)
        finally:
            reader.close()
            front.close()
            session.close()

    async def _drain(self, session: HostSession) -> None:
        session.when_idle(self._at_once.set)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                await self._at_once.wait()


class JoinedToolView(ToolView):
    """A joined host's tools; its attached process is notified which toolboxes are open."""

    def __init__(self, view: View, opened: tuple[str, ...], notify: Notify) -> None:
        super().__init__(view, opened)
        self._notify = notify

    def opened(self, toolbox: str) -> bool:
        if toolbox not in self._opened:
            self._notify(control.OPENED, toolbox.encode())
        return super().opened(toolbox)
