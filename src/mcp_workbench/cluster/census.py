"""Who lives in a cluster, as the engine says it, and what is odd about that."""

from __future__ import annotations

import time
from typing import cast

import msgspec

from mcp_workbench.cluster.engine import Engine, Script
from mcp_workbench.cluster.keys import ValueSeal
from mcp_workbench.cluster.records import LONGEST_MEMBER, ReplicaAddress, read_record
from mcp_workbench.cluster.resp import EngineError
from mcp_workbench.server.suspended_calls import SKEW

MOST_MEMBERS = 256
LONGEST_TIME = 12  # digits of a number in the engine's time
UNKNOWN_ANSWER = "ERR the engine's answer is none of our script's"

# Returns the engine's time, and who lives: ids and records by turns.
_LOOK = Script("""
local all, live = redis.call('HGETALL', KEYS[1]), redis.call('TIME')
for i = 1, #all, 2 do
  if redis.call('EXISTS', ARGV[1] .. all[i]) == 1 then
    live[#live + 1] = all[i]
    live[#live + 1] = all[i + 1]
  end
end
return live
""")


class Census(msgspec.Struct, frozen=True):
    """The replicas that live, and when that was."""

    members: dict[str, ReplicaAddress]
    strangers: int  # that live under the same name, with another key
    ahead: float  # seconds by which our clock is ahead of the engine's

    @property
    def is_skewed(self) -> bool:
        """Whether two replicas with such clocks could differ by more than they may."""
        return abs(self.ahead) > SKEW / 2

    @property
    def clock(self) -> str:
        side = "ahead of" if self.ahead > 0 else "behind"
        return f"the clock of this machine is {abs(self.ahead):.0f} seconds {side} the engine's"


def member_name(id: str) -> bytes:
    """Returns under what the record of a replica is sealed."""
    return b"member " + id.encode("latin-1", "replace")


async def look(engine: Engine, vault: ValueSeal) -> Census:
    """Returns who lives, and changes nothing. Raises EngineAway and EngineError."""
    keys = (engine.key("replicas"),)
    return read_census(await engine.run_script(_LOOK, keys, engine.key("lease", "")), vault)


def read_census(reply: object, vault: ValueSeal) -> Census:
    """Returns what a script has answered. Raises EngineError for what none of ours answers."""
    parts = cast("list[object]", reply) if isinstance(reply, list) else []
    if len(parts) < 2 or len(parts) % 2:
        raise EngineError(UNKNOWN_ANSWER)
    seconds, micro = (_number(part) for part in parts[:2])
    members: dict[str, ReplicaAddress] = {}
    strangers = 0
    for id, sealed in zip(parts[2::2], parts[3::2], strict=True):
        member = _member(id, sealed, vault)
        if member is None:
            strangers += 1
        elif len(members) < MOST_MEMBERS:
            members[member.id] = member
    return Census(members, strangers, time.time() - seconds - micro / 1e6)


def _number(part: object) -> int:
    if not isinstance(part, bytes) or not part.isdigit() or len(part) > LONGEST_TIME:
        raise EngineError(UNKNOWN_ANSWER)
    return int(part)


def _member(id: object, sealed: object, vault: ValueSeal) -> ReplicaAddress | None:
    """Returns what a replica with our key has written; None for everything else."""
    if not isinstance(id, bytes):
        return None
    name = id.decode("latin-1")
    record = read_record(ReplicaAddress, vault.open(member_name(name), sealed), LONGEST_MEMBER)
    return record if record is not None and record.id == name else None
