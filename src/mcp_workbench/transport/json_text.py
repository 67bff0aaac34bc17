"""JSON as bytes: split into lines, checked and repaired as text, limited in nesting depth.

Everything here is linear in time and bounded in memory, whatever a peer sends.
"""

from __future__ import annotations

import codecs
import re
import sys
from collections.abc import Callable, Generator, Sequence
from itertools import accumulate
from typing import Any, TypeVar

from mcp_workbench.core.raw_json import read_any

BOM = b"\xef\xbb\xbf"
DEPTH = 1000  # levels of a whole message, of which its envelope is the first
SHALLOW = 2 * DEPTH  # bytes in which no text can be nested deeper
HUGE = 4 << 20  # bytes; the depth of a longer text is determined while it arrives

if sys.version_info < (3, 12):  # there, the decoder's levels and our own frames share one limit
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 2 * DEPTH))

_PIECE = 64 << 10  # bytes of a long text that are processed at a time

T = TypeVar("T")
Pieces = list[bytes | bytearray]  # of a text, as received
InSteps = Generator[None, None, T]  # work in several steps; others have their turn at each `yield`


# Lines

SMALL = 512  # bytes; smaller chunks share a buffer, or a server that drips would cost twenty times
HEAD = 4096  # bytes kept of a line that is too long: enough to find out what it was


class LineFramer:
    """Splits a stream into lines. Chunks of an unfinished line are kept apart and joined once."""

    __slots__ = ("_held", "_limit", "_scan", "_size", "_skipping", "overflow")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: Pieces = []
        self._scan: DepthScan | None = None  # of an unfinished line that is long
        self._size = 0
        self._skipping = False  # inside a line that is too long
        self.overflow: bytes | None = None  # the start of a line that was too long

    def feed(self, data: bytes) -> Sequence[bytes]:
        """Return the lines that `data` completes, without line ends and without blank lines.

        A carriage return becomes a space: in JSON it stands only between tokens, and some readers
        would take it for the end of a line.
        """
        if (
            self._size or self._skipping or len(data) > self._limit or data.find(b"\r") >= 0
        ):  # `find`, as in `has`
            return self._feed_carefully(data)
        line, end, rest = data.partition(b"\n")
        if end and not rest:  # one whole line, or a blank one
            return () if not line or line.isspace() else (line,)
        lines = data.split(b"\n")
        self._hold(lines.pop())
        return [line for line in lines if line and not line.isspace()]

    def _feed_carefully(self, data: bytes) -> Sequence[bytes]:
        *whole, rest = data.replace(b"\r", b" ").split(b"\n")
        lines: list[bytes] = []
        for part in whole:
            self._hold(part)
            line = self._finished()
            if line and not line.isspace():
                lines.append(line)
        self._hold(rest)
        return lines

    def take_overflow(self) -> bytes | None:
        """Return the start of a line that exceeded the limit since the last call, if one did."""
        head, self.overflow = self.overflow, None
        return head

    def _hold(self, chunk: bytes) -> None:
        if self._skipping or not chunk:
            return
        self._keep(chunk)
        self._size += len(chunk)
        if self._size > self._limit:
            self.overflow = b"".join(part[:HEAD] for part in self._held[:HEAD])[:HEAD]
            self._held.clear()
            self._scan = None
            self._size = 0
            self._skipping = True
        elif self._size > HUGE:
            self._scan = scanned(self._scan, self._held, chunk)

    def _keep(self, chunk: bytes) -> None:
        held = self._held
        if not held or len(chunk) >= SMALL:
            held.append(chunk)
        elif isinstance(last := held[-1], bytearray):
            last += chunk
        else:
            held.append(bytearray(chunk))

    def _finished(self) -> bytes:
        line = joined(self._held, self._scan)
        self._scan = None
        self._size = 0
        self._skipping = False
        return line


class HugeLine:
    """A line above 4 MiB that has arrived and is not joined yet, and the bytes that came behind it."""

    __slots__ = ("_pieces", "_scan", "behind")

    def __init__(self, pieces: Pieces, scan: DepthScan, behind: bytes) -> None:
        self._pieces = pieces
        self._scan = scan
        self.behind = behind

    def joined(self) -> InSteps[bytes]:
        return joined_in_steps(self._pieces, self._scan)


