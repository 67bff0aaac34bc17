"""Reads a signature back, by the grammar alone: what a caller can know who sees nothing else."""

from __future__ import annotations

import json
import re
from typing import Any

from mcp_workbench.schema.document import json_text
from mcp_workbench.schema.signature import (
    Array,
    Base,
    Field,
    Fields,
    Inline,
    Map,
    Shape,
    Union,
    Value,
)

NAME = re.compile(r"[A-Za-z0-9_$.-]+")
BASE = re.compile(r"(string|int|num|bool|null|any|object)(?![A-Za-z0-9_])")
NUMBER = r"-?[0-9][0-9.eE+-]*?"
BOUNDS = re.compile(rf"\((?:{NUMBER})?\.\.(?:-?[0-9][0-9.eE+-]*)?\)")
SIZES = re.compile(r"\[[0-9.eE+-]*\]")


class Unreadable(Exception):
    """The text breaks the grammar."""


def read_signature(text: str) -> tuple[str, Fields]:
    reader = _Reader(text)
    name = reader.name()
    reader.take("(")
    fields = reader.fields(")")
    rules = reader.rules(bounds=False)
    if reader.at != len(text):
        raise Unreadable(f"{text[reader.at :]!r} is left over")
    return name, Fields(fields, rules)


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def sees(self, what: str) -> bool:
        return self.text.startswith(what, self.at)

    def took(self, what: str) -> bool:
        if self.sees(what):
            self.at += len(what)
            return True
        return False

    def take(self, what: str) -> None:
        if not self.took(what):
            raise Unreadable(f"{what!r} expected at {self.text[self.at :][:40]!r}")

    def match(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.at)
        if not found:
            return ""
        self.at = found.end()
        return found[0]

    def json(self) -> tuple[Any, str]:
        """A JSON value, and its text."""
        try:
            value, end = json.JSONDecoder().raw_decode(self.text, self.at)
        except ValueError as error:
            raise Unreadable(str(error)) from None
        start, self.at = self.at, end
        return value, self.text[start:end]

    def name(self) -> str:
        return self.json()[0] if self.sees('"') else self.match(NAME)

    def fields(self, end: str) -> tuple[Field, ...]:
        found: list[Field] = []
        while not self.took(end):
            if found:
                self.take(", ")
            found.append(self.field())
        return tuple(found)

    def field(self) -> Field:
        name = self.name()
        required = not self.took("?")
        self.take(": ")
        shape = self.type()
        default = self.json()[1] if self.took(" = ") else ""
        return Field(name, shape, required, default)

    def type(self) -> Shape:
        items = [self.item()]
        while self.took("|"):
            items.append(self.item())
        return items[0] if len(items) == 1 else Union(tuple(items))

    def item(self) -> Shape:
        shape = self.single()
        while self.sees("["):
            sizes = self.match(SIZES)
            if not sizes:
                raise Unreadable(self.text[self.at :])
            rules = sizes[1:-1] or self.rules(bounds=False)
            shape = Array(shape, rules)
        return shape

    def single(self) -> Shape:
        if self.took("{*: "):
            of = self.type()
            self.take("}")
            return Map(of)
        if self.took("{"):
            return Fields(self.fields("}"), self.rules(bounds=False))
        if self.took("("):
            inner = self.type()
            self.take(")")
            return inner
        if self.took("schema"):
            return Inline(json_text(self.json()[0]))
        base = self.match(BASE)
        return Base(base, self.rules(bounds=True)) if base else Value(self.json()[1])

    def rules(self, *, bounds: bool) -> str:
        if bounds and (found := self.match(BOUNDS)):
            return found
        return f"@{self.json()[1]}" if self.took("@") else ""
