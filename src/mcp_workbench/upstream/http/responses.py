"""Responses of a server behind a URL: a JSON body, an event stream, or a failure.

`Exchange` reads them and gives their messages to the conversation. From lists of tools it learns which
headers calls have to send.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, TypeVar

import msgspec

from mcp_workbench.core.redact import redact_cut
from mcp_workbench.protocol.handshake import HEADER_MISMATCH, INITIALIZE, STAMPS
from mcp_workbench.transport import json_text, jsonrpc
from mcp_workbench.transport.http.client_response import (
    ClientResponse,
    ExchangeFailed,
    ResponseTimeout,
    ResponseTooLarge,
    Yielder,
)
from mcp_workbench.transport.http.sse import EventReader, EventTooLarge
from mcp_workbench.transport.json_text import InSteps, one_line
from mcp_workbench.transport.jsonrpc import Envelope, Malformed
from mcp_workbench.upstream.conversation import Conversation, Failure, RequestFailed, valid_text
from mcp_workbench.upstream.http.requests import (
    EVENTS,
    LOGIN,
    ErrorContext,
    OutgoingRequest,
    ParamHeaders,
    Requester,
    modern_headers,
    rate_limited,
    retry_after,
)
from mcp_workbench.upstream.http.tool_headers import ANNOTATION, screen_tools
from mcp_workbench.upstream.subscriptions import refuses
from mcp_workbench.upstream.tool_list import PAGES, read_cursor

if TYPE_CHECKING:
    from mcp_workbench.upstream.http.event_streams import Pace

log = logging.getLogger(__name__)

T = TypeVar("T")

CANCELLED = "notifications/cancelled"
CHANGED = jsonrpc.notification("notifications/tools/list_changed")
IDLE = 60.0  # seconds between two chunks of a body
RESUMPTIONS = 100  # of one response; its call has a deadline as well
LINGER = 1.0  # seconds for a stream to end after its response, so that the connection is reused

MOST_NAMES = 1000  # tools whose headers are kept
_NAME = b'"params":{"name":'
_ARGUMENTS = b',"arguments":'

AT_ONCE = 1 << 20  # bytes of a long line that are scanned in one turn
SHOWN = 200  # characters of a page that came instead of a message
REMEDY = '"headers": {"Authorization": "Bearer ${TOKEN}"}'


class Exchange:
    """Reads the responses of one server, and gives their messages to the conversation as lines."""

    def __init__(
        self, requester: Requester, conversation: Conversation, flowing: asyncio.Event, pace: Pace
    ) -> None:
        self.param_headers: dict[str, ParamHeaders] = {}  # that tools ask for
        self._call_headers: dict[bytes, bytes | None] = {}  # by the name of the tool, encoded
        self.complaints: list[str] = []
        self._requester = requester
        self._conversation = conversation
        self._flowing = flowing
        self._pace = pace
        self._last_id = ""  # of the server's own stream
        self._cut = ""  # why the last stream broke off, if it did
        self._streamed = False  # the server's own stream has worked before
        self.session_lost = False  # that stream is refused as if our session were unknown

    async def read(self, request: OutgoingRequest, response: ClientResponse) -> None:
        """Deliver the response to a request. Raises RequestFailed or ExchangeFailed."""
        request.session = response.headers.get("mcp-session-id", "")
        if response.status == 200 and response.content_type == EVENTS:
            await self._read_stream(request, response)
            return
        body = await response.whole(self._requester.error_context.limit, IDLE)
        if not self._flowing.is_set():
            await self._flowing.wait()
        if len(body) > json_text.HUGE:
            await asyncio.sleep(0)  # to join it has taken long, and so does each step that follows
        await self._read_body(request, response, body)
        await self._conversation.all_read()
        if request.answered and self._conversation.pending.find(request.number) is not None:
            raise RequestFailed(
                Failure("protocol_error", "the server's response does not belong to this request")
            )

    def read_now(self, request: OutgoingRequest, response: ClientResponse) -> bool:
        """Deliver a plain result that is complete; False, and nothing done, if it needs `read`."""
        body = response.whole_now()
        if body is None or len(body) > self._requester.error_context.limit:
            return False
        if not self._flowing.is_set():
            return False
        request.answered = self._conversation.receive_result(request.number, one_line(body))
        return request.answered

    # Headers that tools ask for

    def call_headers(self, frame: bytes) -> bytes | None:
        """The headers that repeat the body of a call; None if they have to be read from its arguments."""
        if not self._requester.modern:
            return b""
        start = frame.find(_NAME) + len(_NAME)
        name = frame[start : frame.find(_ARGUMENTS, start)]  # no string contains that
        if name in self._call_headers:
            return self._call_headers[name]
        headers = None
        try:
            if msgspec.json.decode(name, type=str) not in self.param_headers:
                params = msgspec.Raw(b'{"name":%b}' % name)
                headers = modern_headers("tools/call", params, {})
        except msgspec.DecodeError:
            return None
        if len(self._call_headers) < MOST_NAMES:
            self._call_headers[name] = headers
        return headers

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
            response = await self._requester.post(frame, self.headers_for(page), repeatable=True)
            try:
                await self.read(page, response)
            finally:
                response.close()
            if not page.cursor:
                return
            cursor = {"cursor": page.cursor}

    # Bodies

    async def _read_body(
        self, request: OutgoingRequest, response: ClientResponse, body: bytes
    ) -> None:
        own = b"%d" % request.number
        body = json_text.without_bom(body)
        if is_refusal(response):
            raise RequestFailed(failure_for(response, body, self._requester.error_context))
        is_huge = len(body) > json_text.HUGE
        if response.status == 200 and not is_huge and jsonrpc.salvaged_id(body) == own:
            self._settle(request, one_line(body) + b"\n")
            return
        line = one_line(body) if is_huge else one_line(body) + b"\n"
        if jsonrpc.is_batch(line):
            self._conversation.receive(_ended(line))
            request.answered = True
            return
        message = await _read_message(line)
        if isinstance(message, Malformed) or not (message.error or message.result):
            raise RequestFailed(failure_for(response, body, self._requester.error_context))
        if message.result and bytes(message.id) != own:
            raise RequestFailed(
                Failure("protocol_error", "the server answered with another request's id")
            )
        self._settle(request, line, message)

    # Streams

    async def _read_stream(self, request: OutgoingRequest, response: ClientResponse) -> None:
        reader = await self._read_events(request, response, "")
        for _ in range(RESUMPTIONS):
            if request.answered or request.is_listen:
                return
            if self._requester.modern or not reader.last_id:
                break
            reader = await self._resume(request, reader)
        raise ExchangeFailed(
            self._cut or "the server ended its response before it was complete", heard=True
        )

    async def _resume(self, request: OutgoingRequest, reader: EventReader) -> EventReader:
        """Request the rest of a response, from the last event on."""
        await asyncio.sleep(self._pace.resumption(reader.retry, time.monotonic()))
        await self._pace.wait_turn()
        response = await self._requester.get(reader.last_id)
        try:
            if response.status != 200 or response.content_type != EVENTS:
                raise ExchangeFailed(
                    "the server ended its response early and does not resume it", heard=True
                )
            return await self._read_events(request, response, reader.last_id)
        finally:
            response.close()

    async def read_server_stream(self) -> bool:
        """Read the stream for messages outside of a response; should it be reopened?"""
        response = await self._requester.get(self._last_id)
        try:
            # A server that never had this stream may answer 404 in a valid session.
            self.session_lost = (
                response.status == 404 and self._streamed and bool(self._requester.session)
            )
            if response.status >= 500 or response.status == 429 or self.session_lost:
                return True
            if response.status != 200 or response.content_type != EVENTS:
                return False
            self._streamed = True
            reader = await self._read_events(None, response, self._last_id)
        finally:
            response.close()
        self._last_id, self._pace.retry = reader.last_id, reader.retry
        return True

    def reset(self) -> None:
        """A new session: the stream of the old one can't be resumed."""
        self._last_id = ""
        self._streamed = self.session_lost = False

    async def _read_events(
        self, request: OutgoingRequest | None, response: ClientResponse, after: str
    ) -> EventReader:
        """Deliver events until the stream ends or breaks off. Raises ResponseTooLarge."""
        reader = EventReader(self._requester.error_context.limit, after)
        turns = Yielder()
        self._cut = ""
        try:
            while chunk := await response.read(LINGER if request and request.answered else None):
                for event in reader.feed(chunk):
                    await turns.next()
                    if event.name == "message":
                        await self._flowing.wait()
                        line = await _scanned(one_line(event.data))
                        await self._deliver_event(request, line)
                        await self._conversation.all_read()  # little waits behind a huge one
        except EventTooLarge:
            raise ResponseTooLarge("an event of it exceeds the limit", heard=True) from None
        except ResponseTooLarge:
            raise
        except ExchangeFailed as error:
            self._cut = str(error)
        return reader

    async def _deliver_event(self, request: OutgoingRequest | None, line: bytes) -> None:
        message = await _read_message(line)
        number = 0 if request is None or request.answered else request.number
        if isinstance(message, Malformed):
            self._conversation.receive_malformed(line, message, number)
            return
        if request is None or request.answered:
            self._conversation.receive_decoded(message)
            return
        if request.is_listen and message.method == CANCELLED:
            raise ExchangeFailed("the server ended it", heard=True)  # instead of a response
        if message.method or (bytes(message.id) != b"%d" % number and not message.error):
            self._conversation.receive_decoded(message, request.number)
        else:
            self._settle(request, line, message)

    # What the link itself takes from a response

    def _settle(
        self, request: OutgoingRequest, line: bytes, message: Envelope | None = None
    ) -> None:
        if request.is_listen or self._is_header_mismatch(request, message):
            message = message or _envelope(line)
            request.refused = message is not None and bool(message.error) and refuses(message.error)
            return
        request.answered = True
        if request.method in (INITIALIZE, "tools/list") or request.quiet:
            message = message or _envelope(line)
            if message is not None:
                line = self._inspect(request, line, message)
        if request.quiet:
            return
        if message is not None and message.error and bytes(message.id) != b"%d" % request.number:
            line = jsonrpc.refusal(b"%d" % request.number, message.error)
        elif message is not None and isinstance(line, json_text.ScannedText):
            self._conversation.receive_decoded(message)  # to read it again would take long
            return
        self._conversation.receive(_ended(line))

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
            request.cursor = read_cursor(
                msgspec.json.decode(message.result, type=_Listed).nextCursor
            )
        except msgspec.DecodeError:
            return line
        self.param_headers = (
            {**self.param_headers, **param_headers} if page.cursor else param_headers
        )
        self._call_headers.clear()
        for complaint in complaints:
            if complaint not in self.complaints:
                self.complaints.append(complaint)
                log.warning("%s", complaint)
        return jsonrpc.answer(b"%d" % request.number, result) if complaints else line


