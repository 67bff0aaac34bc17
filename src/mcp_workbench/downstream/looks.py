"""What there is to say of a connection, for people and for hosts."""

import asyncio
import time
from collections.abc import Iterable, Mapping

from mcp_workbench.core.catalogue import Unavailable, tool_info
from mcp_workbench.core.errors import ServerUnavailable, not_connected
from mcp_workbench.core.reports import OpenedServer, OpenedToolbox, ServerHealth, ServerReport
from mcp_workbench.core.spec import Limits, ServerSpec, ToolboxSpec
from mcp_workbench.downstream.connection import Connection
from mcp_workbench.downstream.hosts import Host
from mcp_workbench.downstream.last_words import masked
from mcp_workbench.downstream.pool import ConnectionPool
from mcp_workbench.downstream.states import Closed, Ready
from mcp_workbench.downstream.trials import Trial
from mcp_workbench.wire.tasks import task_scope


async def decided(connections: Iterable[Connection], seconds: float) -> None:
    """Wait until all take calls or are over; the slow ones have had their time, and go on starting."""
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
    return OpenedServer(spec.address, visible, connection.modern)


def remembered(spec: ServerSpec, pool: ConnectionPool, host: Host | None) -> OpenedServer | None:
    """What a server showed that is not there now, but was, here or in another process."""
    known = pool.memory.recall(spec) if pool.met(spec, host) is None else None
    return None if known is None else known.opened(spec)


def opened(
    toolbox: ToolboxSpec,
    found: Iterable[Connection | OpenedServer | str],
    warnings: tuple[str, ...] = (),
) -> OpenedToolbox:
    """A toolbox as far as its servers could be reached. Raises where none could.

    Of each server, in order: its connection, what is known of it, or why there is neither.
    """
    servers: list[OpenedServer] = []
    unavailable: list[Unavailable] = []
    for spec, one in zip(toolbox.servers.values(), found, strict=True):
        server = shown(spec, one) if isinstance(one, Connection) else one
        if isinstance(server, OpenedServer):
            servers.append(server)
        else:
            reason = why_not(one) if isinstance(one, Connection) else str(one)
            unavailable.append(Unavailable(spec.address.server, reason))
    if unavailable and not servers:
        raise _none_reached(toolbox.name, unavailable)
    return OpenedToolbox(toolbox, tuple(servers), tuple(unavailable), warnings)


def _none_reached(toolbox: str, unavailable: list[Unavailable]) -> ServerUnavailable:
    errors = [not_connected(u.server, toolbox, u.reason) for u in unavailable]
    return ServerUnavailable(
        "connect_failed",
        "\n".join(error.message for error in errors),
        reason="; ".join(u.reason for u in unavailable),
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


def report(
    spec: ServerSpec, connection: Connection, since: float, environ: Mapping[str, str]
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
        last_skipped=masked(talk.last_skipped, spec, environ) if talk.skipped else "",
        seconds=time.monotonic() - since,
    )


def health(spec: ServerSpec, connection: Connection | None) -> ServerHealth:
    """Its state in a word, with a reason where it could be better."""
    if connection is None:
        return ServerHealth(spec.address, "idle", spec.problem)
    state, now = connection.state, time.monotonic()
    if isinstance(state, Closed):
        if connection.resting:
            return ServerHealth(spec.address, "idle", state.reason)
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
