"""Sign-ins at servers behind URLs, for all replicas.

One replica signs in or refreshes, and the others take what it got. A credential lies in the engine, encrypted. Whoever
wants to refresh it holds a lease there; so a refresh token is used once. While the engine is away nothing is refreshed:
tokens are good until they expire. Nothing of a credential is in a message of ours.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from mcp_workbench.cluster.engine import Engine, EngineAway, Script
from mcp_workbench.cluster.keys import NONCE, TAG, ValueSeal
from mcp_workbench.cluster.resp import EngineError
from mcp_workbench.protocol.oauth import SignInFailed
from mcp_workbench.upstream.oauth.store import LARGEST, PATIENCE, Credential

log = logging.getLogger(__name__)

LIFETIME = 90 * 86_400  # seconds without a sign-in or a refresh
LEASE = 60  # seconds; longer than any refresh takes
POLL = 0.1  # seconds between two attempts to get the lease
SETTLE = 2.0  # seconds after the engine came back: others first send what they got meanwhile
MOST_UNSENT = 1024  # credentials that wait for the engine
AWAY = "the engine of the cluster is away, so no replica may refresh it"

# Ends a lease, if it is still this one.
_RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1
"""
_TAKE = Script("return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'EX', ARGV[2]) and 1 or 0")


class SharedCredential(msgspec.Struct, frozen=True, array_like=True):
    """A credential, and how often it was replaced."""

    version: int
    credential: Credential

    def __repr__(self) -> str:
        return f"SharedCredential({self.version})"


class SharedCredentials:
    """Reads and writes credentials in the engine."""

    def __init__(self, engine: Engine, vault: ValueSeal) -> None:
        self._engine = engine
        self._vault = vault
        self._known: dict[str, SharedCredential] = {}  # as read or written last
        self._unsent: dict[str, SharedCredential] = {}
        self._engine.on_change.append(self._changed)

    def _key(self, kind: str, name: str) -> bytes:
        return self._engine.key(kind, hashlib.sha256(name.encode()).hexdigest()[:40])

    # Writing

    def publish(self, name: str, credential: Credential) -> None:
        before = self._known.get(name)
        version = 1 if before is None else before.version + 1
        self._send(name, SharedCredential(version, credential))

    def offer(self, name: str, credential: Credential) -> None:
        if name not in self._known and credential.usable:
            self._send(name, SharedCredential(0, credential), "NX")

    def _send(self, name: str, shared: SharedCredential, *condition: str) -> None:
        self._known[name] = shared
        key = self._key("credential", name)
        sealed = self._vault.close(key, msgspec.msgpack.encode(shared))
        try:
            future = self._engine.send("SET", key, sealed, "EX", LIFETIME, *condition)
        except EngineAway:
            self._not_sent(name, shared, condition)
            return
        future.add_done_callback(lambda future: self._sent(future, name, shared, condition))

    def _sent(
        self,
        future: asyncio.Future[Any],
        name: str,
        shared: SharedCredential,
        condition: tuple[str, ...],
    ) -> None:
        if future.cancelled():
            return
        error = future.exception()
        if isinstance(error, EngineAway):
            self._not_sent(name, shared, condition)
        elif error is not None:
            log.warning("a sign-in can't be shared with other replicas: %s", str(error)[:200])

    def _not_sent(self, name: str, shared: SharedCredential, condition: tuple[str, ...]) -> None:
        """Send it when the engine is back, or offer it again."""
        if self._known.get(name) is not shared:
            return
        if condition:
            del self._known[name]
        elif len(self._unsent) < MOST_UNSENT:
            self._unsent[name] = shared

    def _changed(self, now_ready: bool) -> None:  # noqa: FBT001 - a callback's one argument
        if now_ready:
            unsent, self._unsent = self._unsent, {}
            for name, shared in unsent.items():
                self._send(name, shared)

    # Reading

    async def newer(self, name: str, local: Credential | None) -> Credential | None:
        found = await self._read(name)
        if found is None:
            if local is not None and local.usable:
                self.publish(name, local)  # the engine has lost it
            return None
        known = self._known.get(name)
        is_signed_in_here = (
            local is not None
            and local.usable
            and local.signed_in_at > found.credential.signed_in_at
        )
        if is_signed_in_here and local is not None:  # by a command, at this machine
            self._known[name] = found
            self.publish(name, local)
            return None
        if known is not None and known.version > found.version and local == known.credential:
            self._send(name, known)  # what was written here has not arrived
            return None
        self._known[name] = found
        return found.credential

    async def _read(self, name: str) -> SharedCredential | None:
        key = self._key("credential", name)
        try:
            sealed = await self._engine.read(key, LARGEST + NONCE + TAG)
        except (EngineAway, EngineError):
            return self._known.get(name)
        data = self._vault.open(key, sealed)
        if data is None:
            return None
        try:
            found = msgspec.msgpack.decode(data, type=SharedCredential)
        except (msgspec.DecodeError, ValueError):
            return None
        return found if found.credential.is_sound else None

    # The lease

    @asynccontextmanager
    async def lease(self, name: str) -> AsyncGenerator[None]:
        key, holder = self._key("refresh", name), os.urandom(16)
        await self._take(key, holder)
        try:
            yield
        finally:
            with suppress(EngineAway):
                self._engine.send("EVAL", _RELEASE, 1, key, holder).add_done_callback(_forgive)

    async def _take(self, key: bytes, holder: bytes) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + PATIENCE
        try:
            while loop.time() < end:
                since = self._engine.since
                if since is not None and loop.time() - since < SETTLE:
                    await asyncio.sleep(POLL)
                elif await self._engine.run_script(_TAKE, (key,), holder, LEASE) == 1:
                    return
                else:
                    await asyncio.sleep(POLL)
        except EngineAway:
            raise SignInFailed("WB-AUTH-011", AWAY) from None
        except EngineError as error:
            reason = f"the engine of the cluster refuses its lease: {str(error)[:200]}"
            raise SignInFailed("WB-AUTH-011", reason) from None
        why = f"another replica has used the sign-in for more than {PATIENCE:g} s: try again later"
        raise SignInFailed("WB-AUTH-011", why)


def _forgive(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()
