"""The legacy sessions that this replica owns: written down for the others, adopted, handed over."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from base64 import urlsafe_b64encode
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from mcp_workbench.cluster.engine import EngineAway
from mcp_workbench.cluster.ownership import adopted, may_run, released
from mcp_workbench.cluster.records import (
    LONGEST_SESSION,
    MOST_SUBSCRIPTIONS,
    MOST_TOOLBOXES,
    ReplicaAddress,
    SessionRecord,
)
from mcp_workbench.cluster.resp import EngineError
from mcp_workbench.cluster.shared_streams import NUMBERS, PostResume, StreamRecorder, resume_own
from mcp_workbench.server import parse
from mcp_workbench.server.http.sessions import Admitted, LegacySession, LegacySessions
from mcp_workbench.server.http.streams import is_event_id
from mcp_workbench.server.parse import Message, UseToolRequest
from mcp_workbench.transport.jsonrpc import Malformed

if TYPE_CHECKING:
    from mcp_workbench.cluster.replica import Replica
    from mcp_workbench.cluster.session_store import StoredSession
    from mcp_workbench.transport.http.messages import ResponseWriter

log = logging.getLogger(__name__)

KEEP_EVERY = 600.0  # seconds between two signs that sessions are in use
AT_ONCE = 200  # sessions that are handed over together
SWEEP_EVERY = 5.0  # seconds between two attempts to remove records of sessions that have ended
MOST_ENDED = 1000  # of them
MOST_WRITES = (
    10  # of one record between two ticks: what changes more often is written at the next one
)
_CANCELLED = b"notifications/cancelled"
_OURS = b'"mcp-workbench'  # begins the ids of our own requests in a session
_AWAY = (EngineAway, EngineError)


class Note(msgspec.Struct, frozen=True, array_like=True):
    """A message for calls that a former owner still finishes."""

    session: str
    principal: str
    body: bytes


class OwnedSessions:
    """What is written down of this replica's sessions, and those that have moved on."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._stored: dict[str, StoredSession] = {}
        self._unwritten: dict[str, LegacySession] = {}  # whose record is not what it should be
        self._changes: Counter[str] = Counter()  # by session, since the last tick
        self._moved: dict[
            str, LegacySession
        ] = {}  # to another replica; their calls in flight go on
        self.previous: dict[
            str, ReplicaAddress
        ] = {}  # of adopted sessions: who may still finish their calls
        self._kept = 0.0
        self._ended: dict[str, StoredSession] = {}  # whose record still has to go
        self._swept = 0.0

    # The hooks of the port

    def new_id(self) -> str:
        """An id that nobody can guess; it begins with its first owner."""
        return f"{self._replica.me.id}.{urlsafe_b64encode(os.urandom(24)).decode()}"

    def created(self, session: LegacySession, message: Message) -> None:
        session.recorder = StreamRecorder(self._replica.streams, session.id)
        params = b"{}" if isinstance(message, UseToolRequest) else bytes(message.params)
        if len(params) > LONGEST_SESSION // 2:
            log.warning("a session can't be adopted: its host said too much in initialize")
            return
        me = self._replica.me
        path = session.endpoint.path
        record = SessionRecord(
            session.id, me.id, 1, session.principal, path, params, me.host, me.port
        )
        self._write(session, record)
        session.host.on_change = partial(self._changed, session)

    def ended(self, session: LegacySession) -> None:
        self._unwritten.pop(session.id, None)
        self.previous.pop(session.id, None)
        stored = self._stored.pop(session.id, None)
        if stored is not None:
            if len(self._ended) >= MOST_ENDED:
                del self._ended[next(iter(self._ended))]  # it expires
            self._ended[session.id] = stored
            self._replica.scope.start(self._remove(stored), "end of a session")

    def has_ended(self, id: str) -> bool:
        """Whether this session has ended here, and its record may still lie in the engine."""
        return id in self._ended

    async def _remove(self, stored: StoredSession) -> None:
        with contextlib.suppress(*_AWAY):  # then at a later tick
            await self._replica.store.remove(stored)
            self._ended.pop(stored.record.id, None)

    def _write(self, session: LegacySession, record: SessionRecord) -> None:
        from mcp_workbench.cluster.session_store import StoredSession

        try:
            self._stored[session.id] = self._replica.store.write(record)
        except _AWAY:
            self._stored[session.id] = StoredSession(record, b"")
            self._unwritten[session.id] = session

    def _rewrite(
        self, session: LegacySession, stored: StoredSession, record: SessionRecord
    ) -> None:
        store, members = self._replica.store, self._replica.members
        try:
            self._stored[session.id] = store.rewrite(stored, record, members.distrust)
        except _AWAY:
            self._unwritten[session.id] = session

    # Time

    def tick(self, now: float, sessions: LegacySessions) -> None:
        self._changes.clear()
        unwritten, self._unwritten = self._unwritten, {}
        for session in unwritten.values():
            self._renew(session)
        self._close_moved()
        for id, member in tuple(self.previous.items()):
            if member.id not in self._replica.members.others:
                del self.previous[id]
        if now - self._kept > KEEP_EVERY:
            self._kept = now
            self._replica.scope.start(self._keep(), "signs of use")
        if self._ended and now - self._swept > SWEEP_EVERY:
            self._swept = now
            for stored in tuple(self._ended.values()):
                self._replica.scope.start(self._remove(stored), "end of a session")

    def _close_moved(self) -> None:
        for id, session in tuple(self._moved.items()):
            if not session.busy:
                del self._moved[id]
                session.close()

    def _changed(self, session: LegacySession) -> None:
        self._changes[session.id] += 1
        if self._changes[session.id] <= MOST_WRITES:
            self._renew(session)
        else:
            self._unwritten[session.id] = session

    def _renew(self, session: LegacySession) -> None:
        """Write down what its host has changed: now, or at a later tick."""
        stored = self._stored.get(session.id)
        if stored is None:
            return
        can_write = self._replica.engine.is_ready and self._replica.members.holds()
        if not can_write or _is_behind(session):
            self._unwritten[session.id] = session
            return
        opened, level, uris = session.host.remembered()
        record = msgspec.structs.replace(
            stored.record,
            opened=opened[:MOST_TOOLBOXES],
            level=level,
            subscriptions=uris[:MOST_SUBSCRIPTIONS],
        )
        if record != stored.record or not stored.raw:
            self._rewrite(session, stored, record)

    async def _keep(self) -> None:
        try:
            if not await self._replica.store.keep(list(self._stored)):
                self._replica.members.distrust()
        except _AWAY:
            self._kept = 0.0  # at the next tick

    # The engine is back, or this replica has lost its lease

    async def verify(self, sessions: LegacySessions) -> None:
        """Compare what is ours with the engine. What another replica has adopted is given up.

        What the engine has lost is written again, by whoever comes first: so there is one owner
        again, also if two replicas took themselves for it. Raises EngineAway.
        """
        owned = {session.id: session for session in sessions.all() if session.id in self._stored}
        known = {id: self._stored[id] for id in owned}
        found = await self._replica.store.read_all(list(owned))
        lost = [known[id].record for id in owned if found.get(id) is None]
        claimed = await self._replica.store.claim(lost)
        me = self._replica.me.id
        for id, session in owned.items():
            if sessions.get(id) is not session or self._stored.get(id) is not known[id]:
                continue  # it has ended meanwhile, or was written
            stored = found.get(id) or claimed.get(id)
            if stored is None or stored.record.owner != me:
                self.give_up(session, sessions)
            elif stored.raw != known[id].raw:  # the engine's reply to it was lost on its way
                self._stored[id] = stored
                self._unwritten[id] = session

    def give_up(self, session: LegacySession, sessions: LegacySessions) -> None:
        """Another replica goes on with it; calls in flight here are finished here."""
        sessions.forget(session)
        self._stored.pop(session.id, None)
        self._unwritten.pop(session.id, None)
        session.stop_listening()
        session.standalone.recorder = None  # its numbers are the next owner's affair
        if session.busy:
            self._moved[session.id] = session
        else:
            session.close()

    async def release_all(self, sessions: LegacySessions) -> None:
        """Leave every session to whoever is asked next. Raises EngineAway."""
        me = self._replica.me.id
        for count, session in enumerate(sessions.all(), 1):
            if count % AT_ONCE == 0:  # others are served meanwhile, and the engine keeps up
                await self._replica.engine.ask("PING")
            stored = self._stored.get(session.id)
            if stored is None or sessions.get(session.id) is not session:
                continue  # it can't be adopted and ends with this replica, or has ended
            opened, level, uris = session.host.remembered()
            record = msgspec.structs.replace(
                released(stored.record, me),
                opened=opened[:MOST_TOOLBOXES],
                level=level,
                subscriptions=uris[:MOST_SUBSCRIPTIONS],
            )
            self._replica.store.rewrite(stored, record, _ignore)
            self.give_up(session, sessions)
        await self._replica.engine.ask("PING")  # all of them have arrived

    @property
    def is_busy(self) -> bool:
        return any(session.busy for session in self._moved.values())

    def close(self) -> None:
        for session in self._moved.values():
            session.close()
        self._moved.clear()

    # Sessions of others

    async def adopt(
        self, stored: StoredSession, admitted: Admitted, sessions: LegacySessions
    ) -> bool:
        """Take over a session whose owner has gone. False if somebody else did, or may have."""
        record = stored.record
        try:
            taken = await self._replica.store.swap(stored, adopted(record, self._replica.me))
        except _AWAY:
            return False
        head = None if taken is None else await self._replica.streams.head(record.id)
        if taken is None or sessions.get(record.id) is not None:
            return False
        session = LegacySession(record.id, record.principal, admitted.endpoint, sessions)
        session.host.public_origin = admitted.public_origin
        session.recorder = StreamRecorder(self._replica.streams, record.id, head)
        session.number_from(record.epoch * NUMBERS)
        for message in _history(record):
            session.host.receive(message)
        for toolbox in record.opened:
            session.host.reopen(toolbox)
        session.host.on_change = partial(self._changed, session)
        sessions.add(session)
        self._stored[record.id] = taken
        before = self._replica.members.others.get(taken.record.previous)
        if before is not None:
            self.previous[record.id] = before
        log.info("adopted a session of replica %s", taken.record.previous)
        return True

    # Streams of a former owner

    def resume(self, session: LegacySession, response: ResponseWriter, last: bytes) -> bool:
        """Resume a stream after an event that a former owner has numbered. False: it is one of ours."""
        stored = self._stored.get(session.id)
        if stored is None or not last or not is_event_id(last):
            return False
        own = (stored.record.epoch - 1) * NUMBERS  # ours come after that
        stream, after = (int(part) for part in last.split(b"-"))
        if (stream or after) > own or (stream == 0 and after == own):
            return False
        replica, previous = self._replica, stored.record.previous
        if stream == 0:
            work = resume_own(replica.streams, session, response, last)
        else:
            since = time.monotonic()

            def runs() -> bool:
                return may_run(previous, replica.members.others, time.monotonic() - since)

            work = PostResume(replica.streams, session.id, response).run(stream, after, runs)
        replica.scope.start(work, "stream of a former owner")
        return True

    # Calls that the former owner still finishes

    def tell_previous(self, session: LegacySession, body: bytes) -> None:
        """Pass an answer or a cancellation to the former owner: it may be about a call there."""
        member = self.previous.get(session.id)
        if member is None or not (b'"method"' not in body or _CANCELLED in body):
            return
        note = msgspec.msgpack.encode(Note(session.id, session.principal, body))
        self._replica.scope.start(self._replica.note(member, note), "note to the former owner")

    def receive_note(self, payload: bytes) -> None:
        """The other side of it."""
        try:
            note = msgspec.msgpack.decode(payload, type=Note)
            message = parse.read_body(note.body)
        except (msgspec.DecodeError, ValueError, Malformed):
            return
        session = self._moved.get(note.session) or self._replica.session(note.session)
        if session is not None and session.principal == note.principal:
            session.receive(message)


def _ignore() -> None:
    """Another replica has the session: it needs no hand-over."""


def _history(record: SessionRecord) -> list[Message]:
    """Returns the messages that bring a new session to where the old one was."""
    lines = [_request(b"initialize", b"i", record.initialize or b"{}")]
    lines.append(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
    if record.level:
        lines.append(_request(b"logging/setLevel", b"l", b'{"level":%b}' % record.level))
    for number, uri in enumerate(record.subscriptions):
        params = msgspec.json.encode({"uri": uri})
        lines.append(_request(b"resources/subscribe", b"s%d" % number, params))
    messages: list[Message] = []
    for line in lines:
        try:
            messages.append(parse.read_body(line))
        except Malformed:
            continue
    return messages


def _request(method: bytes, id: bytes, params: bytes) -> bytes:
    name = b'%b:%b"' % (_OURS, id)
    return b'{"jsonrpc":"2.0","id":%b,"method":"%b","params":%b}' % (name, method, params)


def _is_behind(session: LegacySession) -> bool:
    """Whether an adopted session is not yet where the old one was."""
    return any(id.startswith(_OURS) for id in session.host.under_way)
