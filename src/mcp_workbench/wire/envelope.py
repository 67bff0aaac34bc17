"""JSON-RPC envelopes: the outside of a message is read and written anew, the inside stays as it came."""

import codecs
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec

from mcp_workbench.wire.depth import too_deep

NOTHING = msgspec.Raw(b"")
BOM = b"\xef\xbb\xbf"

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
SERVER_ERROR = -32000  # ours to give a meaning

TOO_DEEP = "nested too deeply"
BATCH = 1000  # messages in one
MOST_HALVES = (
    50_000  # escapes of half a character, whole pairs included, among which lone ones are sought
)
MOST_BROKEN = 8 << 20  # bytes of a broken message that is looked at from its end
MOST_SIGNS = 200_000  # quotes and escapes in it
MOST_BAD = 8000  # bytes of a piece that are no text
LARGE = 64 << 10  # bytes; of a longer message, a text is not read before its length is known
LONGEST_METHOD = 4096  # bytes
MOST_BACKSLASHES = 4096  # before an escape, to be counted
_QUESTION_MARKS = bytes(range(128)) + b"?" * 128
_PIECE = 64 << 10  # bytes of a long text that are decoded at a time
_N = ord("n")

encode = msgspec.json.encode


class Outcome(msgspec.Struct, gc=False):
    """What became of a request: one of the two."""

    result: msgspec.Raw = NOTHING
    error: msgspec.Raw = NOTHING


class Envelope(Outcome, gc=False):
    """One message: a request, a notification or an answer, by which members it has."""

    id: msgspec.Raw = NOTHING
    method: str = ""
    params: msgspec.Raw = NOTHING


class _LargeEnvelope(Outcome, gc=False):
    """The same of a large message: a text takes up to five times its bytes while it is read."""

    id: msgspec.Raw = NOTHING
    method: msgspec.Raw = NOTHING
    params: msgspec.Raw = NOTHING


class Answer(Outcome, gc=False):
    """The same, read as the answer to a request under a number of ours."""

    id: int = 0
    method: str = ""


class ErrorObject(msgspec.Struct):
    """The part of a JSON-RPC error that we read; the whole of it travels as received."""

    code: int = INTERNAL_ERROR
    message: str = ""
    data: msgspec.Raw = NOTHING


class _Told(msgspec.Struct):
    message: str = ""


class Malformed(Exception):
    """Bytes that are no message of ours. `id` is what could be saved of it, else empty."""

    def __init__(self, code: int, message: str, id: bytes = b"") -> None:
        super().__init__(message)
        self.code = code
        self.id = id


read_answer = msgspec.json.Decoder(Answer).decode
_decode = msgspec.json.Decoder(Envelope).decode
_decode_large = msgspec.json.Decoder(_LargeEnvelope).decode
_read_text = msgspec.json.Decoder(str).decode
_read_error = msgspec.json.Decoder(ErrorObject).decode
_read_short_batch = msgspec.json.Decoder(list[msgspec.Raw]).decode

# The id is salvaged only where it surely belongs to the envelope, at its very start or its very end,
# and surely is whole: nothing is answered or failed in the name of another request.
_ID = (
    rb'"id"\s*:\s*(-?(?:0|[1-9]\d*)|"(?:[ !#-\[\]-~]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})){0,200}")'
    rb"\s*(?=[,}])"
)
_ID_FIRST = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID)
_ID_LAST = re.compile(rb',\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID + rb"\}\s*$")
_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_STRING = re.compile(rb'"[^"]*"')  # where escapes have no sign any more

_NEAR = 32  # bytes between half a character and where the codec stumbles over it, or fewer
_TRUNCATED = "Input data was truncated"
_BYTE = re.compile(r".*\(byte (\d+)\)$").match
_ESCAPE = len(rb"\ud800")
_HIGH = re.compile(rb"\\u[dD][89abAB]").match
_HALF = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(\\u[dD][c-fC-F][0-9a-fA-F]{2})?|[c-fC-F][0-9a-fA-F]{2})"
).match


def decode(line: bytes) -> Envelope:
    """Read one message, which must be valid UTF-8. Lone surrogate escapes are mended."""
    try:
        message = _decode(line) if len(line) <= LARGE else _read_large(line)
    except RecursionError:
        raise _too_deep(line) from None
    except msgspec.ValidationError as error:
        raise Malformed(
            INVALID_REQUEST, f"not a JSON-RPC message: {error}", salvaged_id(line)
        ) from None
    except msgspec.DecodeError as error:
        return _decode_mended(line, error)
    if too_deep(line):
        raise _too_deep(line)
    if not message.method and bool(message.result) == bool(message.error):
        id = bytes(message.id)
        ours = usable_id(id) and (message.result or b'"jsonrpc"' in line)  # else a log line in JSON
        raise Malformed(INVALID_REQUEST, "neither a method nor one outcome", id if ours else b"")
    return message


