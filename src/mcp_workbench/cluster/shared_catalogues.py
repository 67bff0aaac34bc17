"""What servers offer, as a second level of the cache: a replica that starts knows all tools at once.

What may be on disk lies in the engine as well, in the same form and with the same checks. It is read once, before
the first host is served, for servers of which nothing is on this machine's disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from mcp_workbench.cluster.engine import EngineAway
from mcp_workbench.cluster.keys import NONCE, TAG
from mcp_workbench.cluster.resp import EngineError
from mcp_workbench.config.expand import secrets_of, server_identity
from mcp_workbench.upstream.cache import (
    CorruptFile,
    NotCached,
    here,
    is_enabled,
    keyed_name,
    read_stored,
    stored_form,
)

if TYPE_CHECKING:
    from mcp_workbench.cluster.replica import Replica
    from mcp_workbench.core.catalogue import KnownCatalogue
    from mcp_workbench.core.spec import ServerSpec
    from mcp_workbench.gateway.workbench import Gateway

log = logging.getLogger(__name__)

LIFETIME = 7 * 86_400  # seconds after a server was last connected anywhere
MOST_ONE = 2 << 20  # bytes of one server's; a quarter of it is more than we have seen
MOST_READ = 64 << 20  # bytes that a replica reads when it starts,
MOST_SERVERS = 512  # of so many servers,
READ_TIME = 5.0  # in so many seconds


class SharedCatalogues:
    """Reads and writes catalogues in the engine."""

    def __init__(self, replica: Replica, environ: Mapping[str, str]) -> None:
        self._replica = replica
        self._engine = replica.engine
        self._environ = environ

    def _name(self, spec: ServerSpec) -> bytes:
        identity = server_identity(spec, self._environ, here())
        return self._engine.key("catalogue", keyed_name(identity, self._replica.catalogue_key))

    # Writing

    def share(self, spec: ServerSpec, known: KnownCatalogue, tokens: Mapping[str, str]) -> None:
        """Write what a server offers, soon. If that is not possible, others start the server."""
        if self._engine.is_ready:
            work = self._write(spec, known, dict(tokens))
            self._replica.scope.start(work, f"catalogue of {spec.address}")

    async def _write(
        self, spec: ServerSpec, known: KnownCatalogue, tokens: Mapping[str, str]
    ) -> None:
        try:
            name, value = await asyncio.to_thread(self._sealed, spec, known, tokens)
            await self._engine.ask("SET", name, value, "EX", LIFETIME)
        except NotCached as reason:
            log.info("%s: what it offers is not shared: %s", spec.address, reason)
        except (EngineAway, EngineError) as error:
            log.debug("%s: what it offers is not shared: %s", spec.address, error)

    def _sealed(
        self, spec: ServerSpec, known: KnownCatalogue, tokens: Mapping[str, str]
    ) -> tuple[bytes, bytes]:
        secrets = {**secrets_of(spec, self._environ), **tokens}
        name = self._name(spec)
        return name, self._replica.vault.close(name, stored_form(known, secrets, MOST_ONE))

    # Reading

    async def read(self, spec: ServerSpec) -> tuple[KnownCatalogue | None, int]:
        """What is known of a server elsewhere, and how many bytes were read. Raises EngineAway."""
        name = self._name(spec)
        sealed = await self._engine.read(name, MOST_ONE + NONCE + TAG)
        data = self._replica.vault.open(name, sealed)
        if data is None:
            return None, 0
        try:
            return await asyncio.to_thread(read_stored, data), len(data)
        except CorruptFile as error:
            log.warning("%s: what other replicas know of it is not used: %s", spec.address, error)
            return None, len(data)


async def share_catalogues(gateway: Gateway, replica: Replica) -> None:
    """Learn what other replicas know, and let them know what this one learns."""
    environ = gateway.pool.context.environ
    if not is_enabled(environ):
        return
    catalogues = SharedCatalogues(replica, environ)
    try:
        async with asyncio.timeout(READ_TIME):
            await _learn(gateway, catalogues)
    except (TimeoutError, EngineAway) as error:
        log.info("what other replicas know of servers was not read: %s", error or "it took long")
    gateway.pool.cache.share = catalogues.share


async def _learn(gateway: Gateway, catalogues: SharedCatalogues) -> None:
    cache, room = gateway.pool.cache, MOST_READ
    specs = [s for box in gateway.snapshot.toolboxes.values() for s in box.servers.values()]
    for spec in specs[:MOST_SERVERS]:
        if spec.principal or room < MOST_ONE or cache.recall_received(spec) is not None:
            continue
        known, size = await catalogues.read(spec)
        room -= size
        if known is not None:
            cache.learn(spec, known)
