"""Reports on connections: opened toolboxes, server reports and health, for users and hosts."""

import asyncio
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from mcp_workbench.config.expand import malformed
from mcp_workbench.core.catalogue import (
    OpenedServer,
    OpenedToolbox,
    ServerHealth,
    ServerReport,
    Stale,
    Unavailable,
    tool_info,
)
from mcp_workbench.core.errors import ServerUnavailable, not_connected
from mcp_workbench.core.primitive_names import PrimitiveKind
from mcp_workbench.core.spec import Limits, ServerSpec, ToolboxSpec, idle_filter
from mcp_workbench.transport.tasks import task_scope
from mcp_workbench.upstream.cache import CatalogueCache
from mcp_workbench.upstream.connection import Closed, Connecting, Connection, PoolContext, Ready
from mcp_workbench.upstream.conversation import Conversation, RequestFailed
from mcp_workbench.upstream.dial import Processes, StdioLink, masked
from mcp_workbench.upstream.health import RetryState
from mcp_workbench.upstream.pool import ConnectionPool
from mcp_workbench.upstream.server_requests import ConnectionHost
from mcp_workbench.upstream.tool_list import TOOLS_CHANGED, ToolList, Unlistable

if TYPE_CHECKING:
    from mcp_workbench.upstream.definition_locks import DefinitionLocks

_REPORTED: tuple[PrimitiveKind, ...] = ("prompts", "templates")
SHOWN = 200  # characters of a line that was no message


async def wait_until_decided(connections: Iterable[Connection], seconds: float) -> None:
    """Wait, at most `seconds`, until all are ready or have failed; slow ones go on starting."""
    connections = tuple(connections)
    for connection in connections:
        tools = connection.tools
        if connection.usable and tools.behind and not tools.stale:
            connection.conversation.announce(TOOLS_CHANGED)  # listed again, in the background
    async with task_scope() as waiting:
        tasks = [
            waiting.start(connection.refresh() if connection.usable else connection.ready(), "wait")
            for connection in connections
            # One that stopped announcing changes is listed again.
            if not connection.usable or connection.primitives.subscriptions.is_interrupted
        ]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)


def opened_server(spec: ServerSpec, connection: Connection) -> OpenedServer | None:
    """The tools of a server as its toolbox shows them; None where it is not ready."""
    if not connection.usable:
        return None
    tools = connection.catalogue.tools
    visible = tuple(tools[name] for name in connection.visible(spec.tools))
    stale = _behind(connection.tools, spec) if connection.tools.behind else None
    idle = connection.tools.idle_filters(spec.tools)
    return OpenedServer(spec.address, visible, connection.modern, stale=stale, idle_filters=idle)


def _behind(tools: ToolList, spec: ServerSpec) -> Stale:
    seconds = round(time.monotonic() - tools.read_at)
    reason = "it has others, or may have, and has not listed them again yet"
    return Stale(spec.address.server, seconds, reason)


def cached_server(
    spec: ServerSpec, pool: ConnectionPool, host: ConnectionHost | None
) -> OpenedServer | None:
    """What a server that is not connected offered last time, to this process or another one."""
    if pool.met(spec, host) is not None:
        return None
    last = pool.last(spec)
    if last is None or last.stopped_idle or last.usable:  # nothing is wrong with it
        return pool.cache.last_list(spec)
    return pool.cache.last_list(spec, unavailable_reason(last))


