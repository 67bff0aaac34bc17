"""Events of legacy sessions in the engine, so that a stream resumes when its owner has gone.

The owner adds each event before its host gets it, and waits for nothing. Streams and events of each owner have
numbers of their own (NUMBERS), so a replica that has adopted a session knows which it has to read. What is missing
is said: a stream with a gap is refused, and a call whose end nobody knows gets an error that says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from mcp_workbench.cluster.engine import Engine, EngineAway
from mcp_workbench.cluster.forwarding import lost_frame
from mcp_workbench.cluster.keys import NONCE, TAG, ValueSeal
from mcp_workbench.cluster.records import session_name
from mcp_workbench.cluster.resp import EngineError
from mcp_workbench.server.http.access import refused
from mcp_workbench.server.http.streams import KEPT_EVENTS
from mcp_workbench.transport import jsonrpc
from mcp_workbench.transport.http.sse import event

if TYPE_CHECKING:
    from mcp_workbench.server.http.sessions import LegacySession
    from mcp_workbench.transport.http.messages import ResponseWriter

log = logging.getLogger(__name__)

NUMBERS = 1_000_000  # streams and events of one owner; the next one counts from there
EXPIRY = 60  # seconds after the last event; as long as an owner keeps the end of a stream
RENEW = 15.0  # seconds after which the expiry is set again
HEAD_EXPIRY = 3600  # seconds for the number of the last event, as for the record of a session
MOST_SESSION = 256 << 10  # bytes of one session's events
MOST_EVENT = 64 << 10  # bytes of one event; of a longer one, only that it was there
MOST_ALL = 64 << 20  # bytes that one replica adds in EXPIRY seconds
FOLLOW = 0.2  # seconds between two looks at a stream that another replica still writes
FOLLOWED = 300.0  # seconds
NOT_KEPT = refused(400, "this stream is not kept any more")
GAP = refused(
    400,
    "events after this one are lost: the replica that had them has ended. Listen without Last-Event-ID",
)

Kind = Literal["opened", "sent", "large", "ended"]


class StreamEntry(msgspec.Struct, frozen=True, array_like=True):
    """Something that happened to one stream."""

    kind: Kind
    stream: int  # 0: that of messages which belong to no request
    count: int = 0  # of the event
    data: bytes = b""  # its message; of one that was opened, the ids of its requests as a JSON list


_read_entries = msgspec.msgpack.Decoder(list[StreamEntry]).decode


class SharedStreams:
    """Reads and writes the events of one replica's sessions."""

    def __init__(self, engine: Engine, vault: ValueSeal) -> None:
        self._engine = engine
        self._vault = vault
        self._window = 0.0  # since when `_added` counts
        self._added = 0
        self.behind: set[StreamRecorder] = set()  # whose last number could not be written
        engine.on_change.append(self._changed)

    def key(self, kind: str, id: str) -> bytes:
        return self._engine.key(kind, session_name(id))

    def add(self, recorder: StreamRecorder, entries: list[StreamEntry], newest: int) -> None:
        """Write entries of one session; `newest` is the last event of its own stream, if it is new."""
        loop = asyncio.get_running_loop()
        key = self.key("events", recorder.id)
        sealed = self._vault.close(key, msgspec.msgpack.encode(entries))
        if not self._has_room(loop.time(), len(sealed)):
            entries = []
        try:
            if entries:
                most = recorder.room_for(len(sealed))
                self._send("XADD", key, "MAXLEN", most, "*", "e", sealed)
            if entries and recorder.is_due(loop.time() + EXPIRY, self._engine.since):
                self._send("EXPIRE", key, EXPIRY + int(RENEW))
            if newest:
                self._write_head(recorder, newest)
        except EngineAway:
            if newest:
                self.behind.add(recorder)

    def _has_room(self, now: float, size: int) -> bool:
        if now - self._window > EXPIRY:
            self._window, self._added = now, 0
        if self._added + size > MOST_ALL:
            if self._added <= MOST_ALL:
                log.warning("streams can't resume elsewhere now: their events are too large")
            self._added = MOST_ALL + 1
            return False
        self._added += size
        return True

    def _write_head(self, recorder: StreamRecorder, newest: int) -> None:
        key = self.key("head", recorder.id)
        self._send("SET", key, self._vault.close(key, b"%d" % newest), "EX", HEAD_EXPIRY)

    def _send(self, *parts: bytes | str | int) -> None:
        self._engine.send(*parts).add_done_callback(_forgive)

    def _changed(self, now_ready: bool) -> None:  # noqa: FBT001 - a callback's one argument
        if not now_ready:
            return
        behind = tuple(self.behind)
        self.behind.clear()
        for recorder in behind:
            try:
                self._write_head(recorder, recorder.newest)
            except EngineAway:
                self.behind.add(recorder)

    async def head(self, id: str) -> int | None:
        """The last event of a session's own stream; 0 if it had none, None if that can't be known now."""
        key = self.key("head", id)
        try:
            sealed = await self._engine.read(key, NONCE + TAG + 20)
        except (EngineAway, EngineError):
            return None
        if sealed is None:
            return 0
        value = self._vault.open(key, sealed)
        return int(value) if value is not None and value.isdigit() else None

    async def read(self, id: str) -> list[StreamEntry]:
        """What is known of a session's streams, in no order. Raises EngineAway."""
        key = self.key("events", id)
        try:
            reply = await self._engine.ask("XRANGE", key, "-", "+", "COUNT", KEPT_EVENTS)
        except EngineError:
            return []
        entries: list[StreamEntry] = []
        for sealed in _values(reply):
            value = self._vault.open(key, sealed)
            if value is None:
                continue
            try:
                entries += _read_entries(value)
            except (msgspec.DecodeError, ValueError):
                continue
        return entries


