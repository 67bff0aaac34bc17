"""Signatures: a tool on one line, made of its name and the shape of its arguments.

A schema is read into a shape, one of the few forms that a signature can express, and the shape is
written as text. Whatever is left out is marked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, cast

import msgspec

from mcp_workbench.core.raw_json import TooComplex
from mcp_workbench.schema.document import (
    CHARACTERS,
    Refs,
    Unresolvable,
    as_list,
    constraints,
    is_type,
    json_text,
    plain,
    properties_of,
    required_of,
    types_of,
)

Json = dict[str, Any]

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


def type_text(schema: Json) -> str:
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


# Shapes


class Base(msgspec.Struct, frozen=True):
    """A plain type. Rules are kept as text: `(1..9)` or `@{…}`."""

    name: str
    rules: str = ""


class Value(msgspec.Struct, frozen=True):
    """One JSON scalar."""

    json: str


class Field(msgspec.Struct, frozen=True):
    """A named member; `default` is JSON, or empty."""

    name: str
    shape: Shape
    required: bool = False
    default: str = ""


class Fields(msgspec.Struct, frozen=True):
    """An object with named members."""

    fields: tuple[Field, ...] = ()
    rules: str = ""


class Map(msgspec.Struct, frozen=True):
    """An object with any names, and values of one shape."""

    of: Shape


class Array(msgspec.Struct, frozen=True):
    """A list; rules are `1..9` or `@{…}`."""

    of: Shape
    rules: str = ""


class Inline(msgspec.Struct, frozen=True):
    """A schema without a notation: its JSON."""

    json: str


class Gap(msgspec.Struct, frozen=True):
    """A schema that can't be expressed: inside itself, or outside its document."""


class Union(msgspec.Struct, frozen=True):
    """One of several, without duplicates."""

    of: tuple[Shape, ...]


Shape = Base | Value | Fields | Map | Array | Inline | Gap | Union
OMITTED = "@…"  # rules that can't be expressed
ANY, NULL = Base("any"), Base("null")


def arguments_shape(schema: Any) -> Fields:
    """Returns the shape of a tool's arguments, which are an object whatever its schema says.

    Parts that take too many steps become gaps.
    """
    return _Reader(schema).arguments(schema)


def value_shape(schema: Any) -> Shape:
    """Returns the shape of any schema, such as that of a tool's output."""
    return _Reader(schema).shape(schema, ("#",))


# From a schema to a shape

DEEPEST = 24  # levels of nesting; anything deeper is a gap
MOST = 4000  # parts of one schema: references to references can ask for any number

BASES = {"string": "string", "integer": "int", "number": "num", "boolean": "bool", "null": "null"}
_STRING = ("minLength", "maxLength", "pattern", "format", "contentEncoding", "contentMediaType")
_NUMBER = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_ARRAY = ("minItems", "maxItems", "uniqueItems", "contains", "minContains", "maxContains")
_OBJECT = (
    "minProperties", "maxProperties", "patternProperties", "propertyNames", "dependentRequired",
    "dependentSchemas", "dependencies", "unevaluatedProperties",
)  # fmt: skip
_COMBINING = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else")
RULES = {"string": _STRING, "integer": _NUMBER, "number": _NUMBER, "boolean": (), "null": ()}
_NO_EFFECT = {"minLength": 0, "minItems": 0, "minProperties": 0, "uniqueItems": False}