def opened_toolbox(
    toolbox: ToolboxSpec,
    outcomes: Iterable[Connection | OpenedServer | str],
    cache: CatalogueCache,
    warnings: tuple[str, ...] = (),
) -> OpenedToolbox:
    """A toolbox with the servers that could be reached. Raises ServerUnavailable where none could.

    `outcomes` has, for each server in order, its connection, what is cached of it, or the reason why there
    is neither. One that is still starting has its cached tools, if any, and is listed as unavailable.
    """
    outcomes = tuple(outcomes)
    servers: list[OpenedServer] = []
    missing: list[ServerUnavailable] = []
    unavailable: list[Unavailable] = []
    for spec, outcome in zip(toolbox.servers.values(), outcomes, strict=True):
        server = opened_server(spec, outcome) if isinstance(outcome, Connection) else outcome
        if isinstance(server, OpenedServer):
            servers.append(server)
            continue
        error = _unavailable(spec, outcome if isinstance(outcome, Connection) else str(server))
        missing.append(error)
        reason = error.reason
        if isinstance(outcome, Connection) and (last := _last_list(spec, outcome, cache, reason)):
            servers.append(last)
            reason = f"{reason}; {last.stale}"
        unavailable.append(Unavailable(spec.address.server, reason))
    if missing and not servers:
        raise _none_reached(missing)
    stale = [
        f"{server.address}: {server.stale}: {server.stale.reason}"
        for server in servers
        if server.connected and server.stale
    ]
    entries = [
        f"{spec.address}: {problem}"
        for spec in toolbox.servers.values()
        for problem in malformed(spec)
    ]
    entries += [
        hidden
        for spec, outcome in zip(toolbox.servers.values(), outcomes, strict=True)
        if isinstance(outcome, Connection) and (hidden := _hidden_by_lock(spec, outcome))
    ]
    entries += [
        f"{server.address}: {idle_filter(pattern)}"
        for server in servers
        for pattern in server.idle_filters
    ]
    return OpenedToolbox(toolbox, tuple(servers), tuple(unavailable), (*warnings, *entries, *stale))


def _hidden_by_lock(spec: ServerSpec, connection: Connection) -> str:
    """That the lock file hides tools of this server, without their names; empty if it hides none."""
    review = connection.tools.reviews.get("tools")
    count = sum(map(spec.tools.shows, review.blocked)) if review is not None else 0
    if not count:
        return ""
    tools = "1 tool is" if count == 1 else f"{count} tools are"
    return (
        f"{spec.address}: {tools} hidden: a person can run `mcp-workbench lock diff {spec.address}`"
    )


def _unavailable(spec: ServerSpec, cause: Connection | str) -> ServerUnavailable:
    if isinstance(cause, Connection):
        return not_ready(cause)
    return not_connected(spec.address.server, spec.address.toolbox, cause)


def _last_list(
    spec: ServerSpec, connection: Connection, cache: CatalogueCache, reason: str
) -> OpenedServer | None:
    """What a server that is starting offered last time."""
    is_starting = isinstance(connection.state, Connecting) and not connection.retired
    return cache.last_list(spec, reason) if is_starting else None


def _none_reached(missing: list[ServerUnavailable]) -> ServerUnavailable:
    waits = [error.retry_after for error in missing if error.retry_after is not None]
    return ServerUnavailable(
        "connect_failed",
        "\n".join(error.message for error in missing),
        reason="; ".join(error.reason for error in missing),
        retry_after=min(waits) if len(waits) == len(missing) else None,
    )


def not_ready(connection: Connection) -> ServerUnavailable:
    """The error for calls to a server that is not ready."""
    address, retry = connection.spec.address, _retry(connection)
    return not_connected(
        address.server,
        address.toolbox,
        unavailable_reason(connection),
        code=retry.code,
        retry_after=retry.left(time.monotonic()),
    )


def _retry(connection: Connection) -> RetryState:
    state = connection.state
    return state.retry if isinstance(state, Closed) else RetryState()


def unavailable_reason(connection: Connection) -> str:
    """Why a server takes no calls."""
    state, now = connection.state, time.monotonic()
    if isinstance(state, Closed):
        return "; ".join((state.describe(now), *malformed(connection.spec)))
    if connection.retired:
        return connection.ending
    return f"still starting ({now - getattr(state, 'since', now):.0f} s)"


def require_queue_room(connection: Connection, limits: Limits) -> None:
    """Raise ServerUnavailable where as many calls wait for its start as may be in flight."""
    if connection.awaited < limits.calls_per_server:
        return
    reason = f"{connection.awaited} calls wait for it to start (limits.callsPerServer)"
    text = f"[{connection.spec.address}] Error: the server is busy: {reason}"
    raise ServerUnavailable("overloaded", text, reason=reason)