class StreamRecorder:
    """Adds the events of one session."""

    __slots__ = ("_due", "_pending", "_since", "_sizes", "_streams", "before", "id", "newest")

    def __init__(self, streams: SharedStreams, id: str, before: int | None = 0) -> None:
        self.id = id
        self.before = before  # the last event of the session's own stream at its former owners
        self.newest = 0
        self._streams = streams
        self._pending: list[StreamEntry] | None = None
        self._sizes: deque[int] | None = None
        self._due = 0.0
        self._since: float | None = None  # the connection over which it was set

    def opened(self, stream: int, ids: list[bytes]) -> None:
        self._add(StreamEntry("opened", stream, 0, b"[%b]" % b",".join(ids)))

    def sent(self, stream: int, count: int, frame: bytes) -> None:
        if len(frame) > MOST_EVENT:
            self._add(StreamEntry("large", stream, count))
        else:
            self._add(StreamEntry("sent", stream, count, frame))
        if stream == 0:
            self.newest = count
        self._flush()  # before its host has it

    def ended(self, stream: int) -> None:
        self._add(StreamEntry("ended", stream))

    def _add(self, entry: StreamEntry) -> None:
        """Write it with the next event, or soon."""
        if self._pending is None:
            self._pending = []
            asyncio.get_running_loop().call_soon(self._flush)
        self._pending.append(entry)

    def _flush(self) -> None:
        pending, self._pending = self._pending, None
        if not pending:
            return
        newest = self.newest if any(entry.stream == 0 for entry in pending) else 0
        self._streams.add(self, pending, newest)

    def room_for(self, size: int) -> int:
        """How many of the last values may stay, with a new one of this size."""
        sizes = self._sizes = deque() if self._sizes is None else self._sizes
        sizes.append(size)
        total = sum(sizes)
        while len(sizes) > 1 and (total > MOST_SESSION or len(sizes) > KEPT_EVENTS):
            total -= sizes.popleft()
        return len(sizes)

    def is_due(self, until: float, since: float | None) -> bool:
        """Whether the expiry has to be set; `since`: an engine that came back may have lost it."""
        if until - self._due < RENEW and since == self._since:
            return False
        self._due, self._since = until, since
        return True