class _Reader:
    def __init__(self, root: Any) -> None:
        self._refs = Refs(root)
        self._steps = self._refs.steps
        self._left = MOST

    def arguments(self, schema: Any) -> Fields:
        try:
            whole = self._refs.resolve(schema, ("#",))[0]
        except (Unresolvable, TooComplex):
            whole = schema
        if not isinstance(whole, dict):
            return Fields()
        return self._fields(constraints(cast("Json", whole)), ("#",))

    def shape(self, schema: Any, trail: tuple[str, ...]) -> Shape:
        self._left -= 1
        if self._left < 0 or len(trail) > DEEPEST:
            return Gap()
        if schema is False:
            return Inline('{"not":{}}')
        try:
            resolved, trail = self._refs.resolve(schema, trail)
            if not isinstance(resolved, dict):
                return ANY
            self._steps.take(1 + len(cast("Json", resolved)))
            return self._constrained(constraints(cast("Json", resolved)), (*trail, ""))
        except (Unresolvable, TooComplex):
            return Gap()

    def _json(self, value: Any) -> str:
        text = json_text(value)
        self._steps.take(len(text) // CHARACTERS)
        return text

    def _constrained(self, schema: Json, trail: tuple[str, ...]) -> Shape:
        if "const" in schema or "enum" in schema:
            return self._values(schema, trail)
        combining = [key for key in _COMBINING if key in schema]
        if combining:
            return self._combined(schema, combining, trail)
        shapes = [self._typed(name, schema, trail) for name in types_of(schema)]
        return _union(shapes) if shapes else self._untyped(schema, trail)

    def _values(self, schema: Json, trail: tuple[str, ...]) -> Shape:
        listed: Any = [schema["const"]] if "const" in schema else schema["enum"]
        values = as_list(listed)
        self._steps.take(len(values))
        types = types_of(schema)
        fitting = [v for v in values if not types or any(is_type(v, name) for name in types)]
        if not values or any(isinstance(v, list | dict) for v in fitting):
            return self._inline(schema, trail)
        return _union([NULL if v is None else Value(self._json(v)) for v in fitting or values])

    def _combined(self, schema: Json, combining: list[str], trail: tuple[str, ...]) -> Shape:
        if "properties" in schema:
            return self._fields(schema, trail)
        [key, *more] = combining
        branches: Any = schema[key]
        if more or key not in ("anyOf", "oneOf", "allOf") or not isinstance(branches, list):
            return self._inline(schema, trail)
        rest = {name: value for name, value in schema.items() if name != key}
        parts = [self._merged(rest, branch, trail) for branch in cast("list[Any]", branches)]
        if not parts or None in parts or (key == "allOf" and len(parts) > 1):
            return self._inline(schema, trail)
        return _union([self.shape(part, trail) for part in parts])

    def _merged(self, rest: Json, branch: Any, trail: tuple[str, ...]) -> Any:
        """Returns a branch of a choice with the keywords beside the choice; None if they contradict."""
        if not rest:
            return branch
        self._steps.take(1 + len(rest))
        resolved = self._refs.resolve(branch, trail)[0]
        if not isinstance(resolved, dict):
            return rest if resolved is True else None
        self._steps.take(len(cast("Json", resolved)))
        own = constraints(cast("Json", resolved))
        clash = [key for key in own if key in rest and self._differ(own[key], rest[key])]
        return None if clash else {**rest, **own}

    def _differ(self, left: Any, right: Any) -> bool:
        if isinstance(left, list | dict):
            self._json(left)  # takes the steps that the comparison needs
        return left != right

    def _untyped(self, schema: Json, trail: tuple[str, ...]) -> Shape:
        if "properties" in schema or isinstance(schema.get("additionalProperties"), dict):
            return self._typed("object", schema, trail)
        if "items" in schema:
            return self._typed("array", schema, trail)
        ruled = (*_STRING, *_NUMBER, *_ARRAY, *_OBJECT, "prefixItems")
        return self._inline(schema, trail) if any(key in schema for key in ruled) else ANY

    def _typed(self, kind: str, schema: Json, trail: tuple[str, ...]) -> Shape:
        if kind == "object":
            return self._object(schema, trail)
        if kind == "array":
            return self._array(schema, trail)
        if kind not in BASES:
            return ANY
        return Base(BASES[kind], self._rules(schema, RULES[kind], trail, ("minimum", "maximum")))

    def _array(self, schema: Json, trail: tuple[str, ...]) -> Shape:
        items = schema.get("items", True)
        if "prefixItems" in schema or isinstance(items, list) or items is False:
            return self._inline({**schema, "type": "array"}, trail)
        rules = self._rules(schema, _ARRAY, trail, ("minItems", "maxItems"))
        return Array(self.shape(items, trail), rules.strip("()") if rules[:1] == "(" else rules)

    def _object(self, schema: Json, trail: tuple[str, ...]) -> Shape:
        members = self._fields(schema, trail)
        if members.fields:
            return members
        more: Any = schema.get("additionalProperties")
        if isinstance(more, dict) and not any(key in schema for key in _OBJECT):
            of = self.shape(cast("Any", more), trail)
            return Base("object") if of == ANY else Map(of)
        return members if more is False and not members.rules else Base("object", members.rules)

    def _fields(self, schema: Json, trail: tuple[str, ...]) -> Fields:
        required = dict.fromkeys(required_of(schema))
        fields: list[Field] = []
        try:
            for name, value in _members(properties_of(schema), required):
                self._steps.take(1 + len(name) // CHARACTERS)
                fields.append(self._field(name, value, required=name in required, trail=trail))
        except TooComplex:
            return Fields(tuple(fields), OMITTED)
        ruled = (*_OBJECT, *_COMBINING)
        if isinstance(schema.get("additionalProperties"), dict) and fields:
            ruled = ("additionalProperties", *ruled)
        return Fields(tuple(fields), self._rules(schema, ruled, trail))

    def _field(self, name: str, schema: Any, *, required: bool, trail: tuple[str, ...]) -> Field:
        shape = self.shape(schema, trail)
        default, none = "", object()
        try:
            whole: Any = self._refs.resolve(schema, trail)[0]
        except (Unresolvable, TooComplex):
            whole = schema
        value: Any = cast("Json", whole).get("default", none) if isinstance(whole, dict) else none
        if value is None and not required:
            shape = _without_null(shape)  # leaving it out means the same
        elif value is not none:
            default = self._json(value)
        return Field(name, shape, required, default)

    def _rules(
        self, schema: Json, keys: tuple[str, ...], trail: tuple[str, ...], bounds: Any = ()
    ) -> str:
        """Returns these keywords as text; two bounds alone have a notation of their own."""
        rules = {k: schema[k] for k in keys if k in schema and _NO_EFFECT.get(k, keys) != schema[k]}
        if not rules:
            return ""
        if (
            bounds
            and rules.keys() <= set(bounds)
            and all(is_type(v, "number") for v in rules.values())
        ):
            low, high = (json_text(rules[key]) if key in rules else "" for key in bounds)
            return f"({low}..{high})"
        try:
            return f"@{self._json(plain(rules, self._refs, trail))}"
        except (Unresolvable, TooComplex):
            return OMITTED

    def _inline(self, schema: Json, trail: tuple[str, ...]) -> Shape:
        return Inline(self._json(plain(schema, self._refs, trail)))


def _members(properties: Json, required: dict[str, None]) -> Iterator[tuple[str, Any]]:
    """Yields the members by name, the required ones first."""
    yield from ((name, properties.get(name, True)) for name in required)
    for name, value in properties.items():
        if name not in required and value is not False:
            yield name, value


def _union(shapes: list[Shape]) -> Shape:
    flat: dict[Shape, None] = {}
    for shape in shapes:
        flat.update(dict.fromkeys(shape.of if isinstance(shape, Union) else (shape,)))
    return (
        ANY
        if ANY in flat or not flat
        else next(iter(flat))
        if len(flat) == 1
        else Union(tuple(flat))
    )


def _without_null(shape: Shape) -> Shape:
    if isinstance(shape, Union):
        return _union([part for part in shape.of if part != NULL])
    return shape


# From a shape to text


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
