"""JSON-RPC: envelopes are decoded and written anew, what they carry stays as it came.

Also the table of requests that wait for a response on one connection.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Any, Generic, TypeVar

import msgspec

from mcp_workbench.transport.json_text import (
    InSteps,
    ScannedText,
    is_utf8,
    mend_surrogates,
    too_deep,
    without_bom,
)

NOTHING = msgspec.Raw(b"")

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
SERVER_ERROR = -32000  # implementation-defined

TOO_DEEP = "nested too deeply"
BATCH = 1000  # messages in one
MOST_BROKEN = 8 << 20  # bytes of a broken message whose id is sought at its end
MOST_SIGNS = 200_000  # quotes and escapes in it
LARGE = 64 << 10  # bytes; of a longer message, a string is not read before its length is known
LONGEST_METHOD = 4096  # bytes
LONGEST_ID = 1 << 16  # bytes
LONGEST_MESSAGE = 1 << 20  # bytes of an error's message; a longer one is relayed, but not read
_N = ord("n")

encode = msgspec.json.encode


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """The outcome of a request: a result or an error."""

    result: msgspec.Raw = NOTHING
    error: msgspec.Raw = NOTHING


class Envelope(Outcome, gc=False, frozen=True):
    """One message: a request, a notification or a response, depending on its members."""

    id: msgspec.Raw = NOTHING
    method: str = ""
    params: msgspec.Raw = NOTHING


class _LargeEnvelope(Outcome, gc=False, frozen=True):
    """The same for a large message: a string takes up to five times its bytes while it is decoded."""

    id: msgspec.Raw = NOTHING
    method: msgspec.Raw = NOTHING
    params: msgspec.Raw = NOTHING


HugeReader = Callable[[bytes], InSteps[Envelope]]


class NumberedResponse(Outcome, gc=False, frozen=True):
    """A message decoded as the response to one of our own requests, whose ids are integers."""

    id: int = 0
    method: str = ""


class ErrorObject(msgspec.Struct, frozen=True):
    """The part of a JSON-RPC error that we read; the error itself is relayed as received."""

    code: int = INTERNAL_ERROR
    message: str = ""
    data: msgspec.Raw = NOTHING


class _LargeError(msgspec.Struct, frozen=True):
    """The same for a large error, as `_LargeEnvelope`."""

    code: msgspec.Raw = NOTHING
    message: msgspec.Raw = NOTHING
    data: msgspec.Raw = NOTHING


class _Message(msgspec.Struct, frozen=True):
    message: str = ""


class Malformed(Exception):
    """Bytes that are not a JSON-RPC message. `id` is the request's, if it could be salvaged, else empty."""

    def __init__(self, code: int, message: str, id: bytes = b"") -> None:
        super().__init__(message)
        self.code = code
        self.id = id


read_response = msgspec.json.Decoder(NumberedResponse).decode
_decode = msgspec.json.Decoder(Envelope).decode
_decode_large = msgspec.json.Decoder(_LargeEnvelope).decode
_read_text = msgspec.json.Decoder(str).decode
_read_error = msgspec.json.Decoder(ErrorObject).decode
_read_short_batch = msgspec.json.Decoder(list[msgspec.Raw]).decode

# Patterns for broken messages are compiled when the first one comes.
# The id is salvaged only where it certainly belongs to the envelope, at its very start or very end,
# and is complete: no other request must be answered or failed by mistake.
_ID = (
    rb'"id"\s*:\s*(-?(?:0|[1-9]\d*)|"(?:[ !#-\[\]-~]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})){0,200}")'
    rb"\s*(?=[,}])"
)
_ID_FIRST = rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID
_ID_LAST = rb',\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID + rb"\}\s*$"
_ESCAPED = rb"(?s)\\."
_STRING = rb'"[^"]*"'  # once escapes have been removed

_TRUNCATED = "Input data was truncated"
_BYTE = r".*\(byte (\d+)\)$"