class SteppedFramer(LineFramer):
    """Does not join a huge line, but calls `on_huge` with it and what is behind it, which is not split yet."""

    __slots__ = ("_on_huge",)

    def __init__(self, limit: int, on_huge: Callable[[HugeLine], None]) -> None:
        super().__init__(limit)
        self._on_huge = on_huge

    def _feed_carefully(self, data: bytes) -> Sequence[bytes]:
        end = data.find(b"\n")
        if end >= 0 and self._size + end > HUGE and not self._skipping:
            self._hold(data[:end].replace(b"\r", b" "))
            if self._scan is not None:  # else it was too long
                huge = HugeLine(self._held, self._scan, data[end + 1 :])
                self._held, self._scan, self._size = [], None, 0
                self._on_huge(huge)
                return ()
            data = data[end:]
        return super()._feed_carefully(data)


def one_line(json: bytes) -> bytes:
    """Return valid JSON without line breaks: they stand only between tokens, and would end a frame."""
    if has(json, b"\n") or has(json, b"\r"):
        line = json.replace(b"\r", b" ").replace(b"\n", b" ")
        return json.with_same_depth(line) if isinstance(json, ScannedText) else line
    return json


def has(data: bytes, sign: bytes) -> bool:
    """`sign in data`, which is slower: it first raises and drops an exception internally."""
    return data.find(sign) >= 0


# UTF-8

MOST_BAD = 8000  # invalid bytes of a piece
_QUESTION_MARKS = bytes(range(128)) + b"?" * 128


def is_utf8(line: bytes) -> bool:
    """Whether the line is UTF-8. A long one is read in pieces: a string may take five times as much."""
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


def without_bom(line: bytes) -> bytes:
    return line[len(BOM) :] if line.startswith(BOM) else line  # else as it is, not copied


