"""What there is to say of a connection, for people and for hosts."""

import asyncio
import time
from collections.abc import Iterable

import msgspec

from mcp_workbench.core.catalogue import Stale, Unavailable, tool_info
from mcp_workbench.core.errors import ServerUnavailable, not_connected
from mcp_workbench.core.reports import OpenedServer, OpenedToolbox, ServerHealth, ServerReport
from mcp_workbench.core.spec import Limits, ServerSpec, ToolboxSpec
from mcp_workbench.upstream.backoff import Trial
from mcp_workbench.upstream.cache import Memory
from mcp_workbench.upstream.connection import Closed, Connecting, Connection, Ready
from mcp_workbench.upstream.context import Surroundings
from mcp_workbench.upstream.conversation import Conversation
from mcp_workbench.upstream.exit_reason import masked
from mcp_workbench.upstream.pool import ConnectionPool
from mcp_workbench.upstream.refresh import TOOLS_CHANGED
from mcp_workbench.upstream.server_requests import Host
from mcp_workbench.upstream.tools import Wares
from mcp_workbench.wire.tasks import task_scope

SHOWN = 200  # characters of a line that was no message


async def decided(connections: Iterable[Connection], seconds: float) -> None:
    """Wait until all take calls or are over; the slow ones have had their time, and go on starting."""
    connections = tuple(connections)
    for one in connections:
        if one.usable and one.wares.behind and not one.wares.stale:
            one.conversation.announce(TOOLS_CHANGED)  # it is asked again, and not waited for
    async with task_scope() as waiting:
        tasks = [
            waiting.start(one.refresh() if one.usable else one.ready(), "wait")
            for one in connections
            # One that stopped to announce its changes is asked what it has now.
            if not one.usable or one.offers.wishes.deaf
        ]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)


def shown(spec: ServerSpec, connection: Connection) -> OpenedServer | None:
    """Its tools as its toolbox shows them; None where it does not take calls."""
    if not connection.usable:
        return None
    tools = connection.catalogue.tools
    visible = tuple(tools[name] for name in connection.visible(spec.tools))
    stale = _behind(connection.wares, spec) if connection.wares.behind else None
    return OpenedServer(spec.address, visible, connection.modern, stale=stale)


def _behind(wares: Wares, spec: ServerSpec) -> Stale:
    seconds = round(time.monotonic() - wares.read_at)
    why = "it has others, or may have, and has not listed them again yet"
    return Stale(spec.address.server, seconds, why)


def remembered(spec: ServerSpec, pool: ConnectionPool, host: Host | None) -> OpenedServer | None:
    """What a server showed that is not there now, but was, here or in another process."""
    if pool.met(spec, host) is not None:
        return None
    last = pool.last(spec.address)
    if last is None or last.resting or last.usable:  # nothing is wrong: nobody needs it now
        return pool.memory.last_list(spec)
    return pool.memory.last_list(spec, why_not(last))


def opened(
    toolbox: ToolboxSpec,
    found: Iterable[Connection | OpenedServer | str],
    memory: Memory,
    warnings: tuple[str, ...] = (),
) -> OpenedToolbox:
    """A toolbox as far as its servers could be reached. Raises where none could.

    Of each server, in order: its connection, what is known of it, or why there is neither. One that
    is still being met has the tools that it had, if that is known, and is named as unavailable.
    """
    servers: list[OpenedServer] = []
    missing: list[ServerUnavailable] = []
    unavailable: list[Unavailable] = []
    for spec, one in zip(toolbox.servers.values(), found, strict=True):
        server = shown(spec, one) if isinstance(one, Connection) else one
        if isinstance(server, OpenedServer):
            servers.append(server)
            continue
        error = _missing(spec, one if isinstance(one, Connection) else str(server))
        missing.append(error)
        reason = error.reason
        if isinstance(one, Connection) and (last := _last_list(spec, one, memory, reason)):
            servers.append(last)
            reason = f"{reason}; {last.stale}"
        unavailable.append(Unavailable(spec.address.server, reason))
    if missing and not servers:
        raise _none_reached(missing)
    warned = [
        f"{one.address}: {one.stale}: {one.stale.reason}"
        for one in servers
        if one.connected and one.stale
    ]
    return OpenedToolbox(toolbox, tuple(servers), tuple(unavailable), (*warnings, *warned))


def _missing(spec: ServerSpec, one: Connection | str) -> ServerUnavailable:
    if isinstance(one, Connection):
        return not_ready(one)
    return not_connected(spec.address.server, spec.address.toolbox, one)


