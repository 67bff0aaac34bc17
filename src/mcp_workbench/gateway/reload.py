"""Replaces the configuration: what changes is decided by pure functions, then done in one step."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from mcp_workbench.core.spec import ServerAddress, ServerSpec, Snapshot
from mcp_workbench.gateway.views import Scopes
from mcp_workbench.upstream.connection import Connection
from mcp_workbench.upstream.pool import ConnectionPool

if TYPE_CHECKING:
    from mcp_workbench.gateway.workbench import Gateway

Addresses = tuple[ServerAddress, ...]
# How each server is reached, with the values of variables: `config.expand.resolve_server`.
ResolvedServers = Mapping[ServerAddress, Hashable]


def reload(wanted: Snapshot, scopes: Scopes, pool: ConnectionPool) -> Reloaded:
    """Replace the configuration. Nothing in here awaits, so no host sees half of it."""
    before = scopes.whole.snapshot
    after, later = applied_now(before, wanted)
    specs = servers_of(after)
    ways = pool.ways(specs)
    was = pool.ways(servers_of(before)) | pool.begun_ways()
    plan = plan_reload(before, after, was, ways)
    scopes.replace(after)
    retired = pool.renew(specs, ways, after.limits)
    lists = frozenset(_other_lists(before, after, plan, {**pool.at_hand(), **retired}))
    if after.lock != before.lock or _levels(after) != _levels(before):
        relocked = pool.relock(after.lock)
        lists |= {(connection.spec.address.toolbox, "tools") for connection in relocked}
    return Reloaded(before, after, plan, later, lists)


# Decisions


class ReloadPlan(msgspec.Struct, frozen=True):
    """What happens to each server. A server that moves to another toolbox is another server."""

    kept: Addresses = ()  # they keep their connection
    changed: Addresses = ()  # they need a new connection
    added: Addresses = ()
    removed: Addresses = ()
    refiltered: Addresses = ()  # kept or changed, with another tool filter


class Reloaded(msgspec.Struct, frozen=True):
    """The outcome of a reload."""

    before: Snapshot
    after: Snapshot
    plan: ReloadPlan
    later: tuple[str, ...] = ()  # keys of the file that take effect at the next start
    lists: frozenset[tuple[str, str]] = frozenset()  # toolbox, and which of its lists has changed

    @property
    def anything(self) -> bool:
        return self.before != self.after or bool(self.plan.changed)

    def __str__(self) -> str:
        plan = self.plan
        named = {"added": plan.added, "removed": plan.removed, "reconnected": plan.changed}
        changes = [f"{word} {', '.join(map(str, where))}" for word, where in named.items() if where]
        return "; ".join(changes or ["no server was added, removed or changed"])


def plan_reload(
    before: Snapshot, after: Snapshot, was: ResolvedServers, now: ResolvedServers
) -> ReloadPlan:
    """Compare two configurations, and how their servers were and are reached."""
    old, new = servers_of(before), servers_of(after)
    both = [address for address in new if address in old]
    return ReloadPlan(
        kept=tuple(a for a in both if was[a] == now[a]),
        changed=tuple(a for a in both if was[a] != now[a]),
        added=tuple(a for a in new if a not in old),
        removed=tuple(a for a in old if a not in new),
        refiltered=tuple(a for a in both if old[a].tools != new[a].tools),
    )


def applied_now(running: Snapshot, wanted: Snapshot) -> tuple[Snapshot, tuple[str, ...]]:
    """Return the part of the configuration that applies now, and the keys that need a restart.

    Hosts received mode and names when they connected; the HTTP port and the audit's file are already open. Limits
    of principals apply at once.
    """
    limits = msgspec.structs.replace(wanted.limits, message_bytes=running.limits.message_bytes)
    possible = msgspec.structs.replace(
        wanted,
        tool_mode=running.tool_mode,
        naming=running.naming,
        http=running.http.with_limits_of(wanted.http),
        audit=running.audit,
        cluster=running.cluster,
        limits=limits,
    )
    differs = {
        "toolMode": wanted.tool_mode != running.tool_mode,
        "naming": wanted.naming != running.naming,
        "http": wanted.http != possible.http,
        "audit": wanted.audit != running.audit,
        "cluster": wanted.cluster != running.cluster,
        "limits.messageBytes": wanted.limits != limits,
    }
    return possible, tuple(key for key, other in differs.items() if other)


def servers_of(snapshot: Snapshot) -> dict[ServerAddress, ServerSpec]:
    return {s.address: s for box in snapshot.toolboxes.values() for s in box.servers.values()}


def _levels(snapshot: Snapshot) -> dict[ServerAddress, str]:
    return {address: spec.lock for address, spec in servers_of(snapshot).items()}


# Lists that hosts see


def _other_lists(
    before: Snapshot,
    after: Snapshot,
    plan: ReloadPlan,
    known: Mapping[ServerAddress, Connection],
) -> Iterator[tuple[str, str]]:
    """Yield the lists that have changed. Those of new and changed servers follow once they connect."""
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
    """Yield the lists that a server was in while it was connected."""
    if any(map(spec.tools.shows, connection.catalogue.tools)):
        yield "tools"
    if connection.primitives.declared.prompts:
        yield "prompts"
    if connection.primitives.declared.resources:
        yield "resources"


def restart(gateway: Gateway, address: ServerAddress) -> None:
    """Start this server anew, however often it has failed; calls in flight finish on the old connection.

    Raises NotFound if there is no such server.
    """
    spec, pool, snapshot = gateway.view.spec(address), gateway.pool, gateway.snapshot
    ways = pool.begun_ways()
    ways.pop(address, None)  # as if its entry had changed
    for connection in pool.renew(servers_of(snapshot), ways, snapshot.limits).values():
        connection.ending = "it is restarted"
    pool.end_backoff(spec, None)
    pool.begun(spec)