def decode(line: bytes, *, is_shallow: bool = False) -> Envelope:
    """Decode one message, which must be valid UTF-8. Lone surrogate escapes are repaired.

    `is_shallow`: the caller knows that it is not nested too deeply.
    """
    try:
        message = _decode(line) if len(line) <= LARGE else read_large(line)
    except RecursionError:
        raise too_deep_error(line) from None
    except msgspec.ValidationError as error:
        raise _no_message(line, error) from None
    except msgspec.DecodeError as error:
        mended = _mended(line, str(error))
        if isinstance(line, ScannedText):
            if line.is_too_deep:
                raise too_deep_error(line) from None
            is_shallow = True  # as deep as before
        return decode(mended, is_shallow=is_shallow)
    if not is_shallow and too_deep(line):
        raise too_deep_error(line)
    if not message.method and bool(message.result) == bool(message.error):
        raise _no_purpose(line, message)
    return message


def decode_in_steps(line: bytes, read: HugeReader) -> InSteps[Envelope]:
    """Decode a huge message that is not nested too deeply: each pass over it is a step."""
    while True:
        try:
            message = yield from read(line)
        except RecursionError:
            raise too_deep_error(line) from None
        except msgspec.ValidationError as error:
            raise _no_message(line, error) from None
        except msgspec.DecodeError as error:
            reason = str(error)
        else:
            break
        yield
        line = _mended(line, reason)
        yield
    if not message.method and bool(message.result) == bool(message.error):
        raise _no_purpose(line, message)
    return message


def _no_message(line: bytes, error: msgspec.ValidationError) -> Malformed:
    return Malformed(INVALID_REQUEST, f"not a JSON-RPC message: {error}", salvaged_id(line))


def _no_purpose(line: bytes, message: Envelope) -> Malformed:
    id = bytes(message.id)
    ours = usable_id(id) and (message.result or b'"jsonrpc"' in line)  # else a log line in JSON
    return Malformed(INVALID_REQUEST, "neither a method nor one outcome", id if ours else b"")


def read_large(line: bytes) -> Envelope:
    """Read a large message. Raises a DecodeError."""
    message = _decode_large(line)
    method = read_method(message.method)
    return Envelope(message.result, message.error, message.id, method, message.params)


def read_method(raw: msgspec.Raw) -> str:
    """Return the method of a large message. Raises a DecodeError."""
    if len(raw) > LONGEST_METHOD:
        raise msgspec.ValidationError("the name of its method is too long")
    return _read_text(raw) if raw else ""


def too_deep_error(line: bytes) -> Malformed:
    return Malformed(PARSE_ERROR, TOO_DEEP, salvaged_id(line))


def checked_text(line: bytes) -> bytes:
    """Return a host's line without its byte order mark. Raises Malformed where it is not UTF-8."""
    if not is_utf8(line):
        raise Malformed(PARSE_ERROR, "not UTF-8", salvaged_id(line))
    return without_bom(line)


def decode_text(line: bytes) -> Envelope:
    """Decode one message from a host, whose invalid UTF-8 is refused, not repaired."""
    return decode(line if line.isascii() else checked_text(line))


def _mended(line: bytes, reason: str) -> bytes:
    mended = mend_surrogates(line, _place_of(reason, line))
    if mended is line:
        raise Malformed(PARSE_ERROR, f"not JSON: {reason}", salvaged_id(line))
    return mended


def _place_of(reason: str, line: bytes) -> int | None:
    """Near which byte the line is broken; None where the decoder does not say."""
    if reason == _TRUNCATED:
        return len(line)
    place = re.match(_BYTE, reason)
    return None if place is None else int(place[1])


def salvaged_id(line: bytes) -> bytes:
    """Return the id of a message that can't be decoded, if it certainly is the envelope's; else empty."""
    if match := re.match(_ID_FIRST, line[:4096]):
        return match[1]
    match = re.search(_ID_LAST, line[-4096:])
    return match[1] if match and _is_plain(line) and _closes(line) else b""


