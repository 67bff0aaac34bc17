"""Limits of principals across replicas: one script in the engine counts calls and calls in flight.

Calls of a minute are taken in parts of half a percent, so that most calls ask nobody; what replicas hold unused is
how far they can be wrong together. A call in flight needs a slot, and slots belong to a replica for LEASE seconds:
those of one that was killed are free again then. While the engine is away, each replica counts alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from mcp_workbench.cluster.engine import Engine, EngineAway, Script
from mcp_workbench.cluster.resp import EngineError
from mcp_workbench.core.principal_limits import WINDOW, Granted, Wanted

if TYPE_CHECKING:
    from mcp_workbench.core.spec import PrincipalLimits
    from mcp_workbench.gateway.call_limits import SlotKind
    from mcp_workbench.gateway.workbench import Gateway

log = logging.getLogger(__name__)

LEASE = 15  # seconds for which slots are kept for a replica that is silent
RENEW = 5.0  # seconds between two signs of life

# KEYS: calls by second; slots by replica. The engine's own clock counts: those of replicas may differ.
# A number that nobody of us has written is dropped.
_TAKE = Script("""
local time = redis.call('TIME')
local second, now = tonumber(time[1]), tonumber(time[1]) + tonumber(time[2]) / 1000000
local window, rate, permits = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local most, slots, held = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local me, lease = ARGV[7], tonumber(ARGV[8])
local granted, wait = 0, 0
if rate > 0 and permits > 0 then
  local fields, total, counts = redis.call('HGETALL', KEYS[1]), 0, {}
  for i = 1, #fields, 2 do
    local at, count = tonumber(fields[i]), tonumber(fields[i + 1])
    if not at or not count or count < 0 or at < second - window then
      redis.call('HDEL', KEYS[1], fields[i])
    else
      if at > second then
        redis.call('HDEL', KEYS[1], fields[i])
        redis.call('HINCRBY', KEYS[1], tostring(second), count)
        at = second
      end
      total = total + count
      counts[#counts + 1] = {at, count}
    end
  end
  granted = math.max(0, math.min(permits, rate - total))
  if granted > 0 then
    redis.call('HINCRBY', KEYS[1], tostring(second), granted)
    redis.call('EXPIRE', KEYS[1], window + 2)
  else
    table.sort(counts, function(a, b) return a[1] < b[1] end)
    wait = window
    for _, entry in ipairs(counts) do
      total = total - entry[2]
      if total < rate then
        wait = entry[1] + window + 1 - now
        break
      end
    end
  end
end
if most > 0 then
  local fields, others = redis.call('HGETALL', KEYS[2]), 0
  for i = 1, #fields, 2 do
    local count, till = string.match(fields[i + 1], '^(%d+) (%d+)$')
    if not count or tonumber(till) < second or tonumber(till) > second + 2 * lease then
      redis.call('HDEL', KEYS[2], fields[i])
    elseif fields[i] ~= me then
      others = others + tonumber(count)
    end
  end
  slots = math.max(held, math.min(slots, math.max(0, most - others)))
  if slots > 0 then
    redis.call('HSET', KEYS[2], me, string.format('%d %d', slots, second + lease))
    redis.call('EXPIRE', KEYS[2], 2 * lease)
  else
    redis.call('HDEL', KEYS[2], me)
  end
else
  slots = 0
end
return {granted, math.ceil(wait * 1000), slots}
""")


class SharedLimits:
    """The counts of one replica in the engine."""

    def __init__(
        self,
        engine: Engine,
        replica: str,
        start: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
    ) -> None:
        self._engine = engine
        self._replica = replica
        self._start = start
        self._odd = False  # the last answer could not be used

    @property
    def is_ready(self) -> bool:
        return self._engine.is_ready

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._start(work, "limits")

    async def take(
        self, principal: str, kind: SlotKind, limits: PrincipalLimits, wanted: Wanted
    ) -> Granted | None:
        """Count what is wanted, as far as it fits; None if the engine can't do so."""
        # A name may be any text, and is nobody's business there. Both keys are in one hash slot.
        digest = sha256(principal.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        tag = f"{{{digest}}}"
        keys = [self._engine.key("limits", table, tag) for table in ("rate", kind)]
        most = limits.concurrent_calls if kind == "calls" else limits.sessions
        counts = (
            WINDOW,
            limits.calls_per_minute or 0,
            wanted.permits,
            most or 0,
            wanted.slots,
            wanted.held,
        )
        try:
            reply = await self._engine.run_script(_TAKE, keys, *counts, self._replica, LEASE)
        except EngineAway:  # which is logged when it begins
            return None
        except EngineError as error:
            self._complain(str(error)[:200])
            return None
        granted = _read(reply, wanted)
        if granted is None:
            self._complain("the engine's answer is none of our script's")
        else:
            self._odd = False
        return granted

    def _complain(self, reason: str) -> None:
        if not self._odd:
            log.warning("limits of principals count on this replica alone: %s", reason)
        self._odd = True

    async def run(self, gateway: Gateway) -> None:
        """Share the limits of this gateway's principals, until cancelled."""

        def changed(now_ready: bool) -> None:  # noqa: FBT001 - a callback's one argument
            if gateway.quotas is None:  # nobody has any
                return
            if now_ready:
                log.info("limits of principals count for all replicas")
            else:
                log.warning("the engine is away: limits of principals count on this replica alone")

        gateway.share_limits(self)
        self._engine.on_change.append(changed)
        try:
            while True:
                await asyncio.sleep(RENEW)
                if self.is_ready and gateway.quotas is not None:
                    gateway.quotas.renew()
        finally:
            gateway.share_limits(None)
            self._engine.on_change.remove(changed)


def _read(reply: Any, wanted: Wanted) -> Granted | None:
    """Returns what was granted; None if this is not an answer to what was wanted."""
    match reply:
        case [int(permits), int(wait), int(slots)]:
            most = max(wanted.slots, wanted.held)
            in_range = 0 <= permits <= wanted.permits and 0 <= slots <= most
            is_time = 0 <= wait <= (WINDOW + 1) * 1000
            return Granted(permits, slots, wait / 1000) if in_range and is_time else None
        case _:
            return None
