"""Values of the largest size: each is slow to read in a way of its own."""

from __future__ import annotations

from collections.abc import Callable

from tests.threats.worst import filled

EMOJI = "\N{GRINNING FACE}".encode()

# What fills a value: where it begins, what is repeated, where it ends.
FILLINGS: dict[str, tuple[bytes, bytes, bytes]] = {
    "short lists": (b"[", b'"a",[],', b"1]"),
    "half a character": (b"[", b'"a",[],', rb'"\ud800"]'),
    "numbers": (b"[", b"1,", b"1]"),
    "objects": (b"[", b'{"a":[{}]},', b"{}]"),
    "members": (b"{", b'"":0,', b'"a":1}'),
    "escapes": (b'"', rb"\n", b'"'),
    "escapes and half a character": (b'"', rb"\n", rb'\ud800"'),
    "letters of four bytes": (b'"', EMOJI, b'"'),
    "a text": (b'"', b"a", b'"'),
}

Made = Callable[[bytes], bytes]


def value(name: str, size: int) -> bytes:
    return filled(*FILLINGS[name], size)


def numbered(form: bytes, size: int) -> bytes:
    """A list of as many members as the size allows; each has a number."""
    count = size // (len(form) + 6)
    return b"[" + b",".join(form % n for n in range(count)) + b"]"