class _Page(msgspec.Struct, frozen=True):
    cursor: str = ""


class _Listed(msgspec.Struct, frozen=True):
    nextCursor: msgspec.Raw = msgspec.Raw(b"null")  # noqa: N815 - the protocol's name


class _Initialized(msgspec.Struct, frozen=True):
    protocolVersion: str = ""  # noqa: N815 - the protocol's name


async def _scanned(line: bytes) -> bytes:
    """Determine the depth of a long line that has arrived whole; others have their turns meanwhile."""
    if len(line) <= json_text.HUGE:
        return line
    scan = json_text.DepthScan()
    for start in range(0, len(line), AT_ONCE):
        scan.feed(line[start : start + AT_ONCE])
        await asyncio.sleep(0)
    return await _in_turns(json_text.joined_in_steps([line], scan))


async def _read_message(line: bytes) -> Envelope | Malformed:
    """Decode a message, or return what is wrong with it. Each pass over a huge one has its own turn."""
    if len(line) <= json_text.HUGE:
        return _decode(line)
    try:
        return await _in_turns(_decode_in_steps(line))
    except Malformed as error:
        return error.with_traceback(None)  # which would keep the line until collected


def _decode_in_steps(line: bytes) -> InSteps[Envelope]:
    if not line.isascii():
        line = valid_text(line)
        yield
    if json_text.too_deep(line):  # known already, unless it had to be repaired
        raise jsonrpc.too_deep_error(line)
    return (yield from jsonrpc.decode_in_steps(line, _read_large))


