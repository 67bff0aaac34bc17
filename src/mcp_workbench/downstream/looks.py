"""What there is to say of a connection, for people and for hosts."""

import time
from collections.abc import Mapping

from mcp_workbench.core.catalogue import tool_info
from mcp_workbench.core.reports import OpenedServer, ServerHealth, ServerReport
from mcp_workbench.core.spec import ServerSpec
from mcp_workbench.downstream.connection import Connection
from mcp_workbench.downstream.last_words import masked
from mcp_workbench.downstream.states import Closed, Ready


def shown(spec: ServerSpec, connection: Connection) -> OpenedServer | None:
    """Its tools as its toolbox shows them; None where it does not take calls."""
    if not connection.usable:
        return None
    tools = connection.catalogue.tools
    visible = tuple(tools[name] for name in connection.visible(spec.tools))
    return OpenedServer(spec.address, visible, connection.modern)


def why_not(connection: Connection) -> str:
    """Why it does not take calls."""
    state, now = connection.state, time.monotonic()
    if isinstance(state, Closed):
        return state.told(now)
    return f"still starting ({now - getattr(state, 'since', now):.0f} s)"


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
