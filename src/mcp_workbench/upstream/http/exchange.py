"""One request's answer, read: a JSON body, a stream of events, or neither."""

from __future__ import annotations

import asyncio
import logging
import time

import msgspec

from mcp_workbench.era.negotiate import INITIALIZE
from mcp_workbench.era.ourselves import STAMPS
from mcp_workbench.era.revision import HEADER_MISMATCH
from mcp_workbench.upstream.conversation import Conversation
from mcp_workbench.upstream.http.errors import Failed, is_refusal, loss_for
from mcp_workbench.upstream.http.headers import ANNOTATION, Wanted, modern_headers, screened
from mcp_workbench.upstream.http.requests import Road
from mcp_workbench.upstream.http.streams import Pace
from mcp_workbench.upstream.responses import Loss
from mcp_workbench.upstream.subscriptions import refuses
from mcp_workbench.upstream.tools import PAGES
from mcp_workbench.wire import envelope
from mcp_workbench.wire.envelope import Envelope, Malformed, one_line
from mcp_workbench.wire.http_answer import Answer, Broken, Oversized, Turns
from mcp_workbench.wire.sse import EventReader, EventTooLarge

log = logging.getLogger(__name__)

CANCELLED = "notifications/cancelled"
CHANGED = envelope.notification("notifications/tools/list_changed")
EVENTS = "text/event-stream"
IDLE = 60.0  # seconds between two pieces of one body
RESUMPTIONS = 100  # of one answer; its call has a deadline as well
LINGER = 1.0  # seconds for a stream to end after its answer, so that its connection can be kept


class Asked:
    """A request on its way."""

    __slots__ = (
        "again", "answered", "cursor", "frame", "method", "number", "params", "quiet", "refused", "session", "standing", "task",
    )  # fmt: skip

    def __init__(self, number: int, method: str, frame: bytes, params: msgspec.Raw) -> None:
        self.number = number
        self.method = method
        self.frame = frame
        self.params = params
        self.answered = False
        self.refused = False  # by an error, for good
        self.standing = False  # a stream that is opened again when it ends
        self.again = False  # it is not the first of these
        self.quiet = False  # its answer is for us alone
        self.session = ""  # that its answer opened
        self.cursor = ""  # where its list goes on
        self.task: asyncio.Task[None] | None = None


class _Page(msgspec.Struct):
    cursor: str = ""


class _Listed(msgspec.Struct):
    nextCursor: str | None = None  # noqa: N815 - the wire's word


class _Greeted(msgspec.Struct):
    protocolVersion: str = ""  # noqa: N815 - the wire's word


def _peeked(line: bytes) -> Envelope | None:
    try:
        return envelope.decode(line)
    except Malformed:
        return None


