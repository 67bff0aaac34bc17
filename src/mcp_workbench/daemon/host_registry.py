"""Registry of joined hosts: decides who may join, and answers the control requests of the daemon."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping

import msgspec

from mcp_workbench import __version__
from mcp_workbench.config.expand import references, strings_of
from mcp_workbench.config.load import load_config
from mcp_workbench.core.errors import ConfigError, NotFound
from mcp_workbench.core.reload_plan import applied_now, servers_of
from mcp_workbench.core.spec import Snapshot
from mcp_workbench.daemon import control_protocol as protocol
from mcp_workbench.daemon.control_server import ControlConnection
from mcp_workbench.daemon.crash_journal import create_journal, open_journal
from mcp_workbench.daemon.host import JoinedHost
from mcp_workbench.daemon.log import BoundedLog
from mcp_workbench.daemon.outbox import create_outbox
from mcp_workbench.daemon.status import DaemonInfo, current_status
from mcp_workbench.gateway.gateway import Gateway
from mcp_workbench.transport.tasks import TaskScope

log = logging.getLogger(__name__)

RENEW = "mcp-workbench down, then up, renews it"


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
        self.is_stopping = False
        self.down: Callable[[], None] = lambda: None
        self.reload: Callable[[], None] = lambda: None
        self.on_empty: Callable[[], None] = lambda: None  # called when the last host has left

    def handle(self, connection: ControlConnection, request: bytes, fields: list[bytes]) -> None:
        if request == protocol.JOIN and len(fields) >= 3:
            self._scope.start(self._join(connection, fields), f"join {connection.pid}")
        elif request == protocol.STATUS:
            status = current_status(
                self._info,
                self._gateway,
                self.hosts,
                self._log_file.trouble,
                stopping=self.is_stopping,
            )
            connection.send(protocol.REPORT, msgspec.json.encode(status))
        elif request == protocol.DOWN:
            connection.send(protocol.GOING, b"%d" % os.getpid())
            self.down()
        else:
            reason = b"it does not know this request: " + request[:20]
            connection.send(protocol.REFUSED, protocol.LOUDLY, reason)

    # Joining

    async def _join(self, connection: ControlConnection, fields: list[bytes]) -> None:
        # In a thread: a file may be long, or a pipe that nobody writes to.
        outdated = await asyncio.to_thread(self._outdated_reason, self._gateway.snapshot)
        if connection.is_closed:
            return
        version, config, names, *variables = fields
        toolboxes = tuple(filter(None, names.decode("utf-8", "replace").split(",")))
        try:
            reason = self._refusal(version, config, toolboxes, variables) or outdated
        except NotFound as error:
            connection.send(protocol.REFUSED, protocol.QUIETLY, error.message.encode())
            return
        if reason:
            log.info("host refused (pid %d): %s", connection.pid, reason)
            connection.send(protocol.REFUSED, protocol.LOUDLY, reason.encode())
            return
        try:
            self._welcome(connection, toolboxes)
        except OSError as error:
            reason = error.strerror or str(error)
            connection.send(protocol.REFUSED, protocol.LOUDLY, reason.encode())

    def _welcome(self, connection: ControlConnection, toolboxes: tuple[str, ...]) -> None:
        """Send the attached process the descriptors that it needs to continue on its own."""
        fd = create_journal(os.path.dirname(self._info.log))  # noqa: PTH120
        try:
            outbox = create_outbox()
            self._discard_closed()
            self._expected[connection] = JoinedHost(
                connection.pid, toolboxes, open_journal(fd), outbox, connection.send
            )
            fds = [fd] if outbox is None else [fd, outbox.outlet]
            connection.send(protocol.WELCOME, fds=fds)
        finally:
            os.close(fd)

    def _discard_closed(self) -> None:
        """Discard hosts that were welcomed and disconnected before they sent their pipes."""
        for connection in [client for client in self._expected if client.is_closed]:
            self._expected.pop(connection).discard()

    def _refusal(
        self, version: bytes, config: bytes, toolboxes: tuple[str, ...], variables: list[bytes]
    ) -> str:
        """Why a host may not join; empty if it may."""
        if version != __version__.encode():
            other = version.decode("utf-8", "replace")
            return f"it is version {__version__}, this is {other}: {RENEW}"
        if config != os.fsencode(self._info.config):
            return f"it serves {self._info.config}"
        if self.is_stopping:
            return "it is ending"
        snapshot = self._gateway.snapshot.narrowed(toolboxes)
        return _different_variables(snapshot, _environment(variables))

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
            if not self.hosts:
                self.on_empty()

    async def release_all(self, seconds: float, at_once: asyncio.Event) -> None:
        """Stop serving: the attached process of every host continues on its own."""
        self.is_stopping = True
        hosts = tuple(self.hosts)
        for host in hosts:
            host.release(seconds)
        while self.hosts:
            try:
                async with asyncio.timeout(0.05):
                    await at_once.wait()
            except TimeoutError:
                continue
            for host in self.hosts:
                host.gone()
            await asyncio.sleep(0.01)


def _environment(variables: list[bytes]) -> dict[str, str]:
    pairs = (os.fsdecode(variable).partition("=") for variable in variables)
    return {name: value for name, _, value in pairs}


def _different_variables(snapshot: Snapshot, environment: Mapping[str, str]) -> str:
    """Which variables of the servers' entries have another value where the host runs.

    A variable that is not set there is no reason: programs not started from a shell have few.
    """
    texts = (text for spec in servers_of(snapshot).values() for _, text in strings_of(spec.target))
    names = dict.fromkeys(name for text in texts for name in references(text))
    different = [
        name for name in names if environment.get(name, "") not in ("", os.environ.get(name))
    ]
    return f"variables have another value here: {', '.join(different)}" if different else ""
