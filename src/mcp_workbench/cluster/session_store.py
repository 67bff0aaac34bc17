"""The records of sessions in the engine: written by owners, compared and swapped by who adopts."""

from __future__ import annotations

import asyncio
import logging
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

# Removes or replaces a record, if it is still the one that its owner wrote.
_REPLACE = Script("""
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '' then redis.call('DEL', KEYS[1])
else redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[3]) end
return 1
""")


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
        """Write the record of a session of this replica; returns it as written. Raises EngineAway."""
        stored = self._seal(record)
        future = self._engine.send("SET", self._key(record.id), stored.raw, "EX", LIFETIME)
        future.add_done_callback(_forgive)
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
        lease = self._engine.key("lease", owner) if owner else b""
        key = self._key(after.id)
        args = (before.raw, stored.raw, LIFETIME, lease)
        done = await self._engine.run_script(_SWAP, (key,), *args)
        return stored if done == 1 else None

    async def replace(self, before: StoredSession, after: SessionRecord | None) -> bool:
        """Write or remove (None) a record that is still as this replica wrote it. Raises EngineAway."""
        raw = b"" if after is None else self._seal(after).raw
        key = self._key(before.record.id)
        return await self._engine.run_script(_REPLACE, (key,), before.raw, raw, LIFETIME) == 1

    async def owners(self, ids: list[str]) -> dict[str, SessionRecord | None]:
        """Returns the records of these sessions. Raises EngineAway."""
        found: dict[str, SessionRecord | None] = {}
        for at in range(0, len(ids), AT_ONCE):
            part = ids[at : at + AT_ONCE]
            replies = await self._engine.ask_all([("GET", self._key(id)) for id in part])
            for id, raw in zip(part, replies, strict=True):
                stored = self._open(id, raw)
                found[id] = None if stored is None else stored.record
        return found

    async def keep(self, ids: list[str]) -> None:
        """Say that these sessions are still in use. Raises EngineAway."""
        for at in range(0, len(ids), AT_ONCE):
            part = ids[at : at + AT_ONCE]
            await self._engine.ask_all([("EXPIRE", self._key(id), LIFETIME) for id in part])


def _forgive(future: asyncio.Future[Any]) -> None:
    """A record that could not be written is written again when the engine is back."""
    if future.exception() is not None:
        log.debug("a session could not be written down: %s", future.exception())