class Exchange:
    """Reads what a server answers and hands it on as lines."""

    def __init__(self, road: Road, talk: Conversation, flowing: asyncio.Event, pace: Pace) -> None:
        self.wanted: dict[str, Wanted] = {}  # headers that tools ask for
        self.complaints: list[str] = []
        self._road = road
        self._talk = talk
        self._flowing = flowing
        self._pace = pace
        self._last_id = ""  # of what the server said unasked
        self._cut = ""  # how the last stream broke, if it did
        self._streamed = False  # what the server says unasked has come on a stream before
        self.forgotten = False  # that stream is refused as if our session were unknown

    async def hear(self, asked: Asked, answer: Answer) -> None:
        """Hand on the answer to a request, or raise Failed or Broken."""
        asked.session = answer.headers.get("mcp-session-id", "")
        if answer.status == 200 and answer.content_type == EVENTS:
            await self._hear_stream(asked, answer)
            return
        body = await answer.whole(self._road.keeping.limit, IDLE)
        if not self._flowing.is_set():
            await self._flowing.wait()
        self._hear_body(asked, answer, body)
        if asked.answered and self._talk.pending.find(asked.number) is not None:
            raise Failed(Loss("protocol_error", "the server's answer is none to this request"))

    # Headers that tools want

    def headers_for(self, asked: Asked) -> bytes:
        if not self._road.modern:
            return b""
        try:
            return modern_headers(asked.method, asked.params, self.wanted)
        except msgspec.DecodeError:
            return b""  # a body that can't be read: the server is the judge

    async def learn_headers(self) -> None:
        """Read which headers the tools want by now."""
        self._talk.receive(CHANGED)  # others will want to know as well
        cursor: dict[str, str] = {}
        for _ in range(PAGES):
            params = envelope.encode({**cursor, "_meta": STAMPS.request})
            frame = envelope.request(0, "tools/list", params)
            page = Asked(0, "tools/list", frame, msgspec.Raw(params))
            page.quiet = True
            answer = await self._road.post(frame, self.headers_for(page), repeatable=True)
            try:
                await self.hear(page, answer)
            finally:
                answer.close()
            if not page.cursor:
                return
            cursor = {"cursor": page.cursor}

    # A body

    def _hear_body(self, asked: Asked, answer: Answer, body: bytes) -> None:
        own = b"%d" % asked.number
        body = body.removeprefix(envelope.BOM)
        if is_refusal(answer):
            raise Failed(loss_for(answer, body, self._road.keeping))
        if answer.status == 200 and envelope.salvaged_id(body) == own:
            self._settle(asked, one_line(body) + b"\n")
            return
        line = one_line(body) + b"\n"
        if envelope.is_batch(line):
            self._talk.receive(line)
            asked.answered = True
            return
        message = _peeked(line)
        if message is None or not (message.error or message.result):
            raise Failed(loss_for(answer, body, self._road.keeping))
        if message.result and bytes(message.id) != own:
            raise Failed(Loss("protocol_error", "the server answered with another request's id"))
        self._settle(asked, line, message)

    # A stream

    async def _hear_stream(self, asked: Asked, answer: Answer) -> None:
        reader = await self._read_events(asked, answer, "")
        for _ in range(RESUMPTIONS):
            if asked.answered or asked.standing:
                return
            if self._road.modern or not reader.last_id:
                break
            reader = await self._resume(asked, reader)
        raise Broken(self._cut or "the server ended its answer before it was complete", heard=True)

    async def _resume(self, asked: Asked, reader: EventReader) -> EventReader:
        """Ask for the rest of an answer, from the last event that came."""
        await asyncio.sleep(self._pace.resumption(reader.retry, time.monotonic()))
        await self._pace.turn()
        answer = await self._road.get(reader.last_id)
        try:
            if answer.status != 200 or answer.content_type != EVENTS:
                raise Broken("the server ended its answer early and does not go on", heard=True)
            return await self._read_events(asked, answer, reader.last_id)
        finally:
            answer.close()

    async def hear_unasked(self) -> bool:
        """The stream of what the server says by itself; is it worth opening again?"""
        answer = await self._road.get(self._last_id)
        try:
            # Where there never was a stream, its absence says nothing about our session.
            self.forgotten = answer.status == 404 and self._streamed and bool(self._road.session)
            if answer.status >= 500 or answer.status == 429 or self.forgotten:
                return True
            if answer.status != 200 or answer.content_type != EVENTS:
                return False
            self._streamed = True
            reader = await self._read_events(None, answer, self._last_id)
        finally:
            answer.close()
        self._last_id, self._pace.retry = reader.last_id, reader.retry
        return True

    def forget(self) -> None:
        """A new session: events of the old one can't be gone on from."""
        self._last_id = ""
        self._streamed = self.forgotten = False

    async def _read_events(self, asked: Asked | None, answer: Answer, after: str) -> EventReader:
        """Hand on events until the stream ends or breaks; only one that is too large is a fault."""
        reader = EventReader(self._road.keeping.limit, after)
        turns = Turns()
        self._cut = ""
        try:
            while chunk := await answer.read(LINGER if asked and asked.answered else None):
                for event in reader.feed(chunk):
                    await turns.next()
                    if event.name == "message":
                        await self._flowing.wait()
                        self._hear_event(asked, one_line(event.data) + b"\n")
        except EventTooLarge:
            raise Oversized("an event of it went past that", heard=True) from None
        except Oversized:
            raise
        except Broken as error:
            self._cut = str(error)
        return reader

    def _hear_event(self, asked: Asked | None, line: bytes) -> None:
        if asked is None or asked.answered:
            self._talk.receive(line)
            return
        message = _peeked(line)
        if asked.standing and message is not None and message.method == CANCELLED:
            raise Broken("the server ended it", heard=True)  # its other way to say so
        own = b"%d" % asked.number
        if message is None or message.method or not (message.result or message.error):
            self._talk.receive_on(asked.number, line)
        elif bytes(message.id) == own or message.error:
            self._settle(asked, line, message)
        else:
            self._talk.receive_on(asked.number, line)

    # What an answer tells us ourselves

    def _settle(self, asked: Asked, line: bytes, message: Envelope | None = None) -> None:
        if asked.standing or self._mismatched(asked, message):
            message = message or _peeked(line)
            asked.refused = message is not None and bool(message.error) and refuses(message.error)
            return
        asked.answered = True
        if asked.method in (INITIALIZE, "tools/list") or asked.quiet:
            message = message or _peeked(line)
            if message is not None:
                line = self._looked_into(asked, line, message)
        if asked.quiet:
            return
        if message is not None and message.error and bytes(message.id) != b"%d" % asked.number:
            line = envelope.refusal(b"%d" % asked.number, message.error)
        self._talk.receive(line)

    def _mismatched(self, asked: Asked, message: Envelope | None) -> bool:
        """Did the server, before it ran anything, miss a header that its tool wants by now?"""
        if message is None or not message.error or asked.again or asked.method != "tools/call":
            return False
        return self._road.modern and envelope.read_error(message.error).code == HEADER_MISMATCH

    def _looked_into(self, asked: Asked, line: bytes, message: Envelope) -> bytes:
        asked.refused = bool(message.error)
        if message.error:
            return line
        if asked.method == INITIALIZE:
            try:
                revision = msgspec.json.decode(message.result, type=_Greeted).protocolVersion
            except msgspec.DecodeError:
                return line
            self._road.speak(revision, asked.session)
        elif self._road.modern and (self.wanted or ANNOTATION.encode() in line):
            return self._without_bad_tools(asked, line, message)
        return line

    def _without_bad_tools(self, asked: Asked, line: bytes, message: Envelope) -> bytes:
        try:
            result, wanted, complaints = screened(bytes(message.result))
            page = msgspec.json.decode(asked.params, type=_Page)
            asked.cursor = msgspec.json.decode(message.result, type=_Listed).nextCursor or ""
        except msgspec.DecodeError:
            return line
        self.wanted = {**self.wanted, **wanted} if page.cursor else wanted
        for complaint in complaints:
            if complaint not in self.complaints:
                self.complaints.append(complaint)
                log.warning("%s", complaint)
        return envelope.answer(b"%d" % asked.number, result) if complaints else line
