"""Our connections to the other replicas: made when first needed, made again when they broke."""

from __future__ import annotations

import asyncio
import logging
import os

from mcp_workbench.cluster.link import HANDSHAKE_TIME, ConnectingLink, LinkBroken
from mcp_workbench.cluster.records import ReplicaAddress
from mcp_workbench.config.cluster_settings import join_address
from mcp_workbench.transport.tasks import TaskScope

log = logging.getLogger(__name__)

AGAIN = 0.2  # seconds until a replica that did not answer is tried again
MOST = 512  # connections


class Links:
    """One connection to each replica."""

    def __init__(self, key: bytes, most: int, own_id: str, scope: TaskScope) -> None:
        self._scope = scope
        self._key = key
        self._most = most
        self._own_id = own_id
        self._links: dict[str, ConnectingLink] = {}
        self._dialled: dict[str, asyncio.Task[None]] = {}
        self._failed: dict[str, float] = {}

    def ready(self, id: str) -> ConnectingLink | None:
        """The connection to this replica, if there is one now."""
        link = self._links.get(id)
        return link if link is not None and link.is_ready else None

    def connected(self) -> list[str]:
        return [id for id, link in self._links.items() if link.is_ready]

    def drop(self, id: str) -> None:
        """Everybody who waits for this replica is told that it has gone."""
        link = self._links.pop(id, None)
        if link is not None:
            link.abort()

    async def to(self, member: ReplicaAddress) -> ConnectingLink:
        """The connection to this replica. Raises LinkBroken if it can't be reached."""
        link = self.ready(member.id)
        if link is not None:
            return link
        loop = asyncio.get_running_loop()
        if loop.time() - self._failed.get(member.id, -AGAIN) < AGAIN:
            raise LinkBroken("it did not answer just now")
        dialled = self._dialled.get(member.id)
        if dialled is None:
            dialled = self._scope.start(self._dial(member), "connection to a replica")
            self._dialled[member.id] = dialled
            dialled.add_done_callback(lambda _: self._dialled.pop(member.id, None))
        await asyncio.wait((dialled,))
        link = self.ready(member.id)
        if link is None:
            raise LinkBroken(f"replica {member.id} can't be reached")
        return link

    def new(self, member: ReplicaAddress) -> ConnectingLink:
        """One more connection, not made yet."""
        return ConnectingLink(self._key, self._most, self._own_id, member.id)

    async def _dial(self, member: ReplicaAddress) -> None:
        loop = asyncio.get_running_loop()
        link = self.new(member)
        try:
            async with asyncio.timeout(HANDSHAKE_TIME):
                await loop.create_connection(lambda: link, member.host, member.port)
                await link.ready
        except (OSError, LinkBroken) as error:
            link.abort()
            if member.id not in self._failed:
                where = join_address(member.host, member.port)
                log.warning("replica %s at %s can't be reached: %s", member.id, where, _why(error))
            if len(self._failed) >= MOST:
                self._failed.clear()
            self._failed[member.id] = loop.time()
            return
        self._failed.pop(member.id, None)
        self._links[member.id] = link
        if len(self._links) > MOST:
            self._links = {id: link for id, link in self._links.items() if link.is_ready}

    def close(self) -> None:
        for link in self._links.values():
            link.abort()


def _why(error: OSError | LinkBroken) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {HANDSHAKE_TIME:g} seconds"
    if isinstance(error, OSError) and error.errno:  # asyncio words the same number differently
        return os.strerror(error.errno).lower()
    return str(error)