def mend_text(line: bytes) -> bytes:
    """Make invalid UTF-8 valid, with U+FFFD in the place of bad bytes.

    A piece with very many of them is not text: in all that follows, non-ASCII bytes become `?`.
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
    """Return valid text, the number of bad bytes, and how far it was read: up to a cut character."""
    try:
        read = codecs.utf_8_decode(piece, "strict", is_last)[1]
    except UnicodeDecodeError:
        text, read = codecs.utf_8_decode(piece, "replace", is_last)
        return text.encode(), text.count("\ufffd"), read
    return piece[:read], 0, read


# Surrogates

MOST_HALVES = 50_000  # surrogate escapes, whole pairs included, among which lone ones are sought
MOST_BACKSLASHES = 4096  # before an escape, to be counted
_NEAR = 32  # bytes at most between a lone surrogate and where the decoder reports the error
_ESCAPE = len(rb"\ud800")
_NOWHERE = sys.maxsize
_HIGH = re.compile(rb"\\u[dD][89abAB]").match
_HALF = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(\\u[dD][c-fC-F][0-9a-fA-F]{2})?|[c-fC-F][0-9a-fA-F]{2})"
).match


def mend_surrogates(line: bytes, broken_at: int | None = None) -> bytes:
    """Replace escapes of lone surrogates, as JavaScript writes them after cutting an emoji in two.

    A line that is broken at a place without such an escape stays as it is; so does one with very
    many of them, or with an escape after thousands of backslashes: nobody writes either.
    """
    start = 0 if broken_at is None else _first_half(line, broken_at)
    if start < 0:
        return line
    view = memoryview(line)  # its slices are not copied; a short one takes more than a copy
    parts: list[bytes | memoryview] = []
    done = end = 0  # up to where the line was copied, and where the last such escape ended
    spellings = {b"\\ud": start - 1, b"\\uD": start - 1}  # and where each occurs next
    for _ in range(MOST_HALVES):
        at = _next_of(line, spellings, max(end, start))
        if at < 0:
            return b"".join((*parts, view[done:])) if parts else line
        backslashes = _backslashes(line[max(end, at - MOST_BACKSLASHES) : at])
        if backslashes == MOST_BACKSLASHES:
            return line
        half = None if backslashes % 2 else _HALF(line, at)
        end = half.end() if half else at + 3
        if half and half[1] is None:
            parts += ((view if at - done > HEAD else line)[done:at], rb"\ufffd")
            done = end
    return line


def _next_of(line: bytes, spellings: dict[bytes, int], start: int) -> int:
    """Return where one of these occurs next; -1 if none does. Each part of the line is searched once."""
    for text, at in spellings.items():
        if at < start and at != _NOWHERE:
            found = line.find(text, start)
            spellings[text] = found if found >= 0 else _NOWHERE
    nearest = min(spellings.values())
    return -1 if nearest == _NOWHERE else nearest


def _first_half(line: bytes, broken_at: int) -> int:
    """Return where the first surrogate is that may have broken the line; -1 where there is none."""
    start = max(broken_at - _NEAR, 0)  # everything before that is valid
    at = line[start : broken_at + _NEAR].lower().find(b"\\ud")
    if at < 0:
        return -1
    at += start
    return at - _ESCAPE if at >= _ESCAPE and _HIGH(line, at - _ESCAPE) else at


def _backslashes(before: bytes) -> int:
    """Count the trailing ones. If odd, the next belongs to the last of them: so in `\\\\ud83d`."""
    return len(before) - len(before.rstrip(b"\\"))


# Depth

# Where a message would need more than these, its depth is not determined: it counts as too deep.
MOST_QUOTES = 4_000_000  # of strings that have brackets inside or between them
MOST_ESCAPED = 2_000_000  # quotes inside short strings
MOST_NEAR = 400_000  # brackets near the limit, each of which is looked at
MOST_BRACKETS = 10_000_000  # in all: two of a list or an object, each of which takes time to read

_BLOCK = 256  # brackets that are looked at one by one once the limit is that near
_OPENING, _CLOSING = b"[", b"]"
_SAME = bytes.maketrans(b"{}", _OPENING + _CLOSING)  # only the depth matters, not the kind
_STEPS = bytes.maketrans(
    _OPENING + _CLOSING, b"\x01\xff"
)  # one down, one up: 255 is -1 when signed
_OTHERS = bytes(set(range(256)) - set(b'[{]}"'))
_SPACE = b" "
_TWO = (
    2 * _SPACE
)  # in the place of two characters: to replace in place is twice as fast as to remove


class ScannedText(bytes):
    """A text whose depth was determined while it arrived."""

    is_too_deep = False

    def with_same_depth(self, text: bytes) -> ScannedText:
        """Return a text that has the same brackets as this one."""
        same = ScannedText(text)
        same.is_too_deep = self.is_too_deep
        return same


def scanned(scan: DepthScan | None, pieces: Pieces, last: bytes) -> DepthScan:
    """Scan the last piece of a text that arrives; the first time, all of its pieces.

    What is left to do once the text is complete is then done in less time.
    """
    if scan is not None:
        scan.feed(last)
        return scan
    scan = DepthScan()
    for piece in pieces:
        scan.feed(bytes(piece))
    return scan


def joined(pieces: Pieces, scan: DepthScan | None) -> bytes:
    """Return the text, and empty the list. One short piece alone is not copied."""
    text = b"".join(pieces)
    pieces.clear()
    if scan is None:
        return text
    # A lone surrogate would be found by a whole reading of the text that then fails.
    text = ScannedText(mend_surrogates(text) if scan.has_half else text)
    text.is_too_deep = scan.is_too_deep
    return text


def joined_in_steps(pieces: Pieces, scan: DepthScan) -> InSteps[ScannedText]:
    """The same for a huge text."""
    text = b"".join(pieces)
    pieces.clear()
    if scan.has_half:
        yield
        text = mend_surrogates(text)
    whole = ScannedText(text)
    whole.is_too_deep = scan.is_too_deep
    return whole


def finished(work: InSteps[T]) -> T:
    """Do all of it now."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value


