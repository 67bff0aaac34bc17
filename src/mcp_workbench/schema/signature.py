"""A tool on one line: its name, its arguments, and whether something was left out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from mcp_workbench.schema.document import json_text, types_of
from mcp_workbench.schema.shape import (
    OMITTED,
    Array,
    Base,
    Field,
    Fields,
    Gap,
    Inline,
    Map,
    Shape,
    Union,
    Value,
    value_shape,
)

LONG = 320  # characters of a signature; of a longer one, parts are left out and marked
AMPLE = 4000  # where it is the only one shown
TOO_LONG = 640  # beyond it, optional arguments are only counted
MANY = 8  # values of a choice; of more, a shortened signature shows the first six
SHOWN = 6
LONG_DEFAULT = 24  # characters
LONG_RULES = 120
SENTENCE = 200  # characters of a description's first sentence
MARK = "…"  # outside quotes it always means: there is more
LONG_TYPE = 80  # characters; of a longer type, only the names of its types are shown

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_$.-]+").fullmatch
_SENTENCE = re.compile(r".*?(?:[.!?](?=\s|$)|[\u3002\uff01\uff1f])", re.DOTALL).match


class Signature(msgspec.Struct, frozen=True):
    """The text, and whether something was left out."""

    text: str
    lossy: bool = False


def whole_signature(name: str, arguments: Fields) -> Signature:
    """Returns the complete signature."""
    return _Speller(short=False).tool(name, arguments)


def short_signature(name: str, arguments: Fields) -> Signature:
    """Returns the signature, shortened if it is long."""
    return signature_within(LONG, name, arguments)


def signature_within(most: int, name: str, arguments: Fields) -> Signature:
    """Returns the complete signature if it has at most so many characters, else a shortened one."""
    whole = whole_signature(name, arguments)
    if len(whole.text) <= most:
        return whole
    shortened = _Speller(short=True).tool(name, arguments)
    if len(shortened.text) <= TOO_LONG:
        return shortened
    return _Speller(short=True, room=TOO_LONG).tool(name, arguments)


def spelled(shape: Shape) -> Signature:
    """Returns any shape as text, complete."""
    speller = _Speller(short=False)
    return Signature(speller.type(shape), speller.lossy)


def type_text(schema: dict[str, Any]) -> str:
    """Returns the type of one argument, as a signature shows it: `string`, `int[]`, `"a"|"b"`."""
    text = spelled(value_shape(schema)).text
    return text if len(text) <= LONG_TYPE else "|".join(types_of(schema))


def one_line(text: str) -> str:
    """Returns text of a server on one line, without unprintable characters."""
    if not text.isprintable():
        text = text.translate({ord(char): " " for char in set(text) if not char.isprintable()})
    return " ".join(text.split())


def first_sentence(description: str) -> str:
    """Returns the first sentence of a description."""
    start = description.strip()[: 64 * SENTENCE]
    sentence = _SENTENCE(start[: 4 * SENTENCE])
    text = one_line(sentence[0] if sentence else start)
    return text if len(text) <= SENTENCE else f"{text[: SENTENCE - 1].rstrip()}{MARK}"


def name_text(name: str) -> str:
    return name if _PLAIN_NAME(name) else json_text(name)


class _Speller:
    """Writes shapes as text; `lossy` as soon as something was left out."""

    def __init__(self, *, short: bool, room: int = 0) -> None:
        self._short = short
        self._room = room
        self.lossy = False

    def tool(self, name: str, arguments: Fields) -> Signature:
        listed = [self._field(field) for field in arguments.fields]
        if self._room:
            listed = self._fitting(arguments, listed, self._room - len(name))
        text = f"{name_text(name)}({', '.join(listed)}){self._rules(arguments.rules)}"
        return Signature(text, self.lossy)

    def type(self, shape: Shape) -> str:
        if not isinstance(shape, Union):
            return self._item(shape)
        of, dropped = shape.of, 0
        if self._short and len(of) > MANY:
            of, dropped = of[:SHOWN], len(of) - SHOWN
        texts = dict.fromkeys(self._item(part) for part in of)
        self.lossy |= bool(dropped)
        return "|".join((*texts, *([MARK] if dropped else ())))

    def _item(self, shape: Shape) -> str:  # noqa: C901 - one line for each form
        match shape:
            case Base():
                return shape.name + self._rules(shape.rules)
            case Value():
                return shape.json
            case Fields():
                return self._object(shape)
            case Map():
                return f"{{*: {self.type(shape.of)}}}"
            case Array():
                return self._array(shape)
            case Inline():
                return self._cut("any…") if self._short else f"schema{shape.json}"
            case Gap():
                return self._cut(MARK)
            case Union():
                return f"({self.type(shape)})"

    def _array(self, shape: Array) -> str:
        of = self._item(shape.of)
        if shape.rules[:1] == "@":
            return f"{of}[]{self._rules(shape.rules)}"
        return f"{of}[{shape.rules}]"

    def _object(self, shape: Fields) -> str:
        if self._short and (shape.fields or shape.rules):
            return self._cut("{…}")
        return f"{{{', '.join(map(self._field, shape.fields))}}}{self._rules(shape.rules)}"

    def _field(self, field: Field) -> str:
        name = name_text(field.name) + ("" if field.required else "?")
        text = f"{name}: {self.type(field.shape)}"
        if not field.default:
            return text
        if self._short and len(field.default) > LONG_DEFAULT:
            return f"{text} = {self._cut(MARK)}"
        return f"{text} = {field.default}"

    def _rules(self, rules: str) -> str:
        if rules == OMITTED or (self._short and len(rules) > LONG_RULES):
            return self._cut(OMITTED)
        return rules

    def _fitting(self, arguments: Fields, listed: list[str], room: int) -> list[str]:
        """Returns the fields that fit; required ones always."""
        kept = _fitting(zip(arguments.fields, listed, strict=True), room)
        dropped = len(listed) - len(kept)
        return [*kept, self._cut(f"{MARK}+{dropped}")] if dropped else kept

    def _cut(self, instead: str) -> str:
        self.lossy = True
        return instead


def _fitting(fields: Iterable[tuple[Field, str]], room: int) -> list[str]:
    kept: list[str] = []
    for field, text in fields:
        room -= len(text) + 2
        if room < 0 and not field.required:
            break
        kept.append(text)
    return kept
