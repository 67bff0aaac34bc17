"""What a new configuration changes: decided here, performed by the gateway."""

from collections.abc import Hashable, Mapping

import msgspec

from mcp_workbench.core.names import ServerAddress
from mcp_workbench.core.spec import ServerSpec, Snapshot

Addresses = tuple[ServerAddress, ...]
# How each server is reached, with the values of variables: `config.expand.resolve_server`.
ResolvedServers = Mapping[ServerAddress, Hashable]


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
    """Compares two configurations, and how their servers were and are reached."""
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
    """Returns the part of the configuration that applies now, and the keys that need a restart.

    Hosts learned mode and names when they connected; the port and its readers exist already.
    """
    limits = msgspec.structs.replace(wanted.limits, message_bytes=running.limits.message_bytes)
    possible = msgspec.structs.replace(
        wanted,
        tool_mode=running.tool_mode,
        naming=running.naming,
        http=running.http,
        limits=limits,
    )
    differs = {
        "toolMode": wanted.tool_mode != running.tool_mode,
        "naming": wanted.naming != running.naming,
        "http": wanted.http != running.http,
        "limits.messageBytes": wanted.limits != limits,
    }
    return possible, tuple(key for key, other in differs.items() if other)


def servers_of(snapshot: Snapshot) -> dict[ServerAddress, ServerSpec]:
    return {s.address: s for box in snapshot.toolboxes.values() for s in box.servers.values()}