def read_json(text: bytes | str) -> Any:
    """Decode this text. Raises RecursionError where it is nested too deeply."""
    value = read_any(text)
    if too_deep(text.encode() if isinstance(text, str) else text):
        raise RecursionError
    return value


def too_deep(json: bytes) -> bool:
    """Whether this valid JSON is nested more than DEPTH levels, the same on every Python version.

    A text with very many lists and objects counts as such. Short or simple texts are not looked into.
    """
    if len(json) <= SHALLOW:
        return False
    if isinstance(json, ScannedText):
        return json.is_too_deep
    if not _opens_often(json):
        return False
    scan = DepthScan()
    scan.feed(json)
    return scan.is_too_deep


def _opens_often(json: bytes) -> bool:
    """Whether it has more opening brackets than levels are allowed."""
    if len(json) <= _PIECE:
        return json.count(b"[") + json.count(b"{") > DEPTH
    left = DEPTH
    for sign in (b"[", b"{"):  # to find the few of a long text is faster than to count them
        at = json.find(sign)
        while at >= 0:
            left -= 1
            if left < 0:
                return True
            at = json.find(sign, at + 1)
    return False


class DepthScan:
    """Scans a text piece by piece, so that it never copies more than a few pieces."""

    def __init__(self) -> None:
        self.is_too_deep = False
        self.has_half = False  # escapes of surrogates, which may be alone
        self._in_escape = False  # the last piece ended with a backslash
        self._depth = 0
        self._in_string = False
        self._quotes_left = MOST_QUOTES
        self._escaped_left = MOST_ESCAPED
        self._near_left = MOST_NEAR
        self._left = MOST_BRACKETS

    def feed(self, text: bytes) -> None:
        """Scan what follows the text of the last call."""
        at = 0
        while at < len(text) and not self.is_too_deep:
            at += self._in_escape
            self._in_escape = False
            piece = text[at : at + _PIECE]
            at += len(piece)
            self.has_half = self.has_half or has(piece, b"\\ud") or has(piece, b"\\uD")
            self.is_too_deep = self._goes_too_deep(piece)

    def _goes_too_deep(self, piece: bytes) -> bool:
        if piece.find(b"\\") >= 0:
            piece = piece.replace(rb"\\", _TWO)
            self._in_escape = piece.endswith(b"\\")
        if piece.find(b"\\") >= 0:
            quotes = piece.count(b'"')
            if self._in_string and quotes == piece.count(rb"\""):
                return False  # the string does not end here
            piece = piece.replace(rb"\"", _TWO)
            left = piece.count(b'"')
            self._escaped_left -= min(quotes - left, left)
        return self._passes_limit(self._outside_strings(piece))

    def _outside_strings(self, piece: bytes) -> bytes:
        """Return its brackets. A quote begins or ends a string; two adjacent ones cancel out."""
        signs = piece.translate(_SAME, _OTHERS)
        if self._in_string:
            signs = b'"' + signs
        if signs.find(b'"') < 0:
            return signs
        signs = signs.replace(b'""', _TWO).translate(None, _SPACE)
        parts = signs.split(b'"')
        self._quotes_left -= len(parts) - 1
        self._in_string = len(parts) % 2 == 0
        return b"".join(parts[::2])

    def _passes_limit(self, brackets: bytes) -> bool:
        """Whether any of them exceeds the limit, or it would take too long to determine that."""
        self._left -= len(brackets)
        if min(self._quotes_left, self._escaped_left, self._left) < 0:
            return True
        at, depth = 0, self._depth
        while at < len(brackets):
            room = DEPTH - depth
            if room < _BLOCK:
                block = brackets[at : at + _BLOCK]
                self._near_left -= len(block)
                steps = memoryview(block.translate(_STEPS)).cast("b")
                levels = list(accumulate(steps, initial=depth))
                if max(levels) > DEPTH or self._near_left < 0:
                    return True
                depth = levels[-1]
                at += _BLOCK
            else:  # so few can't reach the limit in any order
                count = min(room, len(brackets) - at)
                depth += 2 * brackets.count(_OPENING, at, at + count) - count
                at += count
        self._depth = depth
        return False