class StreamAfter:
    """What is known of one stream after an event that its host has."""

    def __init__(self, entries: list[StreamEntry], stream: int, after: int) -> None:
        own = [entry for entry in entries if entry.stream == stream]
        events = {entry.count: entry for entry in own if entry.kind in ("sent", "large")}
        self.is_known = any(entry.kind == "opened" for entry in own)
        self.has_ended = any(entry.kind == "ended" for entry in own)
        counts = sorted(count for count in events if count > after)
        self.events = [(count, events[count].data) for count in counts]
        self.last = counts[-1] if counts else after
        # None is missing, and none was too long to be kept.
        whole = all(
            events[count].kind == "sent" and _is_frame(events[count].data) for count in counts
        )
        self.is_whole = whole and counts == list(range(after + 1, after + 1 + len(counts)))
        self._ids = _ids(entry.data for entry in own if entry.kind == "opened")
        self._frames = [entry.data for entry in own if entry.kind == "sent"]

    def unanswered(self) -> list[bytes]:
        """The requests of this stream to which no reply is known."""
        return [id for id in self._ids if not any(jsonrpc.answers(f, id) for f in self._frames)]


async def resume_own(
    streams: SharedStreams, session: LegacySession, response: ResponseWriter, last: bytes
) -> None:
    """Resume the stream of messages that belong to no request, after an event of a former owner."""
    recorder, after = session.recorder, int(last.partition(b"-")[2])
    head = recorder.before if isinstance(recorder, StreamRecorder) else None
    if head is None:
        response.plain(GAP)
        return
    if after < head:
        try:
            rest = StreamAfter(await streams.read(session.id), 0, after)
        except EngineAway:
            response.plain(GAP)
            return
        if not rest.is_whole or rest.last < head:
            response.plain(GAP)
            return
        session.standalone.restore([one for one in rest.events if one[0] <= head])
    if not response.over and session.is_open:
        session.listen(response, last)


class PostResume:
    """Resumes the answer to a POST whose requests ran at another replica."""

    def __init__(self, streams: SharedStreams, id: str, response: ResponseWriter) -> None:
        self._streams = streams
        self._id = id
        self._response = response

    async def run(self, stream: int, after: int, runs: Callable[[], bool]) -> None:
        """`runs` tells whether the replica that had it may still write to it."""
        loop = asyncio.get_running_loop()
        end = loop.time() + FOLLOWED
        response, begun = self._response, False
        while not response.over:
            may_go_on = runs() and loop.time() < end
            try:
                rest = StreamAfter(await self._streams.read(self._id), stream, after)
            except EngineAway:
                rest = None
            if not begun and (rest is None or not (rest.is_known and rest.is_whole)):
                response.plain(NOT_KEPT)
                return
            begun = True
            if rest is None or not rest.is_whole:
                response.abort()  # the host asks again, and is told
                return
            after = self._write(rest, stream, after)
            if rest.has_ended or not may_go_on:
                self._finish([] if rest.has_ended else rest.unanswered(), stream, after)
                return
            await asyncio.sleep(FOLLOW)

    def _write(self, rest: StreamAfter, stream: int, after: int) -> int:
        self._response.stream()
        for count, frame in rest.events:
            self._response.send(event(frame[:-1], b"%d-%d" % (stream, count)))
        return max(after, rest.last)

    def _finish(self, lost: list[bytes], stream: int, after: int) -> None:
        for id in lost:
            after += 1
            self._response.send(event(lost_frame(id)[:-1], b"%d-%d" % (stream, after)))
        self._response.end()


def _values(reply: object) -> list[bytes]:
    """The values of a stream of the engine, as far as they are such."""
    values: list[bytes] = []
    if isinstance(reply, list):
        entries: list[object] = list(reply)  # pyright: ignore[reportUnknownArgumentType]
        for entry in entries:
            match entry:
                case [bytes(), [b"e", bytes(value)]]:
                    values.append(value)
                case _:
                    pass
    return values


def _is_frame(data: bytes) -> bool:
    return data.endswith(b"\n") and b"\n" not in data[:-1]


def _ids(lists: Iterable[bytes]) -> list[bytes]:
    ids: list[bytes] = []
    for data in lists:
        try:
            found = [bytes(id) for id in msgspec.json.decode(data, type=list[msgspec.Raw])]
        except (msgspec.DecodeError, ValueError):
            continue
        ids += [id for id in found if jsonrpc.usable_id(id)]
    return ids


def _forgive(future: asyncio.Future[Any]) -> None:
    if not future.cancelled() and isinstance(error := future.exception(), EngineError):
        log.debug("events could not be kept for other replicas: %s", str(error)[:200])
