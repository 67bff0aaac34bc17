"""Reads the HTTP response to one request: a JSON body, an event stream, or neither."""

from __future__ import annotations

import asyncio
import logging
import time

import msgspec

from mcp_workbench.protocol.handshake import INITIALIZE, STAMPS
from mcp_workbench.protocol.revisions import HEADER_MISMATCH
from mcp_workbench.transport import json_text, jsonrpc
from mcp_workbench.transport.http.client_response import (
    ClientResponse,
    ExchangeFailed,
    ResponseTooLarge,
    Yielder,
)
from mcp_workbench.transport.http.sse import EventReader, EventTooLarge
from mcp_workbench.transport.json_text import one_line
from mcp_workbench.transport.jsonrpc import Envelope, Malformed
from mcp_workbench.upstream.conversation import Conversation
from mcp_workbench.upstream.http.errors import failure_for, is_refusal
from mcp_workbench.upstream.http.headers import (
    ANNOTATION,
    ParamHeaders,
    modern_headers,
    screen_tools,
)
from mcp_workbench.upstream.http.requests import Requester
from mcp_workbench.upstream.http.streams import Pace
from mcp_workbench.upstream.responses import Failure, RequestFailed
from mcp_workbench.upstream.subscriptions import refuses
from mcp_workbench.upstream.tools import PAGES

log = logging.getLogger(__name__)

CANCELLED = "notifications/cancelled"
CHANGED = jsonrpc.notification("notifications/tools/list_changed")
EVENTS = "text/event-stream"
IDLE = 60.0  # seconds between two chunks of a body
RESUMPTIONS = 100  # of one response; its call has a deadline as well
LINGER = 1.0  # seconds for a stream to end after its response, so that the connection is reused


class OutgoingRequest:
    """A request in flight."""

    __slots__ = (
        "again",
        "answered",
        "cursor",
        "frame",
        "is_listen",
        "method",
        "number",
        "params",
        "quiet",
        "refused",
        "session",
        "task",
    )

    def __init__(self, number: int, method: str, frame: bytes, params: msgspec.Raw) -> None:
        self.number = number
        self.method = method
        self.frame = frame
        self.params = params
        self.answered = False
        self.refused = False  # by a permanent error
        self.is_listen = False  # a stream that is reopened when it ends
        self.again = False  # this is the second attempt
        self.quiet = False  # its response is for the link, not for the conversation
        self.session = ""  # that its response opened
        self.cursor = ""  # of the next page
        self.task: asyncio.Task[None] | None = None


class _Page(msgspec.Struct):
    cursor: str = ""


class _Listed(msgspec.Struct):
    nextCursor: str | None = None  # noqa: N815 - the protocol's name


class _Initialized(msgspec.Struct):
    protocolVersion: str = ""  # noqa: N815 - the protocol's name


def _decode(line: bytes) -> Envelope | None:
    try:
        return jsonrpc.decode(line)
    except Malformed:
        return None


