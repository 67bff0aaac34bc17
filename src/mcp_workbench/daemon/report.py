"""What the background workbench knows of itself, for `status`."""

import os
import time
from collections import defaultdict
from collections.abc import Iterable

import msgspec

from mcp_workbench import __version__
from mcp_workbench.core.names import ServerAddress
from mcp_workbench.core.reports import ServerHealth
from mcp_workbench.daemon.host import JoinedHost
from mcp_workbench.daemon.status import HostLine, ServerLine, Status
from mcp_workbench.downstream.connection import Connection
from mcp_workbench.downstream.looks import group
from mcp_workbench.gateway.gateway import Gateway


class About(msgspec.Struct):
    """What does not come from the workbench itself."""

    config: str
    log: str
    since: float
    url: str = ""


def status_of(
    about: About, gateway: Gateway, hosts: Iterable[JoinedHost], trouble: str, *, ending: bool
) -> Status:
    """How everything does just now; nothing is started for it."""
    live = defaultdict[ServerAddress, list[Connection]](list)
    for connection in gateway.connected:
        live[connection.spec.address].append(connection)
    servers = tuple(_server(one, live[one.address]) for one in gateway.health())
    return Status(
        running=True,
        config=about.config,
        version=__version__,
        pid=os.getpid(),
        seconds=round(time.monotonic() - about.since, 1),
        url=about.url,
        calls_in_flight=sum(one.calls_in_flight for one in servers),
        servers=servers,
        hosts=tuple(map(_host, hosts)),
        log=about.log,
        log_trouble=trouble,
        is_ending=ending,
        warnings=gateway.warnings,
    )


def _server(health: ServerHealth, live: list[Connection]) -> ServerLine:
    state = "ready" if health.state == "idle" and live else health.state
    pending = [connection.conversation.pending for connection in live]
    return ServerLine(
        toolbox=health.address.toolbox,
        server=health.address.server,
        state=state,
        connections=len(live),
        pids=tuple(filter(None, map(group, live))),
        calls_in_flight=sum(one.count for one in pending),
        calls=sum(one.given for one in pending),
        failures=health.failures,
        next_try=round(health.next_try, 1),
        reason=health.reason,
    )


def _host(host: JoinedHost) -> HostLine:
    revision = host.session.era.revision if host.session is not None else ""
    seconds = round(time.monotonic() - host.since, 1)
    return HostLine(host.pid, seconds, revision, host.toolboxes, host.under_way)