def _last_list(
    spec: ServerSpec, connection: Connection, memory: Memory, why: str
) -> OpenedServer | None:
    """What it had when it was last connected, as long as it may be there any moment."""
    is_coming = isinstance(connection.state, Connecting) and not connection.retired
    return memory.last_list(spec, why) if is_coming else None


def _none_reached(missing: list[ServerUnavailable]) -> ServerUnavailable:
    waits = [error.retry_after for error in missing if error.retry_after is not None]
    return ServerUnavailable(
        "connect_failed",
        "\n".join(error.message for error in missing),
        reason="; ".join(error.reason for error in missing),
        retry_after=min(waits) if len(waits) == len(missing) else None,
    )


def not_ready(connection: Connection) -> ServerUnavailable:
    """The error for whoever wanted to call it."""
    address, trial = connection.spec.address, _trial(connection)
    return not_connected(
        address.server,
        address.toolbox,
        why_not(connection),
        code=trial.code,
        retry_after=trial.left(time.monotonic()),
    )


def _trial(connection: Connection) -> Trial:
    state = connection.state
    return state.trial if isinstance(state, Closed) else Trial()


def why_not(connection: Connection) -> str:
    """Why it does not take calls."""
    state, now = connection.state, time.monotonic()
    if isinstance(state, Closed):
        return state.told(now)
    if connection.retired:
        return connection.ending
    return f"still starting ({now - getattr(state, 'since', now):.0f} s)"


def require_patience(connection: Connection, limits: Limits) -> None:
    """Raises where as many wait for it to start as may call it afterwards."""
    if connection.awaited < limits.calls_per_server:
        return
    why = f"{connection.awaited} calls wait for it to start (limits.callsPerServer)"
    text = f"[{connection.spec.address}] Error: the server is busy: {why}"
    raise ServerUnavailable("overloaded", text, reason=why)


def _last_skipped(talk: Conversation, spec: ServerSpec, around: Surroundings) -> str:
    return masked(talk.last_skipped, spec, around.environ, cut=True)[:SHOWN] if talk.skipped else ""


def report(
    spec: ServerSpec, connection: Connection, since: float, around: Surroundings
) -> ServerReport:
    """All about one that takes calls."""
    talk = connection.conversation
    state = connection.state
    agreed = state.agreed if isinstance(state, Ready) else None
    definitions = connection.catalogue.tools
    visible = connection.visible(spec.tools)
    return ServerReport(
        spec.address,
        revision=agreed.revision if agreed else "",
        server_name=agreed.name if agreed else "",
        server_version=agreed.version if agreed else "",
        tools=tuple(tool_info(definitions[name], spec.address) for name in visible),
        hidden=len(definitions) - len(visible),
        idle_filters=tuple(spec.tools.idle(tuple(definitions))),
        complaints=connection.complaints,
        skipped=talk.skipped,
        last_skipped=_last_skipped(talk, spec, around),
        processes=around.processes.of(spec.address),
        seconds=time.monotonic() - since,
    )


def health(spec: ServerSpec, connection: Connection | None, processes: int) -> ServerHealth:
    """Its state in a word, with a reason where it could be better."""
    return msgspec.structs.replace(_health(spec, connection), processes=processes)


def _health(spec: ServerSpec, connection: Connection | None) -> ServerHealth:
    if connection is None:
        return ServerHealth(spec.address, "idle", spec.problem)
    state, now = connection.state, time.monotonic()
    if connection.resting:
        return ServerHealth(spec.address, "idle", connection.ending)
    if isinstance(state, Closed):
        next_try = max(state.trial.not_before - now, 0.0)
        word = "broken" if state.trial.is_open else "failed"
        return ServerHealth(spec.address, word, state.reason, state.trial.failures, next_try)
    if not connection.usable:
        return ServerHealth(spec.address, "starting", why_not(connection))
    talk = connection.conversation
    complaint = connection.wellbeing.complaint(talk)
    return ServerHealth(
        spec.address,
        "degraded" if complaint else "ready",
        complaint,
        calls_in_flight=talk.pending.count,
        skipped=talk.skipped,
        unasked=talk.unasked,
    )


def group(connection: Connection) -> int:
    """The process group of a server that we have started; 0 where it is somebody else's."""
    from mcp_workbench.upstream.dial import StdioLink  # loaded with the first of them

    link = connection._link  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - for nobody else
    return link.group if isinstance(link, StdioLink) else 0
