"""Conversation: the JSON-RPC exchange with one server over a channel.

Numbers our requests, matches responses to their handlers, passes on notifications. Never waits and
never raises for anything that a server sends. A request whose response does not come has a `Failure`.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import msgspec

from mcp_workbench.core.raw_json import Members
from mcp_workbench.protocol.extensions import OURS
from mcp_workbench.protocol.translation import token_of
from mcp_workbench.transport import json_text, jsonrpc
from mcp_workbench.transport.json_text import HUGE, LineFramer, too_deep
from mcp_workbench.transport.jsonrpc import (
    LARGE,
    NEVER,
    Envelope,
    Malformed,
    Outcome,
    PendingRequests,
)
from mcp_workbench.transport.long_steps import add_long_step
from mcp_workbench.transport.stdio import STEP, Channel, PipeWriter

log = logging.getLogger(__name__)

UNREADABLE = "the server's answer can't be read: "
# Bytes kept of the last line that was no message: a secret is recognized only if it is complete.
KEPT = 1 << 13
LOG_MESSAGE = "notifications/message"
TASK_NOTICES = "notifications/tasks"  # with a result inside, which may be long, too
LONGEST_NOTICE = 1 << 20  # bytes of other notifications, whose members are all short


class Failure(msgspec.Struct, frozen=True):
    """Why a request has no response, and whether its server may have acted on it."""

    code: str
    reason: str
    may_have_run: bool = True
    retry_after: float | None = None  # seconds that the server asks us to wait

    @classmethod
    def of_call(
        cls, code: str, reason: str, *, may_have_run: bool, retry_after: float | None = None
    ) -> "Failure":
        """A failure whose reason also says whether the call ran, and so whether to repeat it."""
        ran = "the call may have run" if may_have_run else "the call did not run"
        return cls(code, f"{reason}; {ran}", may_have_run, retry_after)


class RequestFailed(Exception):
    """A request has no response; `failure` says why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


class ResponseHandler(Protocol):
    """Gets the outcome of one request: either `settled` or `lost` is called, exactly once."""

    def settled(self, answer: Outcome) -> None: ...
    def lost(self, failure: Failure, /) -> None: ...
    def progressed(self, params: msgspec.Raw) -> None: ...

    suspended = False  # waits for its host to answer a question

    @property
    def asker(self) -> object:
        """The host that sent the request, if there is one."""
        return None

    def give_way(self) -> bool:
        """Give up the request if nobody waits for its outcome; was it given up?"""
        return False


class FutureResponse(ResponseHandler):
    """A response that a task awaits."""

    def __init__(self) -> None:
        self.future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def settled(self, answer: Outcome) -> None:
        if not self.future.done():
            self.future.set_result(answer)

    def lost(self, failure: Failure) -> None:
        if not self.future.done():
            self.future.set_exception(RequestFailed(failure))

    def progressed(self, params: msgspec.Raw) -> None:
        """Our own requests ask for no progress."""


class LongRequest(Protocol):
    """A request that stays open, such as `subscriptions/listen`: its response ends it."""

    def ended(self, error: msgspec.Raw | bytes) -> None:
        """The server ended it, with an error or without one."""
        ...

    def interrupted(self) -> None:
        """The link lost it and reopens it."""
        ...


class Waiting(Protocol):
    """Is told when messages of the server begin to wait, and when none does any more."""

    def __call__(self, *, waits: bool) -> None: ...


def _nobody_waits(*, waits: bool) -> None:
    """What arrives can't be paused."""


class _NoChannel:
    """The channel before there is a link."""

    backlog = 0

    def send(self, frame: bytes, about: bytes = b"") -> None:
        """Drop it."""


