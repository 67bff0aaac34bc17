"""A replica that starts: whether it fits the cluster. A wrong setting is an error at once."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from mcp_workbench.cluster.census import Census, look
from mcp_workbench.cluster.link import HANDSHAKE_TIME, LinkBroken
from mcp_workbench.cluster.ownership import BEAT, LEASE
from mcp_workbench.cluster.resp import EngineError
from mcp_workbench.config.cluster_settings import join_address
from mcp_workbench.core.errors import WorkbenchError

if TYPE_CHECKING:
    from mcp_workbench.cluster.engine import Engine
    from mcp_workbench.cluster.keys import ValueSeal
    from mcp_workbench.cluster.records import ReplicaAddress
    from mcp_workbench.cluster.replica import Replica

log = logging.getLogger(__name__)

ATTEMPTS = 3  # of other replicas to connect to this one
OLD_LEASES = LEASE + BEAT  # seconds in which leases of replicas that have ended may be there
OTHER_KEY = "other replicas use this engine under the same name, with another key"
OTHER_KEY_FIX = "give all replicas the same cluster.key; another cluster on this engine needs another cluster.name"
ADDRESS_FIX = "write the address by which the other replicas reach this one into cluster.advertise"


class JoinRefused(WorkbenchError):
    """With these settings it would be no replica of this cluster."""

    code = "cluster_refused"


async def join(replica: Replica) -> None:
    """Take the first lease, if this replica fits. Raises JoinRefused and EngineAway."""
    await _compare_keys(replica.engine, replica.vault)
    await _reach_oneself(replica)
    await replica.members.beat()
    if not replica.members.holds():
        hint = "see that the engine has memory left, and that its user may run scripts"
        raise JoinRefused(f"the engine grants no lease: {replica.members.failure}", hint=hint)
    await _ask_whether_reached(replica)


async def _compare_keys(engine: Engine, vault: ValueSeal) -> None:
    """Refuse to be a second cluster under the name of another one."""
    end = asyncio.get_running_loop().time() + OLD_LEASES
    while (await census_of(engine, vault)).strangers:
        if asyncio.get_running_loop().time() > end:
            raise JoinRefused(OTHER_KEY, hint=OTHER_KEY_FIX)
        await asyncio.sleep(BEAT)


async def census_of(engine: Engine, vault: ValueSeal, *, writes: bool = False) -> Census:
    """Returns who lives; with `writes`, also tries to write. Raises EngineAway and JoinRefused."""
    try:
        if writes:
            await engine.ask("SET", engine.key("check"), "1", "PX", 1000)
        return await look(engine, vault)
    except EngineError as error:
        hint = "see that it has memory left, that its user may run scripts, and that cluster.name is used by nothing else"
        raise JoinRefused(f"the engine can't be used: {str(error)[:200]}", hint=hint) from None


async def _reach_oneself(replica: Replica) -> None:
    """Connect to the address that the others get; some networks do not allow that, so silence is none of our business."""
    me = replica.me
    where = join_address(me.host, me.port)
    try:
        await reach(replica, me)
    except TimeoutError:
        log.info("this replica can't connect to itself at %s, which may be right", where)
    except LinkBroken:
        message = f"at {where}, its address for other replicas, something else answers"
        raise JoinRefused(message, hint=ADDRESS_FIX) from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        message = f"this replica can't be reached at {where}, its address for the others: {reason}"
        raise JoinRefused(message, hint=ADDRESS_FIX) from None


async def reach(replica: Replica, member: ReplicaAddress) -> None:
    """Connect to a replica, and leave at once. Raises OSError, LinkBroken and TimeoutError."""
    link, loop = replica.links.new(member), asyncio.get_running_loop()
    try:
        async with asyncio.timeout(HANDSHAKE_TIME):
            await loop.create_connection(lambda: link, member.host, member.port)
            await link.ready
    except LinkBroken:
        if link.is_late:
            raise TimeoutError from None
        raise
    finally:
        link.abort()


async def _ask_whether_reached(replica: Replica) -> None:
    """Refuse to start where no other replica can connect to this one."""
    others = replica.members.others.values()
    if not others:
        return
    for _ in range(ATTEMPTS):
        asked = [replica.scope.start(replica.is_reached_by(o), "is it reached") for o in others]
        await asyncio.wait(asked)
        answers = [one.result() for one in asked]
        if False not in answers or True in answers:
            return
        await asyncio.sleep(BEAT)
    await replica.members.leave()
    message = f"no other replica can connect to this one at {join_address(replica.me.host, replica.me.port)}"
    raise JoinRefused(message, hint=f"{ADDRESS_FIX}, and let them through to that port")
