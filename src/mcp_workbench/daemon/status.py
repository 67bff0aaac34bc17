"""Status: the document of `status --json`, made by the daemon and completed by the command.

The daemon reports servers, hosts and calls. The command adds the memory of the processes: it reads /proc
itself, because the daemon has hosts to serve.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from mcp_workbench import __version__
from mcp_workbench.transport.process_table import list_processes

if TYPE_CHECKING:  # loaded in the daemon, and not by the command
    from mcp_workbench.core.catalogue import ServerHealth
    from mcp_workbench.core.spec import ServerAddress
    from mcp_workbench.daemon.command_clients import CommandClient
    from mcp_workbench.daemon.joined_hosts import JoinedHost
    from mcp_workbench.gateway.workbench import Gateway
    from mcp_workbench.upstream.connection import Connection


class HostLine(msgspec.Struct, frozen=True, rename="camel"):
    """One joined host."""

    pid: int  # of its attached process
    seconds: float
    name: str = ""  # as it calls itself; empty until it has. A command uses it while it runs
    version: str = ""
    revision: str = ""
    toolboxes: tuple[str, ...] = ()  # empty: all
    folder: str = ""  # empty: that of the configuration file
    calls_in_flight: int = 0
    memory: int | UnsetType = UNSET  # bytes resident; left out if the system does not report it


class ServerStatus(msgspec.Struct, frozen=True, rename="camel"):
    """One server of the configuration."""

    toolbox: str
    server: str
    state: str
    connections: int = 0  # one for all hosts, or one for each
    pids: tuple[int, ...] = ()  # of the processes that the daemon has started
    processes: int | UnsetType = UNSET  # with all that those have started
    memory: int | UnsetType = UNSET
    calls_in_flight: int = 0
    calls: int = 0  # requests since it was last connected
    failures: int = 0
    next_try: float = 0.0
    reason: str = ""
    started: bool = False  # since `up`; an idle one that was not has never been connected
    box: str = ""  # the sandbox of its last process: none, process or files
    scope: str = "shared"  # or session, principal, or folder: one for each host, in its folder


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """The document that `status --json` prints."""

    running: bool
    config: str
    version: str = ""
    pid: int = 0
    seconds: float = 0.0
    url: str = ""
    memory: int | UnsetType = UNSET  # of the daemon alone
    calls_in_flight: int = 0
    servers: tuple[ServerStatus, ...] = ()
    hosts: tuple[HostLine, ...] = ()
    log: str = ""
    log_trouble: str = ""
    log_calls: str = ""  # the file that has a line per call; empty: calls are not logged
    log_calls_trouble: str = ""  # why it can't be written now
    calls_not_logged: int = 0
    is_ending: bool = False
    warnings: tuple[str, ...] = ()


# In the daemon


class DaemonInfo(msgspec.Struct):
    """What the gateway does not know about its process."""

    config: str
    log: str
    since: float
    url: str = ""


def current_status(
    info: DaemonInfo,
    gateway: Gateway,
    hosts: Iterable[JoinedHost | CommandClient],
    trouble: str,
    *,
    stopping: bool,
) -> Status:
    """The current state, without starting anything."""
    live: defaultdict[ServerAddress, list[Connection]] = defaultdict(list)
    for connection in gateway.connected:
        live[connection.spec.address].append(connection)
    audits = [audit.file for audit in gateway.audits]
    servers = tuple(
        _server_line(gateway, health, live[health.address]) for health in gateway.health()
    )
    return Status(
        running=True,
        config=info.config,
        version=__version__,
        pid=os.getpid(),
        seconds=round(time.monotonic() - info.since, 1),
        url=info.url,
        calls_in_flight=sum(server.calls_in_flight for server in servers),
        servers=servers,
        hosts=tuple(map(_host_line, hosts)),
        log=info.log,
        log_trouble=trouble,
        log_calls=", ".join(file.path for file in audits),
        log_calls_trouble="; ".join(file.trouble for file in audits if file.trouble),
        calls_not_logged=sum(file.lost for file in audits),
        is_ending=stopping,
        warnings=gateway.warnings,
    )


def _scope(gateway: Gateway, address: ServerAddress) -> str:
    spec = gateway.snapshot.find(address)
    if spec is None or spec.scope == "session":
        return "session"
    if spec.scope == "principal":
        return "principal"
    return "folder" if spec.follows_hosts else "shared"


def _server_line(gateway: Gateway, health: ServerHealth, live: list[Connection]) -> ServerStatus:
    from mcp_workbench.upstream.reports import process_group

    state = "ready" if health.state == "idle" and live else health.state
    pending = [connection.conversation.pending for connection in live]
    return ServerStatus(
        toolbox=health.address.toolbox,
        server=health.address.server,
        state=state,
        connections=len(live),
        pids=tuple(filter(None, map(process_group, live))),
        calls_in_flight=sum(requests.count for requests in pending),
        calls=sum(requests.given for requests in pending),
        failures=health.failures,
        next_try=round(health.next_try, 1),
        reason=health.reason,
        started=bool(live) or gateway.pool.was_started(health.address),
        box=health.box,
        scope=_scope(gateway, health.address),
    )


def _named(host: JoinedHost | CommandClient) -> tuple[str, str]:
    """The name and version of a host, as far as it has said them."""
    from mcp_workbench.daemon.joined_hosts import JoinedHost

    if not isinstance(host, JoinedHost):
        return host.name, ""
    return ("", "") if host.session is None else host.session.host


def _host_line(host: JoinedHost | CommandClient) -> HostLine:
    name, version = _named(host)
    return HostLine(
        host.pid,
        round(time.monotonic() - host.since, 1),
        name,
        version,
        host.revision,
        host.toolboxes,
        host.folder,
        host.under_way,
    )


# In the command


class Footprint(NamedTuple):
    """Of some processes."""

    processes: int
    memory: int  # bytes resident


def with_memory(status: Status) -> Status:
    """The same with the memory of its processes on Linux; unchanged elsewhere."""
    processes = list_processes()
    if status.pid not in processes:
        return status
    page_bytes = os.sysconf("SC_PAGE_SIZE")

    def footprint(pids: Iterable[int]) -> Footprint:
        pages = [processes[pid][1] for pid in pids if pid in processes]
        return Footprint(len(pages), sum(pages) * page_bytes)

    def server(line: ServerStatus) -> ServerStatus:
        groups = set(line.pids)
        count, memory = footprint(
            pid for pid, (process_group, _) in processes.items() if process_group in groups
        )
        return msgspec.structs.replace(line, processes=count, memory=memory)

    def host(line: HostLine) -> HostLine:
        return msgspec.structs.replace(line, memory=footprint((line.pid,)).memory)

    return msgspec.structs.replace(
        status,
        memory=footprint((status.pid,)).memory,
        servers=tuple(map(server, status.servers)),
        hosts=tuple(map(host, status.hosts)),
    )
