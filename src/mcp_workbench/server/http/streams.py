"""Event streams of a legacy session: numbered events, kept for a while so that a host can resume."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from mcp_workbench.server.http.access import refused
from mcp_workbench.transport.http.messages import ResponseWriter
from mcp_workbench.transport.http.sse import COMMENT, event

KEPT_EVENTS = 256  # per stream
KEPT_BYTES = 1 << 20  # per stream; its newest event is kept whatever its size
SILENCE = 5.0  # seconds until a host that waits sees a stream start
LONGEST_ID = 40  # of an event: two counters
RETRY = 1000  # milliseconds after which a host may reconnect


class Recorder(Protocol):
    """Keeps what a session streams where other replicas can read it."""

    def opened(self, stream: int, ids: list[bytes]) -> None: ...
    def sent(self, stream: int, count: int, frame: bytes) -> None: ...
    def ended(self, stream: int) -> None: ...


class EventStream:
    """One stream. If its response breaks, another can take over; the numbering of events continues."""

    response: ResponseWriter | None = None
    recorder: Recorder | None = None  # with replicas
    _said_retry = False
    _count = 0
    _seen = 0  # the last event that was written to a response
    _bytes = 0  # of what is kept
    _kept: deque[tuple[int, bytes]] | None = None  # most streams never have an event

    def __init__(
        self, number: int, *, primes: bool, on_detached: Callable[[], None] | None = None
    ) -> None:
        self.number = number
        self._primes = primes  # hosts of older revisions can't read an event without data
        self._on_detached = on_detached  # called when it has no response any more

    @property
    def resumable(self) -> bool:
        """Whether the host has an event id to resume with."""
        return self._said_retry

    def number_from(self, first: int) -> None:
        self._count = self._seen = first

    def send(self, frame: bytes) -> None:
        """Add an event: keep it, and write it if there is a response."""
        self._count += 1
        kept = self._kept = deque() if self._kept is None else self._kept
        kept.append((self._count, frame))
        self._bytes += len(frame)
        while len(kept) > KEPT_EVENTS or (self._bytes > KEPT_BYTES and len(kept) > 1):
            self._bytes -= len(kept.popleft()[1])
        if self.recorder is not None:
            self.recorder.sent(self.number, self._count, frame)
        self._write(self._count, frame)

    def restore(self, events: Sequence[tuple[int, bytes]]) -> None:
        """Put events before all others: those that another replica has numbered."""
        kept = self._kept = deque() if self._kept is None else self._kept
        first = kept[0][0] if kept else self._count + 1
        for count, frame in reversed(events):
            if count < first:
                kept.appendleft((count, frame))
                self._bytes += len(frame)

    def attach(
        self, response: ResponseWriter, after: int | None = None, headers: bytes = b""
    ) -> None:
        """Write the stream to this response, from the event after `after`, or the first unwritten one."""
        if self.response is not None:
            self.response.on_gone(None)
            self.response.end()
        self.response = response
        response.on_gone(self.lost)
        response.stream(headers)
        if self._primes and after is None:
            response.send(event(b"", self._id(self._seen), RETRY))
            self._said_retry = True
        first = self._seen if after is None else after
        for count, frame in tuple(self._kept or ()):
            if count > first:
                self._write(count, frame)

    def _write(self, count: int, frame: bytes) -> None:
        if self.response is None:
            return
        retry = 0 if self._said_retry else RETRY
        self._said_retry = True
        self._seen = max(self._seen, count)
        self.response.send(event(frame, self._id(count), retry))

    def _id(self, count: int) -> bytes:
        return b"%d-%d" % (self.number, count)

    def lost(self) -> None:
        """The connection broke. That does not cancel anything: the host may come back."""
        self.response = None
        if self._on_detached is not None:
            self._on_detached()

    def comment(self) -> None:
        if self.response is not None and self.response.streaming:
            self.response.send(COMMENT)

    def end(self) -> None:
        response, self.response = self.response, None
        if response is not None:
            response.on_gone(None)
            response.end()
            if self._on_detached is not None:
                self._on_detached()


class PostStream(EventStream):
    """The response to one POST with requests: JSON if nothing was streamed before, else a stream."""

    headers = b""
    batch = False
    committed = False
    over = 0.0  # when the last reply was sent
    _on_detached = None
    _held: tuple[bytes, ...] = ()  # replies of a batch, until the last one is there

    def __init__(
        self, number: int, response: ResponseWriter, ids: list[bytes], since: float, *, primes: bool
    ) -> None:
        self.number = number  # as the base does: one call less for each request
        self._primes = primes
        self.response = response
        self.since = since
        self._waiting = ids
        response.on_gone(self.lost)

    @property
    def complete(self) -> bool:
        return not self._waiting

    def commit(self) -> None:
        """Start the stream with the frames that were held back."""
        if self.committed:
            return
        self.committed = True
        if self.recorder is not None:
            self.recorder.opened(self.number, self._waiting)
        response, self.response = self.response, None
        if response is not None:
            self.attach(response, headers=self.headers)
        held, self._held = self._held, ()
        for frame in held:
            self.send(frame)

    def commit_late(self) -> None:
        """The reply takes long: start the stream, so that the host sees that we are alive."""
        if self.response is not None:
            self.commit()

    def notice(self, frame: bytes) -> None:
        """Send a message that belongs to a request, before its reply."""
        self.commit()
        self.send(frame)

    def answer(self, id: bytes, frame: bytes) -> None:
        """Send a reply; the last one ends the response."""
        if self.committed:
            self.send(frame)
        elif self.batch:
            self._held += (frame,)
        else:
            self._waiting.clear()
            response, self.response = self.response, None
            if response is not None:
                response.json(frame, self.headers)
            return
        self.settle(id)

    def settle(self, id: bytes) -> None:
        """A request was answered or cancelled."""
        if id in self._waiting:
            self._waiting.remove(id)
        if self._waiting:
            return
        if self.committed or not self._held:
            self._end_stream()
        elif self.response is not None:
            response, self.response = self.response, None
            response.json(b"[%b]" % b",".join(self._held), self.headers)

    def _end_stream(self) -> None:
        if self.recorder is not None and self.committed:
            self.recorder.ended(self.number)
        if self.response is not None and not self.committed:
            self.response.stream(self.headers)  # all requests were cancelled: nothing to send
        self.end()

    def abandon(self) -> None:
        """No reply will come."""
        response, self.response = self.response, None
        if response is None:
            return
        response.on_gone(None)
        if self.committed:
            response.end()
        else:
            response.plain(refused(404, "the session has ended"))


def is_event_id(value: bytes) -> bool:
    if not value:
        return True
    number, _, count = value.partition(b"-")
    return number.isdigit() and count.isdigit() and len(value) < LONGEST_ID
