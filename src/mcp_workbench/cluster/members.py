"""The replicas of a cluster, as one of them sees it: its own lease, and who else lives."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable

import msgspec

from mcp_workbench.cluster.engine import Engine, EngineAway, Script
from mcp_workbench.cluster.keys import ValueSeal
from mcp_workbench.cluster.link import LinkBroken
from mcp_workbench.cluster.ownership import BEAT, LEASE, PROMISE, SETTLE, promised_until
from mcp_workbench.cluster.records import LONGEST_MEMBER, ReplicaAddress, read_record, write_record
from mcp_workbench.cluster.resp import EngineError
from mcp_workbench.transport.tasks import TaskScope

log = logging.getLogger(__name__)

MOST_MEMBERS = 256

# Says that this replica lives; returns who else does, and forgets who does not.
_BEAT = Script("""
redis.call('SET', KEYS[2], '1', 'PX', ARGV[3])
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
local all, live = redis.call('HGETALL', KEYS[1]), {}
for i = 1, #all, 2 do
  if redis.call('EXISTS', ARGV[4] .. all[i]) == 1 then
    live[#live + 1] = all[i]
    live[#live + 1] = all[i + 1]
  else
    redis.call('HDEL', KEYS[1], all[i])
  end
end
return live
""")

AskPromise = Callable[[ReplicaAddress], Awaitable[bool]]


def new_replica_id() -> str:
    """An id for this process: one that starts again is another replica."""
    return os.urandom(6).hex()


class Members:
    """Keeps the lease, until cancelled. `holds` is asked before every answer."""

    def __init__(
        self,
        engine: Engine,
        vault: ValueSeal,
        me: ReplicaAddress,
        ask_promise: AskPromise,
        scope: TaskScope,
    ) -> None:
        self._scope = scope
        self.engine = engine
        self.me = me
        self.others: dict[str, ReplicaAddress] = {}  # that live, without this one
        self.changed = asyncio.Event()  # set and replaced at each beat
        # Called when the engine is back or the lease had ended: others may have adopted what was ours.
        self.verify: Callable[[], Awaitable[None]] | None = None
        self._verified: float | None = None  # for the connection to the engine that was made then
        self._vault = vault
        self._ask_promise = ask_promise
        self._loop = asyncio.get_running_loop()
        self._lease_until = 0.0
        self._fast_until = 0.0  # so long `holds` is true without a look at anything else
        self._promises: dict[str, float] = {}
        self._promised: dict[str, float] = {}  # to others: not to adopt what is theirs

    # What others ask

    def holds(self) -> bool:
        """Whether this replica may answer for its sessions."""
        return time.monotonic() < self._fast_until  # uvloop's time stands still in between

    @property
    def holds_until(self) -> float:
        """By the monotonic clock: `holds` is false from then on, unless the lease is renewed."""
        return self._fast_until

    def promise(self, other: str) -> bool:
        """Promise another replica not to adopt its sessions for a moment, if the engine is away here too."""
        if self.engine.is_ready:
            return False
        self._promised[other] = self._loop.time() + PROMISE
        return True

    def promised_until(self, other: str) -> float:
        return self._promised.get(other, 0.0)

    @property
    def all(self) -> dict[str, ReplicaAddress]:
        return {**self.others, self.me.id: self.me}

    async def next_beat(self, seconds: float) -> None:
        """Wait until more may be known."""
        event = self.changed
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return

    def distrust(self) -> None:
        """Compare what is ours with the engine at the next beat."""
        self._verified = None

    def promised_any_until(self) -> float:
        """Until when there may be sessions that the engine does not know."""
        return max(self._promised.values(), default=0.0)

    # Beats

    async def run(self) -> None:
        while True:
            await self.beat()
            await asyncio.sleep(BEAT if self.engine.is_ready else BEAT / 3)

    async def beat(self) -> None:
        """Renew the lease, or ask the others to hold still."""
        sent = self._loop.time()
        try:
            live = await self.engine.run_script(
                _BEAT,
                (self.engine.key("replicas"), self._lease_key(self.me.id)),
                self.me.id,
                self._vault.close(self._name(self.me.id), write_record(self.me)),
                int(LEASE * 1000),
                self.engine.key("lease", ""),
            )
        except (EngineAway, EngineError) as error:
            if isinstance(error, EngineError):
                log.warning("the lease of this replica can't be renewed: %s", error)
            await self._gather_promises(sent)
        else:
            others = self._read(live)
            since = self.engine.since
            is_new = since is None or sent - since < SETTLE
            # After the engine came back, others first have to say again that they live.
            self.others = {**self.others, **others} if is_new else others
            if await self._is_verified(sent):
                self._lease_until = sent + LEASE
                self._promises = {}
        self._renew()
        event, self.changed = self.changed, asyncio.Event()
        event.set()

    async def _is_verified(self, sent: float) -> bool:
        """Compare what we have with the engine where that is due. False: the engine is away again."""
        lapsed, since = sent >= self._fast_until, self.engine.since
        if (lapsed or since != self._verified) and self.verify is not None:
            try:
                await self.verify()
            except (EngineAway, EngineError):
                return False
        self._verified = since
        return True

    def _renew(self) -> None:
        promised = promised_until(self._promises, frozenset(self.others))
        self._fast_until = max(self._lease_until, promised)

    async def _gather_promises(self, sent: float) -> None:
        """The engine is away here: go on only while nobody else could adopt anything."""
        if self._lease_until <= sent and self._fast_until <= sent:
            return  # it has lapsed: only the engine knows what is still ours
        wanted = self.others or {}
        if not wanted:
            self._promises = {"": sent + PROMISE}  # there is nobody else
            return
        promises: dict[str, float] = {}

        async def ask(member: ReplicaAddress) -> None:
            try:
                if await self._ask_promise(member):
                    promises[member.id] = sent + PROMISE
            except (LinkBroken, OSError):
                return

        await asyncio.wait([self._scope.start(ask(m), "promise") for m in wanted.values()])
        self._promises = {**self._promises, **promises}

    async def leave(self) -> None:
        """This replica answers for nothing any more."""
        try:
            await self.engine.ask_all(
                [
                    ("HDEL", self.engine.key("replicas"), self.me.id),
                    ("DEL", self._lease_key(self.me.id)),
                ]
            )
        except EngineAway:
            return  # its lease ends by itself

    async def drain(self) -> None:
        """Tell the others that nothing new should come here."""
        self.me = msgspec.structs.replace(self.me, is_draining=True)
        await self.beat()

    def _lease_key(self, id: str) -> bytes:
        return self.engine.key("lease", id)

    def _name(self, id: str) -> bytes:
        return b"member " + id.encode("latin-1", "replace")

    def _read(self, live: object) -> dict[str, ReplicaAddress]:
        """Returns the others; what no replica has written is skipped."""
        if not isinstance(live, list):
            return {}
        parts: list[object] = list(live)  # pyright: ignore[reportUnknownArgumentType]
        members: dict[str, ReplicaAddress] = {}
        for id, sealed in zip(parts[::2], parts[1::2], strict=False):
            if not isinstance(id, bytes) or len(members) >= MOST_MEMBERS:
                continue
            name = id.decode("latin-1")
            member = read_record(
                ReplicaAddress, self._vault.open(self._name(name), sealed), LONGEST_MEMBER
            )
            if member is not None and member.id == name and name != self.me.id:
                members[name] = member
        return members