def _read_large(line: bytes) -> Envelope:
    message = _decode_large(line)
    if len(message.method) > LONGEST_METHOD:
        raise msgspec.ValidationError("the name of its method is too long")
    method = _read_text(message.method) if message.method else ""
    return Envelope(message.result, message.error, message.id, method, message.params)


def _too_deep(line: bytes) -> Malformed:
    return Malformed(PARSE_ERROR, TOO_DEEP, salvaged_id(line))


def checked_text(line: bytes) -> bytes:
    """A line of a host, whose UTF-8 is not mended but refused. A mark at its start is fine."""
    if not is_utf8(line):
        raise Malformed(PARSE_ERROR, "not UTF-8", salvaged_id(line))
    return line.removeprefix(BOM)


def decode_text(line: bytes) -> Envelope:
    """Read one message of a host."""
    return decode(line if line.isascii() else checked_text(line))


def one_line(json: bytes) -> bytes:
    """Valid JSON without line breaks. They stand only between its tokens, and would end a frame."""
    if has(json, b"\n") or has(json, b"\r"):
        return json.replace(b"\r", b" ").replace(b"\n", b" ")
    return json


def has(data: bytes, sign: bytes) -> bool:
    """`sign in data`, which first makes an exception, of something that is not a number."""
    return data.find(sign) >= 0


def _decode_mended(line: bytes, error: msgspec.DecodeError) -> Envelope:
    mended = mend_surrogates(line, _place_of(error, line))
    if mended is line:
        raise Malformed(PARSE_ERROR, f"not JSON: {error}", salvaged_id(line))
    return decode(mended)


def _place_of(error: msgspec.DecodeError, line: bytes) -> int | None:
    """Near which byte the line is broken; None where the codec does not say it."""
    reason = str(error)
    if reason == _TRUNCATED:
        return len(line)
    place = _BYTE(reason)
    return None if place is None else int(place[1])


def mend_surrogates(line: bytes, broken_at: int | None = None) -> bytes:
    """Replace escapes of half a character, as JavaScript writes them after cutting an emoji.

    A line that is broken at a place without such an escape stays as it is; so does one with very
    many of them, or with an escape after thousands of backslashes: nobody writes either.
    """
    start = 0 if broken_at is None else _first_half(line, broken_at)
    if start < 0:
        return line
    alike = line[start:].lower()  # the search for one spelling is quicker than anything else
    parts: list[bytes] = []
    done = end = 0  # up to where the line was copied, and where the last such escape ended
    for _ in range(MOST_HALVES):
        at = alike.find(b"\\ud", max(end - start, 0)) + start
        if at < start:
            return b"".join((*parts, line[done:])) if parts else line
        backslashes = _backslashes(line[max(end, at - MOST_BACKSLASHES) : at])
        if backslashes == MOST_BACKSLASHES:
            return line
        half = None if backslashes % 2 else _HALF(line, at)
        end = half.end() if half else at + 3
        if half and half[1] is None:
            parts += (line[done:at], rb"\ufffd")
            done = end
    return line


def _first_half(line: bytes, broken_at: int) -> int:
    """Where the first half of a character is that the line can be broken at; -1 where there is none."""
    start = max(broken_at - _NEAR, 0)  # what stands before that is in order
    at = line[start : broken_at + _NEAR].lower().find(b"\\ud")
    if at < 0:
        return -1
    at += start
    return at - _ESCAPE if at >= _ESCAPE and _HIGH(line, at - _ESCAPE) else at


def _backslashes(before: bytes) -> int:
    """How many it ends with. If odd, one that follows belongs to the last: so in `\\\\ud83d`."""
    return len(before) - len(before.rstrip(b"\\"))


def is_utf8(line: bytes) -> bool:
    """A long one in pieces: as one text it may take five times as much memory."""
    try:
        if len(line) <= _PIECE:
            line.decode()
            return True
        read = codecs.getincrementaldecoder("utf-8")().decode
        for start in range(0, len(line), _PIECE):
            read(line[start : start + _PIECE], start + _PIECE >= len(line))
    except UnicodeDecodeError:
        return False
    return True


def mend_text(line: bytes) -> bytes:
    """Make invalid UTF-8 valid, with U+FFFD in the place of bad bytes.

    What follows on a piece with very many of them is no text: all that is not ASCII becomes `?`.
    """
    parts: list[bytes] = []
    at = 0
    while at < len(line):
        end = at + _PIECE
        piece = line[at:end]
        if not piece.isascii():
            piece, bad, read = _mended(piece, is_last=end >= len(line))
            end = at + read
            if bad > MOST_BAD:
                parts += (piece, line[end:].translate(_QUESTION_MARKS))
                break
        parts.append(piece)
        at = end
    return b"".join(parts)