def _is_plain(line: bytes) -> bool:
    """Whether it has few enough strings and escapes to be scanned as a whole."""
    return len(line) <= MOST_BROKEN and line.count(b'"') + line.count(b"\\") <= MOST_SIGNS


def _closes(line: bytes) -> bool:
    """Whether the last brace closes the first. Otherwise the line broke off inside the message."""
    bare = re.sub(_STRING, b"", re.sub(_ESCAPED, rb"\\", line))
    return b"\\" not in bare and bare.count(b"{") == bare.count(b"}")


def is_null(raw: msgspec.Raw) -> bool:
    """Whether it is `null`. Nothing else in JSON begins with an n; the value is not copied."""
    return memoryview(raw)[0] == _N


def is_batch(line: bytes) -> bool:
    if len(line) <= LARGE:
        return line.lstrip()[:1] == b"["
    return re.match(rb"\s*\[", line) is not None  # without a copy


def read_batch(line: bytes) -> list[bytes]:
    """Return the messages of a batch, which one legacy revision allows."""
    try:
        if len(line) <= 2 * BATCH:  # too short for more
            return [bytes(member) for member in _read_short_batch(line)]
        batch = _batch_reader()(line)
    except msgspec.ValidationError:
        raise Malformed(INVALID_REQUEST, f"a batch holds from 1 to {BATCH} messages") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise Malformed(PARSE_ERROR, f"not JSON: {error}") from None
    return [bytes(member) for member in msgspec.structs.astuple(batch) if member]


@cache
def _batch_reader() -> Callable[[bytes], msgspec.Struct]:
    """Decodes at most BATCH members: each takes many times its bytes in memory."""
    fields = [(f"member{n}", msgspec.Raw, NOTHING) for n in range(BATCH)]
    batch = msgspec.defstruct("Batch", fields, array_like=True, forbid_unknown_fields=True)
    return msgspec.json.Decoder(batch).decode


def usable_id(raw: bytes) -> bool:
    """Strings and integers are ids; null, fractions, booleans and long texts are not."""
    return len(raw) <= LONGEST_ID and (raw[:1] == b'"' or raw.lstrip(b"-").isdigit())


def read_error(error: msgspec.Raw) -> ErrorObject:
    try:
        return _read_error(error) if len(error) <= LARGE else _read_large_error(error)
    except (msgspec.DecodeError, RecursionError):
        return ErrorObject(message=_message_of(error) or "the server's error has no usable form")


def _read_large_error(error: msgspec.Raw) -> ErrorObject:
    large = msgspec.json.decode(error, type=_LargeError)
    code = msgspec.json.decode(large.code, type=int) if large.code else INTERNAL_ERROR
    if len(large.message) > LONGEST_MESSAGE:
        return ErrorObject(code, "the message of the server's error is too long", large.data)
    return ErrorObject(code, _read_text(large.message) if large.message else "", large.data)


def _message_of(error: msgspec.Raw) -> str:
    """Return the message of an error whose code is a string or a fraction, as some servers send it."""
    if len(error) > LONGEST_MESSAGE:
        return ""
    try:
        return msgspec.json.decode(error, type=_Message).message
    except (msgspec.DecodeError, RecursionError):
        return ""


def answer(id: bytes, result: bytes | msgspec.Raw) -> bytes:
    return b"".join((b'{"jsonrpc":"2.0","id":', id, b',"result":', result, b"}\n"))


def refusal(id: bytes, error: bytes | msgspec.Raw) -> bytes:
    return b"".join((b'{"jsonrpc":"2.0","id":', id or b"null", b',"error":', error, b"}\n"))


_HEAD = len(answer(b"", b"")) - len(b',"result":}\n')


