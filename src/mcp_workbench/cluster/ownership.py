"""Who answers for a session: decisions about leases, ownership and adoption. Pure.

A replica answers for its sessions while its lease in the engine runs. If the engine is away, nobody can adopt
anything, and it goes on as long as every other replica promises that: each promise is a short lease, too.
"""

from collections.abc import Container, Mapping

import msgspec

from mcp_workbench.cluster.records import ReplicaAddress, SessionRecord

LEASE = 3.0  # seconds for which a replica owns what it owns, after each sign of life in the engine
BEAT = 0.75  # seconds between two of them
NEW = 2 * BEAT  # seconds until a replica that has started is known to all others
PROMISE = (
    8.0  # seconds for which another replica promises not to adopt; only while the engine is away
)
SETTLE = LEASE + 1.0  # seconds after the engine came (back) until a missing lease means anything


class Local(msgspec.Struct, frozen=True):
    """This replica answers."""


class ForwardTo(msgspec.Struct, frozen=True):
    """Another replica answers."""

    replica: str


class Adopt(msgspec.Struct, frozen=True):
    """Its owner has gone, or has released it: this replica takes it, unless another one is faster."""


class WaitForLease(msgspec.Struct, frozen=True):
    """It is not clear yet whether its owner lives."""


class Absent(msgspec.Struct, frozen=True):
    """There is no such session."""


Step = Local | ForwardTo | Adopt | WaitForLease | Absent


def next_step(  # noqa: PLR0913 - all that it depends on
    record: SessionRecord | None,
    members: Mapping[str, ReplicaAddress],
    own_id: str,
    *,
    may_adopt: bool,
    is_draining: bool = False,
    has_ended: bool = False,
    unreachable: frozenset[str] = frozenset(),
) -> Step:
    """Returns what to do with a request for a session that is not in this process's memory.

    `has_ended`: it has ended here, and its record is about to go. `unreachable` are replicas that were tried for
    this request and did not answer.
    """
    if record is None:  # an engine that has just come back may have to be told again
        return Absent() if may_adopt else WaitForLease()
    owner = record.owner
    if has_ended:
        return Absent()
    if owner == own_id:  # adopted, but the engine's reply was lost on its way
        return WaitForLease() if is_draining else Adopt()
    if owner and owner in members:
        return WaitForLease() if owner in unreachable else ForwardTo(owner)
    if is_draining:
        other = successor(members, own_id, unreachable)
        return ForwardTo(other) if other else WaitForLease()
    return Adopt() if not owner or may_adopt else WaitForLease()


def successor(
    members: Mapping[str, ReplicaAddress], own_id: str, unreachable: frozenset[str] = frozenset()
) -> str:
    """Returns a replica that can take over from this one; empty if there is none."""
    others = sorted(
        m.id
        for m in members.values()
        if m.id != own_id and not m.is_draining and m.id not in unreachable
    )
    # Different replicas begin at different places, so that not all of them choose the same.
    later = [id for id in others if id > own_id]
    return (later or others or [""])[0]


def may_adopt(now: float, engine_since: float | None, promised_until: float) -> bool:
    """Whether a missing lease means that its owner has gone.

    After the engine came back, with or without its data, everybody first has the time to say that they live.
    """
    return engine_since is not None and now - engine_since >= SETTLE and promised_until <= now


def may_run(replica: str, others: Container[str], waited: float) -> bool:
    """Whether a replica may still be there, after so many seconds of waiting for it.

    At first it may be so new that nobody knows it yet.
    """
    return replica in others or waited < NEW


def promised_until(promises: Mapping[str, float], others: frozenset[str]) -> float:
    """Returns until when every other replica has promised to adopt nothing; 0 if one has not.

    The promise of nobody, "", counts where there is no other replica.
    """
    if not others:
        return promises.get("", 0.0)
    return min(promises.get(other, 0.0) for other in others)


def adopted(record: SessionRecord, me: ReplicaAddress) -> SessionRecord:
    """Returns the record as its new owner writes it."""
    return msgspec.structs.replace(
        record,
        owner=me.id,
        epoch=record.epoch + 1,
        host=me.host,
        port=me.port,
        previous=record.owner or record.previous,
    )


def released(record: SessionRecord, own_id: str) -> SessionRecord:
    """Returns the record as its owner leaves it behind."""
    return msgspec.structs.replace(record, owner="", host="", port=0, previous=own_id)