def _read_large(line: bytes) -> InSteps[Envelope]:
    return jsonrpc.read_large(line)
    yield  # there is only one step


async def _in_turns(work: InSteps[T]) -> T:
    """Do it; others have their turns after each step."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            await asyncio.sleep(0)
            return end.value
        await asyncio.sleep(0)


def _ended(line: bytes) -> bytes:
    return line if line.endswith(b"\n") else line + b"\n"


def _envelope(line: bytes) -> Envelope | None:
    message = _decode(line)
    return message if isinstance(message, Envelope) else None


def _decode(line: bytes) -> Envelope | Malformed:
    try:
        return jsonrpc.decode(line if line.isascii() else valid_text(line))
    except Malformed as error:
        return error


# Failures


def failure_of(error: ExchangeFailed, context: ErrorContext) -> Failure:
    """The failure for an exchange that broke off."""
    if isinstance(error, ResponseTooLarge):
        return Failure(
            "too_large",
            f"a message of it is too large: {error}; the limit is {context.limit} bytes "
            "(limits.messageBytes)",
        )
    if isinstance(error, ResponseTimeout):
        return Failure("timeout", f"the server is silent: {error}")
    if not error.sent:
        return Failure("connect_failed", str(error), may_have_run=False)
    return Failure("server_exited", str(error))


def is_refusal(response: ClientResponse) -> bool:
    """Does this response come from the HTTP server rather than the MCP server, whatever its body?"""
    return response.status in (*LOGIN, 429) or (
        response.status == 503 and "retry-after" in response.headers
    )


def failure_for(response: ClientResponse, body: bytes, context: ErrorContext) -> Failure:
    """The failure for a response without a message."""
    status = response.status
    if status in LOGIN:
        return Failure("needs_login", _wants_login(response, context), may_have_run=False)
    wait = retry_after(response.headers, time.time())
    if status == 429 or (status == 503 and wait is not None):
        return rate_limited(wait, f"HTTP {status}")
    if status == 202:
        return Failure(
            "protocol_error", "the server accepted the request and sends no response (HTTP 202)"
        )
    kind = response.content_type or "no content type"
    shown = _shown(body, context)
    page = f": {shown}" if shown else ""
    reason = f"the server answered HTTP {status} with {kind} instead of a message{page}"
    return Failure("protocol_error", reason, may_have_run=not 400 <= status < 500)


def _wants_login(response: ClientResponse, context: ErrorContext) -> str:
    if context.has_login:
        return (
            f"needs login: the server refused the credentials of its entry (HTTP {response.status}); "
            "renew what 'headers' sends as Authorization"
        )
    command = f"run `mcp-workbench login {context.address}`"
    if context.principal:
        return _wants_login_of(context.principal, context)
    if context.sign_in_ended:
        return f"needs login: the sign-in has ended ({context.sign_in_ended}); {command}"
    if context.signed_in and "insufficient_scope" in response.headers.get("www-authenticate", ""):
        return f"needs login: the server wants more rights than this sign-in has; {command}"
    if context.signed_in:
        return f"needs login: the server refuses this account (HTTP {response.status}); {command} with another"
    return (
        f"needs login: the server answered HTTP {response.status}; {command}, "
        f"or send a token from a variable with {REMEDY} in its entry"
    )


def _wants_login_of(principal: str, context: ErrorContext) -> str:
    """The same for a principal that signs in for itself; nobody else's sign-in will do."""
    from shlex import quote  # an issuer may put anything into the name

    ended = f" ({context.sign_in_ended})" if context.sign_in_ended else ""
    name = "".join(c if c.isprintable() and c != "`" else "?" for c in principal)
    return (
        f"needs login: {name} is not signed in there{ended}; call it from a host that can show an address "
        "(URL elicitation), or have whoever runs the workbench run "
        f"`mcp-workbench login {context.address} --principal {quote(name)}`"
    )


def _shown(body: bytes, context: ErrorContext) -> str:
    text = redact_cut(body[: 8 * SHOWN].decode("utf-8", "replace"), context.secrets)
    return "".join(c if c.isprintable() else " " for c in " ".join(text.split()))[:SHOWN]