def _mended(piece: bytes, *, is_last: bool) -> tuple[bytes, int, int]:
    """It as valid text, how many bytes were bad, and how far that is; the rest is cut off in a letter."""
    try:
        read = codecs.utf_8_decode(piece, "strict", is_last)[1]
    except UnicodeDecodeError:
        text, read = codecs.utf_8_decode(piece, "replace", is_last)
        return text.encode(), text.count("\ufffd"), read
    return piece[:read], 0, read


def salvaged_id(line: bytes) -> bytes:
    """The id of a message that can't be read, where it surely is the envelope's; else empty."""
    if found := _ID_FIRST.match(line[:4096]):
        return found[1]
    found = _ID_LAST.search(line[-4096:])
    return found[1] if found and _is_plain(line) and _closes(line) else b""


def _is_plain(line: bytes) -> bool:
    """Has it few enough strings and escapes to be looked at as a whole?"""
    return len(line) <= MOST_BROKEN and line.count(b'"') + line.count(b"\\") <= MOST_SIGNS


def _closes(line: bytes) -> bool:
    """Does the last brace close the first? Else what it closes is a part of a line that broke off."""
    bare = _STRING.sub(b"", _ESCAPED.sub(rb"\\", line))
    return b"\\" not in bare and bare.count(b"{") == bare.count(b"}")


def is_null(raw: msgspec.Raw) -> bool:
    """Nothing else in JSON begins with an n; the value itself is not copied."""
    return memoryview(raw)[0] == _N


def is_batch(line: bytes) -> bool:
    return line.lstrip()[:1] == b"["


def read_batch(line: bytes) -> list[bytes]:
    """The members of a batch, which one legacy revision allows."""
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
    """Reads so many members and not one more: each would cost many times the bytes that it has."""
    fields = [(f"member{n}", msgspec.Raw, NOTHING) for n in range(BATCH)]
    batch = msgspec.defstruct("Batch", fields, array_like=True, forbid_unknown_fields=True)
    return msgspec.json.Decoder(batch).decode


def usable_id(raw: bytes) -> bool:
    """Strings and integers are ids; null, fractions, booleans and the rest are not."""
    return raw[:1] == b'"' or raw.lstrip(b"-").isdigit()


def read_error(error: msgspec.Raw) -> ErrorObject:
    try:
        return _read_error(error)
    except (msgspec.DecodeError, RecursionError):
        return ErrorObject(message=_words_of(error) or "the server's error has no usable form")


def _words_of(error: msgspec.Raw) -> str:
    """The message of an error whose code is none: a text or a fraction, as some servers have it."""
    try:
        return msgspec.json.decode(error, type=_Told).message
    except (msgspec.DecodeError, RecursionError):
        return ""


def answer(id: bytes, result: bytes | msgspec.Raw) -> bytes:
    return b"".join((b'{"jsonrpc":"2.0","id":', id, b',"result":', result, b"}\n"))


def refusal(id: bytes, error: bytes | msgspec.Raw) -> bytes:
    return b"".join((b'{"jsonrpc":"2.0","id":', id or b"null", b',"error":', error, b"}\n"))


_HEAD = len(answer(b"", b"")) - len(b',"result":}\n')


def answers(frame: bytes, id: bytes) -> bool:
    """Is this frame of ours the answer to that request, not a notice or a question?"""
    return frame.startswith(id, _HEAD) and frame.startswith(
        (b',"result":', b',"error":'), _HEAD + len(id)
    )


def is_refusal(frame: bytes, id: bytes) -> bool:
    return frame.startswith(b',"error":', _HEAD + len(id))


def error_object(code: int, message: str, data: Any = None) -> bytes:
    whole: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        whole["data"] = data
    return encode(whole)


def start_of(number: int) -> bytes:
    """How a request with this number of ours starts."""
    return b'{"jsonrpc":"2.0","id":%d,' % number


def request(number: int, method: str, params: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":%b}\n' % (
        number,
        method.encode(),
        params,
    )


def question(id: bytes, method: str, params: bytes) -> bytes:
    """A request under an id that is not a number of ours."""
    return b'{"jsonrpc":"2.0","id":%b,"method":"%b","params":%b}\n' % (id, method.encode(), params)


def notification(method: str, params: bytes = b"") -> bytes:
    if not params:
        return b'{"jsonrpc":"2.0","method":"%b"}\n' % method.encode()
    return b'{"jsonrpc":"2.0","method":"%b","params":%b}\n' % (method.encode(), params)