def _last_skipped(conversation: Conversation, spec: ServerSpec, context: PoolContext) -> str:
    if not conversation.skipped:
        return ""
    return masked(conversation.last_skipped, spec, context.environ, cut=True)[:SHOWN]


def report(
    spec: ServerSpec, connection: Connection, since: float, context: PoolContext
) -> ServerReport:
    """Everything about a server that is ready."""
    conversation = connection.conversation
    state = connection.state
    agreed = state.agreed if isinstance(state, Ready) else None
    definitions = connection.catalogue.tools
    visible = connection.visible(spec.tools)
    return ServerReport(
        spec.address,
        revision=agreed.revision if agreed else "",
        server_name=agreed.name if agreed else "",
        server_version=agreed.version if agreed else "",
        instructions=agreed.instructions if agreed else "",
        tools=tuple(tool_info(definitions[name], spec.address) for name in visible),
        hidden=len(definitions) - len(visible),
        idle_filters=tuple(spec.tools.idle(tuple(definitions))),
        complaints=connection.complaints,
        skipped=conversation.skipped,
        last_skipped=_last_skipped(conversation, spec, context),
        processes=context.processes.of(spec.address),
        box=context.processes.box_of(spec.address),
        seconds=time.monotonic() - since,
        offers=_offers(connection),
        unlike_lock=tuple(
            (kind, name, state)
            for kind, review in connection.tools.reviews.items()
            for name, state in review.findings.items()
        ),
    )


async def list_offers(connection: Connection) -> None:
    """List prompts and templates, too, for the report. A server that can't is reported without them."""

    async def list_one(kind: PrimitiveKind) -> None:
        with suppress(Unlistable, RequestFailed):
            await connection.primitives.listed(kind)

    async with task_scope() as scope:
        for task in [scope.start(list_one(kind), f"list {kind}") for kind in _REPORTED]:
            await task


def _offers(connection: Connection) -> dict[str, tuple[msgspec.Raw, ...]]:
    lists = {kind: connection.primitives.known(kind) for kind in _REPORTED}
    return {
        kind: tuple(msgspec.Raw(offer.raw) for offer in listed.offers.values())
        for kind, listed in lists.items()
        if listed is not None
    }


def health(
    spec: ServerSpec,
    connection: Connection | None,
    processes: Processes,
    locks: "DefinitionLocks | None" = None,
) -> ServerHealth:
    """The state of a server, with the reason where it is not ready."""
    if locks is not None and (reason := locks.quarantine(spec)):
        state = ServerHealth(spec.address, "failed", reason)
    else:
        state = _health(spec, connection)
    count, box = processes.of(spec.address), processes.box_of(spec.address)
    return msgspec.structs.replace(state, processes=count, box=box)


def _health(spec: ServerSpec, connection: Connection | None) -> ServerHealth:
    if connection is None:
        return ServerHealth(spec.address, "idle", spec.problem)
    state, now = connection.state, time.monotonic()
    if connection.stopped_idle:
        return ServerHealth(spec.address, "idle", connection.ending)
    if isinstance(state, Closed):
        next_try = max(state.retry.not_before - now, 0.0)
        name = "broken" if state.retry.is_open else "failed"
        return ServerHealth(spec.address, name, state.reason, state.retry.failures, next_try)
    if not connection.usable:
        return ServerHealth(spec.address, "starting", unavailable_reason(connection))
    conversation = connection.conversation
    problem = connection.health.problem(conversation)
    return ServerHealth(
        spec.address,
        "degraded" if problem else "ready",
        problem,
        calls_in_flight=conversation.pending.count,
        skipped=conversation.skipped,
        unasked=conversation.unmatched,
    )


def process_group(connection: Connection) -> int:
    """The process group of a server that we started; 0 for one behind a URL."""
    link = connection._link  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - for reports only
    return link.group if isinstance(link, StdioLink) else 0
