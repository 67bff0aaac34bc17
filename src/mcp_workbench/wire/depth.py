"""How deeply a message may be nested: equally on every Python, whatever its reader could take."""

import sys
from itertools import accumulate
from typing import Any

import msgspec

DEPTH = 1000  # levels of a whole message, of which its envelope is the first

if sys.version_info < (3, 12):  # the reader's levels and our own frames share one limit there
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 2 * DEPTH))

_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # one down, one up: 255 is -1 when signed
_OTHERS = bytes(set(range(256)) - set(b'[{]}"'))


def read_json(text: bytes | str) -> Any:
    """The plain value of this text; a RecursionError where it goes below our last level."""
    value = msgspec.json.decode(text)
    if too_deep(text.encode() if isinstance(text, str) else text):
        raise RecursionError
    return value


def too_deep(json: bytes) -> bool:
    """Does this valid JSON go below our last level? What is short or simple is not looked into."""
    if len(json) <= 2 * DEPTH or json.count(b"[") + json.count(b"{") <= DEPTH:
        return False
    return _depth(json) > DEPTH


def _depth(json: bytes) -> int:
    # A quote that is left after this begins or ends a string, and two beside each other cancel out.
    signs = json.replace(rb"\\", b"").replace(rb"\"", b"").translate(None, _OTHERS)
    outside_strings = b"".join(signs.replace(b'""', b"").split(b'"')[::2])
    steps = memoryview(outside_strings.translate(_STEPS)).cast("b")
    return max(accumulate(steps), default=0)