class Exchange:
    """Reads responses, and gives them to the conversation as lines."""

    def __init__(
        self, requester: Requester, conversation: Conversation, flowing: asyncio.Event, pace: Pace
    ) -> None:
        self.param_headers: dict[str, ParamHeaders] = {}  # that tools ask for
        self.complaints: list[str] = []
        self._requester = requester
        self._conversation = conversation
        self._flowing = flowing
        self._pace = pace
        self._last_id = ""  # of the server's own stream
        self._cut = ""  # why the last stream broke off, if it did
        self._streamed = False  # the server's own stream has worked before
        self.session_lost = False  # that stream is refused as if our session were unknown

    async def read(self, request: OutgoingRequest, answer: ClientResponse) -> None:
        """Deliver the response to a request. Raises RequestFailed or Broken."""
        request.session = answer.headers.get("mcp-session-id", "")
        if answer.status == 200 and answer.content_type == EVENTS:
            await self._read_stream(request, answer)
            return
        body = await answer.whole(self._requester.error_context.limit, IDLE)
        if not self._flowing.is_set():
            await self._flowing.wait()
        self._read_body(request, answer, body)
        if request.answered and self._conversation.pending.find(request.number) is not None:
            raise RequestFailed(
                Failure("protocol_error", "the server's answer is none to this request")
            )

    # Headers that tools ask for

    def headers_for(self, request: OutgoingRequest) -> bytes:
        """The headers that repeat the body of this request."""
        if not self._requester.modern:
            return b""
        try:
            return modern_headers(request.method, request.params, self.param_headers)
        except msgspec.DecodeError:
            return b""  # unreadable params: the server will refuse them

    async def learn_headers(self) -> None:
        """List the tools again, to learn which headers they ask for now."""
        self._conversation.receive(CHANGED)  # the conversation lists them again, too
        cursor: dict[str, str] = {}
        for _ in range(PAGES):
            params = jsonrpc.encode({**cursor, "_meta": STAMPS.request})
            frame = jsonrpc.request(0, "tools/list", params)
            page = OutgoingRequest(0, "tools/list", frame, msgspec.Raw(params))
            page.quiet = True
            answer = await self._requester.post(frame, self.headers_for(page), repeatable=True)
            try:
                await self.read(page, answer)
            finally:
                answer.close()
            if not page.cursor:
                return
            cursor = {"cursor": page.cursor}

    # Bodies

    def _read_body(self, request: OutgoingRequest, answer: ClientResponse, body: bytes) -> None:
        own = b"%d" % request.number
        body = body.removeprefix(json_text.BOM)
        if is_refusal(answer):
            raise RequestFailed(failure_for(answer, body, self._requester.error_context))
        if answer.status == 200 and jsonrpc.salvaged_id(body) == own:
            self._settle(request, one_line(body) + b"\n")
            return
        line = one_line(body) + b"\n"
        if jsonrpc.is_batch(line):
            self._conversation.receive(line)
            request.answered = True
            return
        message = _decode(line)
        if message is None or not (message.error or message.result):
            raise RequestFailed(failure_for(answer, body, self._requester.error_context))
        if message.result and bytes(message.id) != own:
            raise RequestFailed(
                Failure("protocol_error", "the server answered with another request's id")
            )
        self._settle(request, line, message)

    # Streams

    async def _read_stream(self, request: OutgoingRequest, answer: ClientResponse) -> None:
        reader = await self._read_events(request, answer, "")
        for _ in range(RESUMPTIONS):
            if request.answered or request.is_listen:
                return
            if self._requester.modern or not reader.last_id:
                break
            reader = await self._resume(request, reader)
        raise ExchangeFailed(
            self._cut or "the server ended its answer before it was complete", heard=True
        )

    async def _resume(self, request: OutgoingRequest, reader: EventReader) -> EventReader:
        """Request the rest of a response, from the last event on."""
        await asyncio.sleep(self._pace.resumption(reader.retry, time.monotonic()))
        await self._pace.wait_turn()
        answer = await self._requester.get(reader.last_id)
        try:
            if answer.status != 200 or answer.content_type != EVENTS:
                raise ExchangeFailed(
                    "the server ended its answer early and does not go on", heard=True
                )
            return await self._read_events(request, answer, reader.last_id)
        finally:
            answer.close()

    async def read_server_stream(self) -> bool:
        """Read the stream for messages outside of a response; should it be reopened?"""
        answer = await self._requester.get(self._last_id)
        try:
            # A server that never had this stream may answer 404 in a valid session.
            self.session_lost = (
                answer.status == 404 and self._streamed and bool(self._requester.session)
            )
            if answer.status >= 500 or answer.status == 429 or self.session_lost:
                return True
            if answer.status != 200 or answer.content_type != EVENTS:
                return False
            self._streamed = True
            reader = await self._read_events(None, answer, self._last_id)
        finally:
            answer.close()
        self._last_id, self._pace.retry = reader.last_id, reader.retry
        return True

    def reset(self) -> None:
        """A new session: the stream of the old one can't be resumed."""
        self._last_id = ""
        self._streamed = self.session_lost = False

    async def _read_events(
        self, request: OutgoingRequest | None, answer: ClientResponse, after: str
    ) -> EventReader:
        """Deliver events until the stream ends or breaks off. Raises Oversized for one that is too large."""
        reader = EventReader(self._requester.error_context.limit, after)
        turns = Yielder()
        self._cut = ""
        try:
            while chunk := await answer.read(LINGER if request and request.answered else None):
                for event in reader.feed(chunk):
                    await turns.next()
                    if event.name == "message":
                        await self._flowing.wait()
                        self._deliver_event(request, one_line(event.data) + b"\n")
        except EventTooLarge:
            raise ResponseTooLarge("an event of it went past that", heard=True) from None
        except ResponseTooLarge:
            raise
        except ExchangeFailed as error:
            self._cut = str(error)
        return reader

    def _deliver_event(self, request: OutgoingRequest | None, line: bytes) -> None:
        if request is None or request.answered:
            self._conversation.receive(line)
            return
        message = _decode(line)
        if request.is_listen and message is not None and message.method == CANCELLED:
            raise ExchangeFailed("the server ended it", heard=True)  # instead of a response
        own = b"%d" % request.number
        if message is None or message.method or not (message.result or message.error):
            self._conversation.receive_on(request.number, line)
        elif bytes(message.id) == own or message.error:
            self._settle(request, line, message)
        else:
            self._conversation.receive_on(request.number, line)

    # What the link itself takes from a response

    def _settle(
        self, request: OutgoingRequest, line: bytes, message: Envelope | None = None
    ) -> None:
        if request.is_listen or self._is_header_mismatch(request, message):
            message = message or _decode(line)
            request.refused = message is not None and bool(message.error) and refuses(message.error)
            return
        request.answered = True
        if request.method in (INITIALIZE, "tools/list") or request.quiet:
            message = message or _decode(line)
            if message is not None:
                line = self._inspect(request, line, message)
        if request.quiet:
            return
        if message is not None and message.error and bytes(message.id) != b"%d" % request.number:
            line = jsonrpc.refusal(b"%d" % request.number, message.error)
        self._conversation.receive(line)

    def _is_header_mismatch(self, request: OutgoingRequest, message: Envelope | None) -> bool:
        """Did the server refuse the call, unrun, for a header that its tool asks for now?"""
        if message is None or not message.error or request.again or request.method != "tools/call":
            return False
        return self._requester.modern and jsonrpc.read_error(message.error).code == HEADER_MISMATCH

    def _inspect(self, request: OutgoingRequest, line: bytes, message: Envelope) -> bytes:
        request.refused = bool(message.error)
        if message.error:
            return line
        if request.method == INITIALIZE:
            try:
                revision = msgspec.json.decode(message.result, type=_Initialized).protocolVersion
            except msgspec.DecodeError:
                return line
            self._requester.speak(revision, request.session)
        elif self._requester.modern and (self.param_headers or ANNOTATION.encode() in line):
            return self._screen_tools(request, line, message)
        return line

    def _screen_tools(self, request: OutgoingRequest, line: bytes, message: Envelope) -> bytes:
        try:
            result, param_headers, complaints = screen_tools(bytes(message.result))
            page = msgspec.json.decode(request.params, type=_Page)
            request.cursor = msgspec.json.decode(message.result, type=_Listed).nextCursor or ""
        except msgspec.DecodeError:
            return line
        self.param_headers = (
            {**self.param_headers, **param_headers} if page.cursor else param_headers
        )
        for complaint in complaints:
            if complaint not in self.complaints:
                self.complaints.append(complaint)
                log.warning("%s", complaint)
        return jsonrpc.answer(b"%d" % request.number, result) if complaints else line
