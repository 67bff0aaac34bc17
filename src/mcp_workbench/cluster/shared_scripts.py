"""Scripts that wait for people, with replicas: any of them goes on, and one alone.

The key follows from that of the cluster. The mark that a script was used lies in the engine. An engine that comes
back without its data has lost such marks; so each one has a mark of its own, its incarnation, and a script is bound to that of
the engine that it was suspended with.
"""

from __future__ import annotations

import contextlib
import logging
import os
from typing import TYPE_CHECKING

from mcp_workbench.cluster.engine import EngineAway, Script
from mcp_workbench.cluster.members import EXPIRY
from mcp_workbench.cluster.resp import EngineError
from mcp_workbench.gateway.suspended_scripts import (
    MARKED,
    CannotMove,
    ScriptSeals,
    SuspendedScript,
)

if TYPE_CHECKING:
    from mcp_workbench.cluster.replica import Replica

log = logging.getLogger(__name__)

ATTEMPTS = 3  # at the engine, to leave a mark
WAIT = 2.0  # seconds for the engine before another attempt
LONGEST_INCARNATION = 64

# Leaves a mark in the engine that the script was suspended with. 1: it is ours; 0: another's; -1: another engine.
_CLAIM = Script("""
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return -1 end
local mark = redis.call('GET', KEYS[2])
if mark then return mark == ARGV[2] and 1 or 0 end
redis.call('SET', KEYS[2], ARGV[2], 'EX', ARGV[3])
return 1
""")


class SharedScriptSeals(ScriptSeals):
    """Seals and opens suspended scripts with the key of all replicas."""

    def __init__(self, replica: Replica) -> None:
        super().__init__({})
        self._replica = replica
        self._engine = replica.engine
        self._incarnation = b""  # of the engine; empty: not known yet
        self._engine.on_change.append(self._changed)
        self._changed(self._engine.is_ready)

    def _changed(self, now_ready: bool) -> None:  # noqa: FBT001 - a callback's one argument
        if now_ready:
            self._replica.scope.start(self._look(), "incarnation of the engine")

    async def _look(self) -> None:
        key = self._engine.key("incarnation")
        with contextlib.suppress(EngineAway, EngineError):
            await self._engine.ask("SET", key, os.urandom(16).hex(), "NX", "EX", EXPIRY)
            self._incarnation = await self._engine.read(key, LONGEST_INCARNATION) or b""

    def _key(self) -> bytes:
        return self._replica.script_key

    def _sealing_key(self) -> bytes:
        if not self._engine.is_ready or not self._incarnation:
            raise CannotMove("the engine of the cluster is away")
        return self._key()

    def seal(self, script: SuspendedScript, owner: str, digest: str) -> str:
        return super().seal(script, self._bound(owner), digest)

    def open(self, sealed: str, owner: str, digest: str) -> SuspendedScript | None:
        return super().open(sealed, self._bound(owner), digest)

    def _bound(self, owner: str) -> str:
        return f"{self._incarnation.decode('latin-1')} {owner}"

    async def claim_for_all(self, script: SuspendedScript) -> bool:
        """Mark the script as used; False if it was before, on any replica. Raises OSError if nobody can tell."""
        claimant = os.urandom(16)
        keys = (self._engine.key("incarnation"), self._engine.key("script", script.id.hex()))
        for _ in range(ATTEMPTS):  # with the same name: the reply may be lost, not the mark
            try:
                args = (self._incarnation, claimant, int(MARKED))
                reply = await self._engine.run_script(_CLAIM, keys, *args)
                if reply in (0, 1):
                    return reply == 1
                raise OSError("the engine of the cluster has lost its data")
            except EngineError as error:
                raise OSError(f"the engine refuses the mark: {str(error)[:200]}") from None
            except EngineAway:
                with contextlib.suppress(EngineAway):
                    await self._engine.ready(WAIT)
        raise OSError("the engine of the cluster is away")
