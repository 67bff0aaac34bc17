"""Another configuration takes the place of the one that holds: planned, then done in one step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mcp_workbench.core.names import ServerAddress
from mcp_workbench.core.reload_plan import (
    Reloaded,
    ReloadPlan,
    applied_now,
    plan_reload,
    servers_of,
)
from mcp_workbench.core.spec import ServerSpec, Snapshot
from mcp_workbench.gateway.views import Scopes
from mcp_workbench.upstream.connection import Connection
from mcp_workbench.upstream.pool import ConnectionPool


def reload(wanted: Snapshot, scopes: Scopes, pool: ConnectionPool) -> Reloaded:
    """Exchange the configuration. Nothing in here waits, so nobody sees half of it."""
    before = scopes.whole.snapshot
    after, later = applied_now(before, wanted)
    specs = servers_of(after)
    ways = pool.ways(specs)
    was = pool.ways(servers_of(before)) | pool.begun_ways()
    plan = plan_reload(before, after, was, ways)
    scopes.replace(after)
    retired = pool.renew(specs, ways, after.limits)
    lists = frozenset(_other_lists(before, after, plan, {**pool.at_hand(), **retired}))
    return Reloaded(before, after, plan, later, lists)


def _other_lists(
    before: Snapshot,
    after: Snapshot,
    plan: ReloadPlan,
    known: Mapping[ServerAddress, Connection],
) -> Iterator[tuple[str, str]]:
    """The lists that differ already; those of new and changed servers are known when they are met."""
    old, new = servers_of(before), servers_of(after)
    for address in plan.removed:
        if address in known:
            yield from ((address.toolbox, kind) for kind in _kinds(known[address], old[address]))
    for address in plan.refiltered:
        was, now = old[address].tools, new[address].tools
        tools = known[address].catalogue.tools if address in known else ()
        if any(was.shows(name) != now.shows(name) for name in tools):
            yield address.toolbox, "tools"


def _kinds(connection: Connection, spec: ServerSpec) -> Iterator[str]:
    """The lists that a server was in, as far as we ever met it."""
    if any(map(spec.tools.shows, connection.catalogue.tools)):
        yield "tools"
    if connection.primitives.declared.prompts:
        yield "prompts"
    if connection.primitives.declared.resources:
        yield "resources"
