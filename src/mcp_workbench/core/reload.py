"""What another configuration changes, decided before anything is done."""

from collections.abc import Hashable, Mapping

import msgspec

from mcp_workbench.core.names import ServerAddress
from mcp_workbench.core.spec import ServerSpec, Snapshot

Addresses = tuple[ServerAddress, ...]
Ways = Mapping[ServerAddress, Hashable]  # how each server is reached, with the values of variables


class ReloadPlan(msgspec.Struct, frozen=True):
    """What becomes of each server. An address is toolbox and name: one that moves is another."""

    kept: Addresses = ()  # with their connection
    changed: Addresses = ()  # reached in another way: they need a new connection
    added: Addresses = ()
    removed: Addresses = ()
    refiltered: Addresses = ()  # kept or changed, with another filter for their tools


class Reloaded(msgspec.Struct, frozen=True):
    """What a reload has changed."""

    before: Snapshot
    after: Snapshot
    plan: ReloadPlan
    later: tuple[str, ...] = ()  # keys of the file that take effect at the next start
    lists: frozenset[tuple[str, str]] = frozenset()  # toolbox, and which of its lists is another

    @property
    def anything(self) -> bool:
        return self.before != self.after or bool(self.plan.changed)

    def __str__(self) -> str:
        plan = self.plan
        named = {"added": plan.added, "removed": plan.removed, "reconnected": plan.changed}
        told = [f"{word} {', '.join(map(str, where))}" for word, where in named.items() if where]
        return "; ".join(told or ["no server was added, removed or changed"])


def plan_reload(before: Snapshot, after: Snapshot, was: Ways, now: Ways) -> ReloadPlan:
    """Compare two configurations, and the ways in which their servers were and are reached."""
    old, new = servers_of(before), servers_of(after)
    both = [address for address in new if address in old]
    return ReloadPlan(
        kept=tuple(a for a in both if was[a] == now[a]),
        changed=tuple(a for a in both if was[a] != now[a]),
        added=tuple(a for a in new if a not in old),
        removed=tuple(a for a in old if a not in new),
        refiltered=tuple(a for a in both if old[a].tools != new[a].tools),
    )


def settled(running: Snapshot, wanted: Snapshot) -> tuple[Snapshot, tuple[str, ...]]:
    """What of the wanted configuration can hold at once, and the keys that wait for the next start.

    Hosts were told the mode and the names at their start, and the port and its readers are built.
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
