"""The replicas of a cluster, as one of them sees it: its own lease, and who else lives."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable

import msgspec

from mcp_workbench.cluster.census import UNKNOWN_ANSWER, Census, member_name, read_census
from mcp_workbench.cluster.engine import Engine, EngineAway, Script
from mcp_workbench.cluster.keys import ValueSeal
from mcp_workbench.cluster.link import LinkBroken
from mcp_workbench.cluster.ownership import BEAT, LEASE, PROMISE, SETTLE, promised_until
from mcp_workbench.cluster.records import ReplicaAddress, write_record
from mcp_workbench.cluster.resp import EngineError
from mcp_workbench.transport.tasks import TaskScope

log = logging.getLogger(__name__)

EXPIRY = 86_400  # seconds for which the engine remembers a cluster in which nobody lives

# Says that this replica lives; returns the engine's time and who lives, and forgets who does not.
_BEAT = Script("""
redis.call('SET', KEYS[2], '1', 'PX', ARGV[3])
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('EXPIRE', KEYS[1], ARGV[5])
redis.call('EXPIRE', KEYS[3], ARGV[5])
local all, live = redis.call('HGETALL', KEYS[1]), redis.call('TIME')
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
        self.failure = ""  # why the lease could not be renewed at the last beat
        self._oddities: set[str] = set()  # that were logged, and still are so

    # What others ask

    def holds(self) -> bool:
        """Whether this replica may answer for its sessions."""
        return time.monotonic() < self._fast_until  # uvloop's time stands still in between

    @property
    def holds_until(self) -> float:
        """By the monotonic clock: `holds` is false from then on, unless the lease is renewed."""
        return self._fast_until

    def promise(self, other: str) -> bool:
        """Promise another replica not to adopt its sessions for a moment, if the engine is of no use here either."""
        if self.engine.is_ready and not self.failure:
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
            census = await self._renew_in_engine()
        except (EngineAway, EngineError) as error:
            self._fails(error)
            await self._gather_promises(sent)
        else:
            self._remark(census)
            others = {id: m for id, m in census.members.items() if id != self.me.id}
            since = self.engine.since
            is_new = since is None or sent - since < SETTLE
            # After the engine came back, others first have to say again that they live.
            self.others = {**self.others, **others} if is_new else others
            if await self._is_verified(sent):
                self._lease_until = sent + LEASE
                self._promises = {}
                self.failure = ""
        self._renew()
        event, self.changed = self.changed, asyncio.Event()
        event.set()

    async def _renew_in_engine(self) -> Census:
        """Renew the lease. Raises EngineAway and EngineError."""
        engine, id = self.engine, self.me.id
        keys = (engine.key("replicas"), self._lease_key(id), engine.key("incarnation"))
        sealed = self._vault.close(member_name(id), write_record(self.me))
        args = (id, sealed, int(LEASE * 1000), engine.key("lease", ""), EXPIRY)
        census = read_census(await engine.run_script(_BEAT, keys, *args), self._vault)
        if id not in census.members:
            raise EngineError(UNKNOWN_ANSWER)
        return census

    def _fails(self, error: EngineAway | EngineError) -> None:
        reason = str(error)[:200]
        if isinstance(error, EngineError) and reason != self.failure:
            log.warning("the lease of this replica can't be renewed: %s", reason)
        self.failure = reason

    def _remark(self, census: Census) -> None:
        """Log what is odd, once for as long as it is so."""
        oddities: dict[str, str] = {}
        if census.strangers:
            oddities["key"] = "replicas with another key use the same name in this engine"
        if census.is_skewed:
            oddities["clock"] = census.clock
        for kind in oddities.keys() - self._oddities:
            log.warning("%s", oddities[kind])
        self._oddities = set(oddities)

    async def _is_verified(self, sent: float) -> bool:
        """Compare what we have with the engine where that is due. False: the engine is away again."""
        lapsed, since = sent >= self._fast_until, self.engine.since
        is_due = lapsed or bool(self.failure) or since != self._verified
        if is_due and self.verify is not None:
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
