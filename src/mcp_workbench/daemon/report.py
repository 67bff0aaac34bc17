"""What the background workbench knows of itself, for `status`."""

import os
import time
from collections import Counter
from collections.abc import Iterable

import msgspec

from mcp_workbench import __version__
from mcp_workbench.core.reports import ServerHealth
from mcp_workbench.daemon.host import JoinedHost
from mcp_workbench.daemon.status import HostLine, ServerLine, Status
from mcp_workbench.workbench import Workbench


class About(msgspec.Struct):
    """What does not come from the workbench itself."""

    config: str
    log: str
    since: float
    url: str = ""


def status_of(
    about: About, workbench: Workbench, hosts: Iterable[JoinedHost], trouble: str, *, ending: bool
) -> Status:
    """How everything does just now; nothing is started for it."""
    live, calls, given = Counter[str](), Counter[str](), Counter[str]()
    for connection in workbench.all_live:
        address = str(connection.spec.address)
        live[address] += 1
        calls[address] += connection.conversation.pending.count
        given[address] += connection.conversation.pending.given
    servers = tuple(_server(one, live, calls, given) for one in workbench.health())
    return Status(
        running=True,
        config=about.config,
        version=__version__,
        pid=os.getpid(),
        seconds=round(time.monotonic() - about.since, 1),
        url=about.url,
        memory=resident_bytes(),
        calls_in_flight=sum(one.calls_in_flight for one in servers),
        servers=servers,
        hosts=tuple(map(_host, hosts)),
        log=about.log,
        log_trouble=trouble,
        is_ending=ending,
        warnings=workbench.warnings,
    )


def _server(
    health: ServerHealth, live: Counter[str], calls: Counter[str], given: Counter[str]
) -> ServerLine:
    address = str(health.address)
    state = "ready" if health.state == "idle" and live[address] else health.state
    return ServerLine(
        toolbox=health.address.toolbox,
        server=health.address.server,
        state=state,
        connections=live[address],
        calls_in_flight=calls[address],
        calls=given[address],
        failures=health.failures,
        next_try=round(health.next_try, 1),
        reason=health.reason,
    )


def _host(host: JoinedHost) -> HostLine:
    revision = host.session.era.revision if host.session is not None else ""
    seconds = round(time.monotonic() - host.since, 1)
    return HostLine(host.pid, seconds, revision, host.toolboxes, host.under_way)


def resident_bytes() -> int:
    """Our own memory; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
