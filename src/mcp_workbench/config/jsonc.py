"""Parser for JSON with comments and trailing commas; every value knows its place in the text."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

Path = tuple[str | int, ...]

DEPTH = 128  # levels; far beyond any settings file, far below Python's own limit
BOM = "\ufeff"

# No possessive quantifiers: the first patch versions of Python 3.11 match some of them wrongly.
_GAP = re.compile(r"[ \t\r\n]+|//[^\n]*|/\*.*?\*/", re.DOTALL)
_STRING = re.compile(r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"')
_WORD = re.compile(r"[^\s,:\[\]{}\"/]+")  # a number, true, false, null, or a mistake

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")

# Messages never quote the text: it may be a secret that lost its quotes.
_NOT_JSON = defaultdict(
    lambda: "this is no number and none of true, false, null; a string needs double quotes",
    {'"': "this string has a wrong escape or an unprintable character", "'": "use double quotes"},
)
_TOO_LARGE = "this number is too large; the largest is about 1.8e308"
_TOO_LONG = "this number is too long; a whole one has at most 4300 digits"  # Python's own limit


class SyntaxProblem(ValueError):
    """The text is not JSON, not even with comments: where, and why."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(f"{line}:{column}: {message}")
        self.message = message
        self.line = line
        self.column = column


class TooDeep(SyntaxProblem):
    """The text may be JSON, but is nested too deeply for this parser."""


class Place(NamedTuple):
    """Line and column, both from 1."""

    line: int
    column: int


class Node(msgspec.Struct, frozen=True, dict=True):
    """A value and its span in the text."""

    value: Any
    start: int
    end: int
    children: tuple[Child, ...] = ()

    @cached_property
    def members(self) -> dict[str | int, Child]:
        """The children by key; of duplicate keys the last."""
        return {child.key: child for child in self.children}


class Child(msgspec.Struct, frozen=True):
    """A member of an object (`start` is that of its key) or an item of a list."""

    key: str | int
    start: int
    node: Node


class Duplicate(msgspec.Struct, frozen=True):
    """A key that occurs twice in one object, and both offsets; the second one counts."""

    path: Path
    first: int
    second: int


def parse(text: str) -> Any:
    """Returns the value of the text. Raises SyntaxProblem."""
    return read(text).value


def read(text: str) -> Node:
    """Returns the value of the text with the spans of everything in it. Raises SyntaxProblem."""
    return _Scanner(text).document()


def past_gap(text: str, start: int, end: int) -> int:
    """Returns the end of the space and comments that begin at `start`."""
    while gap := _GAP.match(text, start, end):
        start = gap.end()
    return start


def find(root: Node, path: Path) -> Child:
    """Returns the value at this path, or else its nearest existing ancestor."""
    child = Child("", root.start, root)
    for key in path:
        inner = child.node.members.get(key)
        if inner is None:
            break
        child = inner
    return child


class Lines:
    """Line starts of a text, to place many offsets. A byte order mark takes no column."""

    def __init__(self, text: str) -> None:
        first = len(BOM) if text.startswith(BOM) else 0
        self._starts = [first, *(end.end() for end in re.finditer("\n", text))]

    def place(self, offset: int) -> Place:
        line = max(bisect_right(self._starts, offset), 1)
        return Place(line, max(offset - self._starts[line - 1], 0) + 1)


def place(text: str, offset: int) -> Place:
    """Returns line and column of one offset."""
    return Lines(text).place(offset)


def place_of_byte(raw: bytes, start: int) -> Place:
    """Returns line and column of the first byte that is not UTF-8."""
    before = raw[:start].decode()
    return place(before, len(before))


def locate(text: str, path: Path) -> Place:
    """Returns line and column of the member at this path (of its key), or of its nearest ancestor."""
    return place(text, find(read(text), path).start)


def duplicates(node: Node, path: Path = ()) -> Iterator[Duplicate]:
    """Yields every key that occurs more than once in its object."""
    seen: dict[str | int, int] = {}
    for child in node.children:
        if child.key in seen:
            yield Duplicate((*path, child.key), seen[child.key], child.start)
        seen[child.key] = child.start
        yield from duplicates(child.node, (*path, child.key))


def _unread(token: str) -> str:
    """Returns why this token is not a value."""
    if not _NUMBER.fullmatch(token):
        return _NOT_JSON[token[0]]
    return _TOO_LONG if token.lstrip("-").isdecimal() else _TOO_LARGE


class _Scanner:
    """One pass over one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = len(BOM) if text.startswith(BOM) else 0

    def document(self) -> Node:
        node = self.value(DEPTH)
        if self.next():
            raise self.problem("there is more text after the end of the JSON value")
        return node

    def next(self) -> str:
        """Skips space and comments; returns the next character, or nothing at the end."""
        self.at = past_gap(self.text, self.at, len(self.text))
        return self.text[self.at : self.at + 1]

    def value(self, depth: int) -> Node:
        first = self.next()
        if first in ("{", "["):
            return self.container(first, depth)
        return self.scalar(_STRING if first == '"' else _WORD)

    def container(self, opening: str, depth: int) -> Node:
        if not depth:
            message = f"this is nested more than {DEPTH} levels deep"
            raise TooDeep(message, *place(self.text, self.at))
        start, closing = self.at, "}" if opening == "{" else "]"
        children: list[Child] = []
        self.at += 1
        while self.next() != closing:
            member = self.member(depth) if closing == "}" else self.item(len(children), depth)
            children.append(member)
            if self.next() == ",":
                self.at += 1
            elif self.next() != closing:
                raise self.problem(f"expected ',' or '{closing}'")
        self.at += 1
        values = [child.node.value for child in children]
        whole = (
            dict(zip((c.key for c in children), values, strict=True)) if closing == "}" else values
        )
        return Node(whole, start, self.at, tuple(children))

    def member(self, depth: int) -> Child:
        if self.next() != '"':
            raise self.problem("expected a name in double quotes")
        key = self.scalar(_STRING)
        if self.next() != ":":
            raise self.problem("expected ':'")
        self.at += 1
        return Child(key.value, key.start, self.value(depth - 1))

    def item(self, index: int, depth: int) -> Child:
        node = self.value(depth - 1)
        return Child(index, node.start, node)

    def scalar(self, shape: re.Pattern[str]) -> Node:
        token = shape.match(self.text, self.at)
        if token is None:
            raise self.problem(self.unexpected())
        try:
            value = msgspec.json.decode(token.group())
        except ValueError:  # msgspec's own errors and those of odd Unicode
            raise self.problem(_unread(token.group())) from None
        self.at = token.end()
        return Node(value, token.start(), self.at)

    def unexpected(self) -> str:
        rest = self.text[self.at : self.at + 2]
        if not rest:
            return "the text ends too early: something is not closed"
        if rest == "/*":
            return "this comment is not closed"
        if rest[0] == '"':
            return "this string is not closed on its line"
        return f"expected a value, not {rest[0]!a}"

    def problem(self, message: str) -> SyntaxProblem:
        return SyntaxProblem(message, *place(self.text, self.at))
