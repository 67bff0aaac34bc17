"""The records of sessions in the engine: written by owners, compared and swapped by who adopts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from mcp_workbench.cluster.engine import Engine, Script
from mcp_workbench.cluster.keys import NONCE, TAG, ValueSeal
from mcp_workbench.cluster.records import (
    LONGEST_SESSION,
    SessionRecord,
    read_record,
    session_name,
    write_record,
)

log = logging.getLogger(__name__)

LIFETIME = 3600  # seconds for which a record stays without a sign of its owner
AT_ONCE = 500  # commands that are sent together

# Takes a session over: only what was read, and only if its owner's lease has ended.
_SWAP = Script("""
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[4] ~= '' and redis.call('EXISTS', ARGV[4]) == 1 then return -1 end
redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[3])
return 1
""")

# Removes a record, if it is still the one that its owner wrote.
_REMOVE = Script("""
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
return 1
""")

# Writes a record that its owner has changed, unless another replica has written one.
_REWRITE = """
local now = redis.call('GET', KEYS[1])
if now and now ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[3])
return 1
"""


class StoredSession:
    """A record and the very bytes that lie in the engine."""

    __slots__ = ("raw", "record")

    def __init__(self, record: SessionRecord, raw: bytes) -> None:
        self.record = record
        self.raw = raw


class SessionStore:
    """Reads and writes records. What is in the engine and was not written by a replica does not exist."""

    def __init__(self, engine: Engine, vault: ValueSeal) -> None:
        self._engine = engine
        self._vault = vault

    def _seal(self, record: SessionRecord) -> StoredSession:
        name = session_name(record.id).encode()
        return StoredSession(record, self._vault.close(name, write_record(record)))

    def _key(self, id: str) -> bytes:
        return self._engine.key("session", session_name(id))

    def _open(self, id: str, raw: object) -> StoredSession | None:
        longest = LONGEST_SESSION + NONCE + TAG
        if not isinstance(raw, bytes) or len(raw) > longest:
            return None
        value = self._vault.open(session_name(id).encode(), raw)
        record = read_record(SessionRecord, value, LONGEST_SESSION)
        return StoredSession(record, raw) if record is not None and record.id == id else None

    async def read(self, id: str) -> StoredSession | None:
        """Returns the record of a session. Raises EngineAway."""
        return self._open(id, await self._engine.read(self._key(id)))

    def write(self, record: SessionRecord) -> StoredSession:
        """Write the record of a new session; returns it as written. Raises EngineAway."""
        stored = self._seal(record)
        future = self._engine.send("SET", self._key(record.id), stored.raw, "EX", LIFETIME)
        future.add_done_callback(_forgive)
        return stored

    def rewrite(
        self, before: StoredSession, record: SessionRecord, on_refused: Callable[[], None]
    ) -> StoredSession:
        """Write what has changed; returns it as written. Raises EngineAway.

        `on_refused` is called if the engine has something else than what was written before.
        """
        stored = self._seal(record)
        key = self._key(record.id)
        future = self._engine.send("EVAL", _REWRITE, 1, key, before.raw, stored.raw, LIFETIME)

        def replied(future: asyncio.Future[Any]) -> None:
            _forgive(future)
            if future.exception() is None and future.result() != 1:
                on_refused()

        future.add_done_callback(replied)
        return stored

    async def claim(self, records: list[SessionRecord]) -> dict[str, StoredSession | None]:
        """Write records that the engine has lost: of several replicas, the first one. Raises EngineAway.

        Returns the records as written, None for those that another one has written.
        """
        claimed: dict[str, StoredSession | None] = {}
        for at in range(0, len(records), AT_ONCE):
            stored = [self._seal(record) for record in records[at : at + AT_ONCE]]
            replies = await self._engine.ask_all(
                [("SET", self._key(s.record.id), s.raw, "EX", LIFETIME, "NX") for s in stored]
            )
            for one, reply in zip(stored, replies, strict=True):
                claimed[one.record.id] = one if reply == b"OK" else None
        return claimed

    async def swap(self, before: StoredSession, after: SessionRecord) -> StoredSession | None:
        """Adopt: returns the new record, or None if another replica was faster, or the owner lives."""
        stored = self._seal(after)
        owner = before.record.owner
        has_lease = owner and owner != after.owner
        lease = self._engine.key("lease", owner) if has_lease else b""
        key = self._key(after.id)
        args = (before.raw, stored.raw, LIFETIME, lease)
        done = await self._engine.run_script(_SWAP, (key,), *args)
        return stored if done == 1 else None

    async def remove(self, stored: StoredSession) -> bool:
        """Remove a record that is still as this replica wrote it. Raises EngineAway."""
        key = self._key(stored.record.id)
        return await self._engine.run_script(_REMOVE, (key,), stored.raw) == 1

    async def read_all(self, ids: list[str]) -> dict[str, StoredSession | None]:
        """Returns the records of these sessions. Raises EngineAway."""
        found: dict[str, StoredSession | None] = {}
        for at in range(0, len(ids), AT_ONCE):
            part = ids[at : at + AT_ONCE]
            replies = await self._engine.ask_all([("GET", self._key(id)) for id in part])
            for id, raw in zip(part, replies, strict=True):
                found[id] = self._open(id, raw)
        return found

    async def keep(self, ids: list[str]) -> bool:
        """Say that these sessions are still in use. False if the engine has lost one. Raises EngineAway."""
        all_there = True
        for at in range(0, len(ids), AT_ONCE):
            commands = [("EXPIRE", self._key(id), LIFETIME) for id in ids[at : at + AT_ONCE]]
            replies = await self._engine.ask_all(commands)
            all_there = all_there and all(reply == 1 for reply in replies)
        return all_there


def _forgive(future: asyncio.Future[Any]) -> None:
    """A record that could not be written is written again when the engine is back."""
    if future.exception() is not None:
        log.debug("a session could not be written down: %s", future.exception())