def answers(frame: bytes, id: bytes) -> bool:
    """Whether this frame of ours is the response to that request, not a notification or a request."""
    return frame.startswith(id, _HEAD) and frame.startswith(
        (b',"result":', b',"error":'), _HEAD + len(id)
    )


def is_refusal(frame: bytes, id: bytes) -> bool:
    return frame.startswith(b',"error":', _HEAD + len(id))


def error_object(code: int, message: str, data: Any = None) -> bytes:
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return encode(error)


def start_of(number: int) -> bytes:
    """Return the first bytes of our own request with this number."""
    return b'{"jsonrpc":"2.0","id":%d,' % number


def request(number: int, method: str, params: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":%b}\n' % (
        number,
        method.encode(),
        params,
    )


def question(id: bytes, method: str, params: bytes) -> bytes:
    """A request whose id is not one of our own numbers."""
    return b'{"jsonrpc":"2.0","id":%b,"method":"%b","params":%b}\n' % (id, method.encode(), params)


def notification(method: str, params: bytes | msgspec.Raw = b"") -> bytes:
    if not params:
        return b'{"jsonrpc":"2.0","method":"%b"}\n' % method.encode()
    if len(params) > LARGE:  # copied once, where a format copies it twice
        return b"".join(
            (b'{"jsonrpc":"2.0","method":"', method.encode(), b'","params":', params, b"}\n")
        )
    return b'{"jsonrpc":"2.0","method":"%b","params":%b}\n' % (method.encode(), params)


# Requests that wait for a response

W = TypeVar("W")

NEVER = float("inf")  # a deadline that never passes


class PendingRequests(Generic[W]):
    """Our own requests on one connection: who waits for each response, and until when."""

    __slots__ = ("_before", "_last", "waiting")

    def __init__(self) -> None:
        self._last = self._before = 0
        self.waiting: dict[int, tuple[W, float]] = {}

    @property
    def count(self) -> int:
        return len(self.waiting)

    @property
    def given(self) -> int:
        """How many numbers have been used."""
        return self._last - self._before

    def number_after(self, number: int) -> None:
        """Use numbers above this one: those below are others', who use the same connection."""
        self._last = self._before = number

    def reserve(self) -> int:
        """Return a new number for a request whose response nobody waits for."""
        self._last += 1
        return self._last

    def add(self, waiter: W, deadline: float) -> int:
        """Return a new number for a request whose response `waiter` waits for until `deadline`."""
        self._last = number = self._last + 1
        self.waiting[number] = (waiter, deadline)
        return number

    def find(self, number: int) -> W | None:
        entry = self.waiting.get(number)
        return None if entry is None else entry[0]

    def postpone(self, number: int, deadline: float) -> None:
        """Change the deadline of a request."""
        entry = self.waiting.get(number)
        if entry is not None:
            self.waiting[number] = (entry[0], deadline)

    def oldest(self, wanted: Callable[[W], bool]) -> W | None:
        """Return the waiter that has waited longest, among those for which `wanted` is true."""
        return next((waiter for waiter, _ in self.waiting.values() if wanted(waiter)), None)

    def askers(self) -> set[object]:
        """Return on whose behalf requests are in flight, as far as the waiters have an `asker`."""
        askers: set[object] = {getattr(w, "asker", None) for w, _ in self.waiting.values()}
        return askers - {None}

    def settle(self, number: int) -> W | None:
        """Remove a request and return its waiter, if it has one."""
        entry = self.waiting.pop(number, None)
        return None if entry is None else entry[0]

    def overdue(self, now: float) -> list[tuple[int, W]]:
        """Remove and return the requests whose deadline has passed."""
        late = [number for number, (_, deadline) in self.waiting.items() if deadline <= now]
        return [(number, self.waiting.pop(number)[0]) for number in late]

    def lose(self) -> list[tuple[int, W]]:
        """Remove and return all: the connection is lost."""
        lost = [(number, waiter) for number, (waiter, _) in self.waiting.items()]
        self.waiting.clear()
        return lost