class Conversation:
    """Requests and responses of one server."""

    def __init__(
        self,
        message_bytes: int,
        on_notification: Callable[[Envelope], None],
        name: object = "a server",
    ) -> None:
        self._name = name
        self._is_drop_logged = False
        self.login_challenge = ""  # WWW-Authenticate of the response that asked for a login
        self.tokens: Mapping[
            str, str
        ] = {}  # of a sign-in: what the server was sent, with their names
        self.channel: Channel = _NoChannel()
        self.capabilities: Members = OURS  # that we declare to the server
        self.pending: PendingRequests[ResponseHandler] = PendingRequests()
        self.failure: Failure | None = None  # what the server sent ends the connection
        self._over: Failure | None = None  # why no request gets a response any more
        self.dropped = 0  # requests that ended without a response
        self.skipped = 0  # lines that were no messages
        self.last_skipped = ""
        self.response_to = 0  # the request on whose response stream a message came; 0: unknown
        self.long_requests: dict[int, LongRequest] = {}
        # Of tasks that run, whose progress and questions come after the response to their call.
        self.task_tokens: dict[int, ResponseHandler] = {}
        self.task_owners: dict[str, ResponseHandler] = {}  # by the server's id
        self.on_session_lost: list[Callable[[], None]] = []
        self.closed_until = 0.0  # the server takes no requests before (Retry-After)
        self.unmatched = 0  # responses to no pending request: late, repeated, or with an unknown id
        self.message_bytes = message_bytes
        self._framer = LineFramer(message_bytes)
        self._late: _LateMessage | None = None
        self._behind: deque[tuple[int, bytes]] | None = None  # lines, if they wait; see below
        self._is_step_due = False
        self._all_read: asyncio.Event | None = None
        self.on_waiting: Waiting = _nobody_waits  # pauses the reader
        self._on_notification = on_notification

    @property
    def answered(self) -> int:
        """How many requests have got a response so far."""
        return self.pending.given - self.pending.count - self.dropped

    @property
    def over(self) -> bool:
        return self._over is not None

    def begin(self, method: str, params: bytes, handler: ResponseHandler) -> int:
        """Send a request of our own, without a deadline."""
        number = self.pending.add(handler, NEVER)
        if self._over is not None:
            self.fail_all(self._over)
        self.channel.send(jsonrpc.request(number, method, params))
        return number

    async def ask(self, method: str, params: bytes, seconds: float) -> Outcome:
        """Send a request and await its response. Raises RequestFailed, or TimeoutError."""
        handler = FutureResponse()
        number = self.begin(method, params, handler)
        try:
            async with asyncio.timeout(seconds):
                return await handler.future
        finally:
            self.pending.settle(number)

    def cancel(self, number: int, reason: str) -> None:
        """Cancel a request, and notify the server. A late response is ignored."""
        if self.pending.settle(number) is not None:
            self.send_cancelled(number, reason)

    def send_cancelled(self, number: int, reason: str) -> bool:
        """Notify the server of a cancelled request. False: the request was still queued, and is dropped."""
        self.dropped += 1
        if self._drop_queued(number):
            return False
        params = jsonrpc.encode({"requestId": number, "reason": reason})
        self.channel.send(jsonrpc.notification("notifications/cancelled", params))
        return True

    def time_out(self, number: int, seconds: float) -> Failure:
        """End a request whose deadline has passed, and return the failure for its handler."""
        reason = f"timed out after {seconds:g} s"
        if self.send_cancelled(number, "timeout"):
            return Failure("timeout", reason)
        queued = f"{reason}, all of them in the queue: the server does not read"
        return Failure.of_call("timeout", queued, may_have_run=False)

    def _drop_queued(self, number: int) -> bool:
        """Drop a request that is still queued. Only pipes have a queue of ours."""
        channel = self.channel
        if not channel.backlog or not isinstance(channel, PipeWriter):
            return False
        return channel.take_back(jsonrpc.start_of(number))

    def fail(self, number: int, failure: Failure) -> None:
        """Fail one request."""
        handler = self.pending.settle(number)
        if handler is not None:
            self.dropped += 1
            handler.lost(failure)

    def fail_all(self, failure: Failure) -> None:
        """The server is gone: fail all pending requests, and those to come."""
        self._over = failure
        for _, handler in self.pending.lose():
            handler.lost(failure)

    def end(self, unsent: tuple[bytes, ...], reason: str) -> None:
        """The server is gone, and never received the requests in `unsent`: fail them and all others."""
        never_left = Failure.of_call("server_exited", reason, may_have_run=False)
        for frame in unsent:
            self.fail(_number(msgspec.Raw(jsonrpc.salvaged_id(frame))), never_left)
        exited = Failure.of_call("server_exited", reason, may_have_run=True)
        self.fail_all(self.failure or exited)
        if self._behind is not None:  # nobody waits for it
            self._read_on()

    def receive(self, data: bytes) -> None:
        """Take bytes from the server. Never raises: on uvloop an exception would close the pipe."""
        self._receive_lines(self._framer.feed(data))
        if self._framer.overflow is not None:
            self._framer.take_overflow()
            while self._behind is not None:
                self._take_step()
            self._message_too_large()

    def receive_result(self, number: int, line: bytes) -> bool:
        """Take the plain result of this request; False, and nothing done, if the line is anything else."""
        if not line.isascii() and not json_text.is_utf8(line):
            return False
        answer = _plain_result(line)
        if answer is None or answer.id != number:
            return False
        entry = self.pending.waiting.pop(number, None)
        if entry is None:
            return False
        try:
            self._deliver(entry[0], answer)
        except Exception:  # a bug of ours costs one message, not the connection
            log.exception("a server's message failed")
        return True

    def receive_decoded(self, message: Envelope, response_to: int = 0) -> None:
        """Take a message that was decoded already. Never raises."""
        self.response_to = response_to
        try:
            self._receive_decoded(message)
        except Exception:  # a bug of ours costs one message, not the connection
            log.exception("a server's message failed")
        finally:
            self.response_to = 0

    def receive_malformed(self, line: bytes, error: Malformed, response_to: int = 0) -> None:
        """Take a line that could not be decoded. Never raises."""
        self.response_to = response_to
        try:
            self._receive_malformed(line, error)
        except Exception:  # a bug of ours costs one message, not the connection
            log.exception("a server's message failed")
        finally:
            self.response_to = 0

    def announce(self, method: str) -> None:
        """Act as if the server had sent this notification, which may have been missed."""
        self._on_notification(Envelope(method=method))

    def interrupted(self, number: int) -> None:
        """The link lost a long request and reopens it."""
        if (request := self.long_requests.get(number)) is not None:
            request.interrupted()

    def session_lost(self) -> None:
        """The server lost our session, and with it levels, subscriptions and open questions."""
        for callback in self.on_session_lost:
            callback()

    def _receive_lines(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            if self._behind is not None:
                self._behind.append((self.response_to, line))
            else:
                self._take_line(line)

    def _take_line(self, line: bytes) -> None:
        try:
            self._receive_line(line)
        except Exception:  # a bug of ours costs one message, not the connection
            log.exception("a server's message failed")

    def _receive_line(self, line: bytes) -> None:
        """Fast path: a plain result for one of our requests is decoded in one step.

        A large message is not tried, because to read it twice takes long.
        """
        answer = _plain_result(line) if len(line) <= LARGE and line.isascii() else None
        entry = None if answer is None else self.pending.waiting.pop(answer.id, None)
        if answer is None or entry is None:
            self._receive_message(line)
        else:
            self._deliver(entry[0], answer)

    def _receive_message(self, line: bytes) -> None:
        if len(line) > HUGE:
            self._late = _LateMessage(line, self.response_to)
            self._wait(deque())
            return
        try:
            message = _decoded(line)
        except Malformed as error:
            self._receive_malformed(line, error)
            return
        self._receive_decoded(message)

    # A huge message takes three steps of the loop: it was joined in the first, is read in the second and
    # delivered in the third. What arrives meanwhile waits behind it, and is taken in steps after it.
    # Nothing more is read from a pipe until then, so that little waits.

    async def all_read(self) -> None:
        """Wait until a huge message that has arrived is delivered, and what has arrived behind it."""
        while self._behind is not None:
            self._all_read = self._all_read or asyncio.Event()
            await self._all_read.wait()

    def _wait(self, behind: deque[tuple[int, bytes]]) -> None:
        self._behind = behind
        self.on_waiting(waits=True)
        if not self._is_step_due:
            self._is_step_due = True
            add_long_step(self._next_step)

    def _next_step(self) -> None:
        self._is_step_due = False
        if self._behind is not None:  # else everything was taken at once, or the server is gone
            self._take_step()

    def _take_step(self) -> None:
        """Go on with a huge message, or with what waits behind it."""
        behind, late = self._behind or deque[tuple[int, bytes]](), self._late
        if late is not None and late.read is None:
            late.read = _read(late.line)
            self._wait(behind)
            return
        self._behind = self._late = None
        try:
            if late is not None:
                self._receive_late(late)
            else:
                self._receive_waiting(behind)
        finally:
            self._wait_on(behind)

    def _receive_late(self, late: "_LateMessage") -> None:
        if isinstance(late.read, Envelope):
            self.receive_decoded(late.read, late.response_to)
        elif late.read is not None:
            try:
                self._receive_malformed(late.line, late.read)
            except Exception:  # a bug of ours costs one message, not the connection
                log.exception("a server's message failed")

    def _receive_waiting(self, behind: deque[tuple[int, bytes]]) -> None:
        """Take what has waited, up to the next huge message, or as much as there is time for."""
        until = time.perf_counter() + STEP
        try:
            while behind and self._behind is None and time.perf_counter() < until:
                self.response_to, line = behind.popleft()
                self._take_line(line)
        finally:
            self.response_to = 0

    def _wait_on(self, behind: deque[tuple[int, bytes]]) -> None:
        if self._behind is not None:  # behind the next huge message
            self._behind.extend(behind)
        elif behind and self._over is None:
            self._wait(behind)
        else:
            self._read_on()

    def _read_on(self) -> None:
        """Nothing waits any more."""
        self._late = self._behind = None
        self.on_waiting(waits=False)
        if self._all_read is not None:
            self._all_read.set()
            self._all_read = None

    def _receive_decoded(self, message: Envelope) -> None:
        if message.method:
            self._receive_notification(message)
        elif handler := self.pending.settle(_number(message.id)):
            self._deliver(handler, message)
        elif request := self.long_requests.pop(_number(message.id), None):
            request.ended(message.error)
        else:
            self.unmatched += 1

    def _deliver(self, handler: ResponseHandler, answer: Outcome) -> None:
        try:
            handler.settled(answer)
        except Exception:
            handler.lost(Failure("internal", "the workbench failed to deliver the response"))
            raise

    def _receive_notification(self, message: Envelope) -> None:
        if (
            len(message.params) > LONGEST_NOTICE
            and not message.id
            and message.method not in (LOG_MESSAGE, TASK_NOTICES)
        ):
            self.drop_notice(message.method)
        elif message.method == "notifications/progress" and message.params:
            try:
                token = token_of(message.params)
                handler = self.pending.find(token) or self.task_tokens.get(token)
            except (msgspec.DecodeError, RecursionError):
                return
            if handler is not None:
                handler.progressed(message.params)
        elif message.method == "notifications/cancelled" and self._long_request_ended(
            message.params
        ):
            return
        else:
            self._on_notification(message)

    def drop_notice(self, method: str) -> None:
        """Ignore a notification that is longer than anybody would write."""
        if not self._is_drop_logged:
            self._is_drop_logged = True  # logged once: a server that does so does it often
            log.warning("%s: a notification is too long, and is dropped: %s", self._name, method)

    def _long_request_ended(self, params: msgspec.Raw) -> bool:
        """Servers end a long request with its response, or by cancelling it."""
        try:
            number = msgspec.json.decode(params or b"{}", type=_Cancelled).requestId
        except msgspec.DecodeError:
            return False
        request = self.long_requests.pop(number, None)
        if request is not None:
            request.ended(b"")
        return request is not None

    def _receive_malformed(self, line: bytes, error: Malformed) -> None:
        if jsonrpc.is_batch(line):
            self._receive_batch(line)
            return
        handler = self.pending.settle(_number(msgspec.Raw(error.id))) if error.id else None
        if handler is not None:
            handler.lost(Failure("protocol_error", UNREADABLE + str(error)))
            return
        self._skip(line)

    def _skip(self, line: bytes) -> None:
        self.skipped += 1
        self.last_skipped = line.removeprefix(json_text.BOM)[:KEPT].decode("utf-8", "replace")

    def _receive_batch(self, line: bytes) -> None:
        try:
            members = jsonrpc.read_batch(line)
        except Malformed:
            self._skip(line)
            return
        self._receive_lines(member for member in members if not jsonrpc.is_batch(member))

    def _message_too_large(self) -> None:
        """End the connection: whose response it is may be unknown, so that all requests fail with it."""
        reason = f"a message of it is larger than {self.message_bytes} bytes (limits.messageBytes)"
        self.failure = failure = Failure("too_large", reason)
        # The connection closes before anybody hears of it: the next call needs another one.
        self._on_notification(Envelope())
        self.fail_all(failure)


class _LateMessage(msgspec.Struct):
    """A huge message that is delivered in a later step."""

    line: bytes
    response_to: int
    read: Envelope | Malformed | None = None


class _Cancelled(msgspec.Struct, frozen=True):
    requestId: int = 0  # noqa: N815 - the protocol's name


def _plain_result(line: bytes) -> jsonrpc.NumberedResponse | None:
    """The line as a plain result of one of our requests, decoded in one step; None if it is not one."""
    try:
        answer = jsonrpc.read_response(line)
    except (msgspec.DecodeError, RecursionError):
        return None
    plain = answer.result and not answer.error and not answer.method
    return answer if plain and not too_deep(line) else None


def _read(line: bytes) -> Envelope | Malformed:
    try:
        return _decoded(line)
    except Malformed as error:
        return error.with_traceback(None)  # which would keep the line until it is collected


def _decoded(line: bytes) -> Envelope:
    return jsonrpc.decode(line if line.isascii() else valid_text(line))


def valid_text(line: bytes) -> bytes:
    """Return a server's line as valid UTF-8, without its byte order mark."""
    if not json_text.is_utf8(line):
        line = json_text.mend_text(line)
    return json_text.without_bom(line)


def _number(id: msgspec.Raw) -> int:
    """Our number in a response's id; 0 for other ids, the number as a string among them."""
    raw = bytes(id)
    return int(raw) if raw.isdigit() and len(raw) < 19 else 0
