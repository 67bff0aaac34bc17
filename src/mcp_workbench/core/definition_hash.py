"""Hashes of definitions: equal for equal JSON, whatever the order of members and the white space.

Any other byte counts. Strings are compared by code point, without normalization, and numbers as they are
written. JSON that two readers could read differently (a member that occurs twice), and JSON that is too
large or too deep to be put in order in one step, is hashed byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256

import msgspec

LARGEST = 256 << 10  # bytes of a definition that is put in order: some 30 ms
DEEPEST = 128  # levels of it; each one is copied once
PREFIX = "sha256:"
HASH = re.compile(r"sha256:[0-9a-f]{64}")
_VERSION = b"mcp-workbench definition 1\n"  # of the canonical form
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+', re.DOTALL)
_QUOTE, _BACKSLASH = ord('"'), b"\\"
_read_text = msgspec.json.Decoder(str).decode


def definition_hash(raw: bytes) -> str:
    """Returns the hash of a definition, which is valid JSON."""
    canonical = canonical_form(raw)
    return _hash(b"bytes\n" + raw if canonical is None else b"json\n" + canonical)


def text_hash(text: str) -> str:
    """Returns the hash of a text, such as the instructions of a server."""
    return definition_hash(msgspec.json.encode(text))


def joint_hash(parts: Iterable[tuple[str, ...]]) -> str:
    """Returns one hash of many texts; their order does not count."""
    return _hash(b"parts\n" + msgspec.json.encode(sorted(parts)))


def _hash(data: bytes) -> str:
    return PREFIX + sha256(_VERSION + data).hexdigest()


def canonical_form(raw: bytes) -> bytes | None:
    """Returns valid JSON with its members sorted and without white space; None if that is not clear."""
    if len(raw) > LARGEST:
        return None
    try:
        return _Builder().build(raw)
    except (_Unclear, IndexError, msgspec.DecodeError, UnicodeDecodeError):
        return None


class _Unclear(Exception):
    """A member occurs twice, it is nested too deeply, or is no JSON after all."""


class _Builder:
    """One pass over the tokens; objects and lists that are open are on a stack."""

    def __init__(self) -> None:
        self._open: list[dict[str, bytes] | list[bytes]] = []
        self._names: list[str | None] = []  # of the member whose value comes next, for each of them
        self._whole = b""

    def build(self, raw: bytes) -> bytes:
        for match in _TOKEN.finditer(raw):
            token = match[0]
            if token in (b"{", b"["):
                if len(self._open) == DEEPEST:
                    raise _Unclear
                self._open.append({} if token == b"{" else [])
                self._names.append(None)
            elif token in (b"}", b"]"):
                self._names.pop()
                self._put(_joined(self._open.pop()))
            elif token not in (b":", b","):
                self._scalar(token)
        if self._open:
            raise _Unclear
        return self._whole

    def _scalar(self, token: bytes) -> None:
        if token[0] != _QUOTE:
            self._put(token)
            return
        if self._open and isinstance(self._open[-1], dict) and self._names[-1] is None:
            self._names[-1] = _read_text(token)
            return
        # Only an escape can be written in another way.
        self._put(token if _BACKSLASH not in token else msgspec.json.encode(_read_text(token)))

    def _put(self, value: bytes) -> None:
        if not self._open:
            if self._whole:
                raise _Unclear
            self._whole = value
            return
        container, name = self._open[-1], self._names[-1]
        if isinstance(container, list):
            container.append(value)
        elif name is None or name in container:
            raise _Unclear
        else:
            container[name] = value
            self._names[-1] = None


def _joined(container: dict[str, bytes] | list[bytes]) -> bytes:
    if isinstance(container, list):
        return b"[" + b",".join(container) + b"]"
    members = (msgspec.json.encode(name) + b":" + container[name] for name in sorted(container))
    return b"{" + b",".join(members) + b"}"
