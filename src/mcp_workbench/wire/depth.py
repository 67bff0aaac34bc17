"""How deeply a message may be nested: equally on every Python, whatever its reader could take."""

import sys
from itertools import accumulate
from typing import Any

import msgspec

DEPTH = 1000  # levels of a whole message, of which its envelope is the first

if sys.version_info < (3, 12):  # the reader's levels and our own frames share one limit there
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 2 * DEPTH))

_OPENING, _CLOSING = b"[", b"]"
_SAME = bytes.maketrans(b"{}", _OPENING + _CLOSING)  # it matters how deep it is, not in what
_STEPS = bytes.maketrans(
    _OPENING + _CLOSING, b"\x01\xff"
)  # one down, one up: 255 is -1 when signed
_OTHERS = bytes(set(range(256)) - set(b'[{]}"'))

_PIECE = 64 << 10  # bytes that are looked at together
_BLOCK = 256  # brackets that are looked at one by one where the limit is as near as that
# Of a message that asks for more, nobody finds out how deep it is: it counts as too deep.
MOST_QUOTES = 4_000_000  # of texts that have brackets in them, or between them
MOST_NEAR = 1_000_000  # brackets so deep that each has to be looked at


def read_json(text: bytes | str) -> Any:
    """The plain value of this text; a RecursionError where it goes below our last level."""
    value = msgspec.json.decode(text)
    if too_deep(text.encode() if isinstance(text, str) else text):
        raise RecursionError
    return value


def too_deep(json: bytes) -> bool:
    """Does this valid JSON go below our last level? What is short or simple is not looked into."""
    if len(json) <= 2 * DEPTH or not _opens_often(json):
        return False
    return _Walk().goes_too_deep(json)


def _opens_often(json: bytes) -> bool:
    """Has it more opening brackets than we have levels?"""
    if len(json) <= _PIECE:
        return json.count(b"[") + json.count(b"{") > DEPTH
    left = DEPTH
    for sign in (b"[", b"{"):  # to find the few of a long text is quicker than to count them
        at = json.find(sign)
        while at >= 0:
            left -= 1
            if left < 0:
                return True
            at = json.find(sign, at + 1)
    return False


class _Walk:
    """From one end of a text to the other, a piece at a time: it never takes more than a few pieces."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._quotes_left = MOST_QUOTES
        self._near_left = MOST_NEAR

    def goes_too_deep(self, json: bytes) -> bool:
        start = 0
        while start < len(json):
            piece = json[start : start + _PIECE]
            start += _PIECE
            if piece.find(b"\\") >= 0:
                piece = piece.replace(rb"\\", b"")
                start += piece.endswith(b"\\")  # what it stands before is in the next piece
                escaped = piece.count(rb"\"")
                if self._in_string and escaped == piece.count(b'"'):
                    continue  # the string does not end here
                piece = piece.replace(rb"\"", b"") if escaped else piece
            if self._passes_limit(self._outside_strings(piece)):
                return True
        return False

    def _outside_strings(self, piece: bytes) -> bytes:
        """Its brackets. A quote in it begins or ends a string; two beside each other cancel out."""
        signs = piece.translate(_SAME, _OTHERS)
        if self._in_string:
            signs = b'"' + signs
        if signs.find(b'"') < 0:
            return signs
        parts = signs.replace(b'""', b"").split(b'"')
        self._quotes_left -= len(parts) - 1
        self._in_string = len(parts) % 2 == 0
        return b"".join(parts[::2])

    def _passes_limit(self, brackets: bytes) -> bool:
        """Goes any of them below the last level, or is that too long to find out?"""
        if self._quotes_left < 0:
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
            else:  # however so few of them are ordered
                count = min(room, len(brackets) - at)
                depth += 2 * brackets.count(_OPENING, at, at + count) - count
                at += count
        self._depth = depth
        return False
