"""What a JSON Schema allows, in the few forms that a signature can say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import msgspec

from mcp_workbench.core.schemas import CHARACTERS, Beyond, Refs, json_text, plain, told_by
from mcp_workbench.core.raw_json import TooComplex

Json = dict[str, Any]

DEEPEST = 24  # levels of nesting; what lies below is a gap
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
_IDLE = {"minLength": 0, "minItems": 0, "minProperties": 0, "uniqueItems": False}


class Base(msgspec.Struct, frozen=True):
    """A plain type. Rules are kept as they are spelled: `(1..9)` or `@{…}`."""

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
    """What has no notation: the schema itself."""

    json: str


class Gap(msgspec.Struct, frozen=True):
    """What can't be said at all: a schema inside itself, or outside its document."""


class Union(msgspec.Struct, frozen=True):
    """One of several, none of them twice."""

    of: tuple[Shape, ...]


Shape = Base | Value | Fields | Map | Array | Inline | Gap | Union
UNTOLD = "@…"  # rules that can't be said
ANY, NULL = Base("any"), Base("null")


def arguments_shape(schema: Any) -> Fields:
    """What a tool takes. Whatever its schema says, arguments are an object.

    What takes too many steps is a gap, as is all that comes behind it.
    """
    reader = _Reader(schema)
    return reader.arguments(schema)


def value_shape(schema: Any) -> Shape:
    """The same for any schema, such as that of a tool's output."""
    return _Reader(schema).shape(schema, ("#",))


class _Reader:
    def __init__(self, root: Any) -> None:
        self._refs = Refs(root)
        self._steps = self._refs.steps
        self._left = MOST

    def arguments(self, schema: Any) -> Fields:
        try:
            whole = self._refs.followed(schema, ("#",))[0]
        except (Beyond, TooComplex):
            whole = schema
        if not isinstance(whole, dict):
            return Fields()
        return self._fields(_told(cast("Json", whole)), ("#",))

    def shape(self, schema: Any, trail: tuple[str, ...]) -> Shape:
        self._left -= 1
        if self._left < 0 or len(trail) > DEEPEST:
            return Gap()
        if schema is False:
            return Inline('{"not":{}}')
        try:
            followed, trail = self._refs.followed(schema, trail)
            if not isinstance(followed, dict):
                return ANY
            self._steps.take(1 + len(cast("Json", followed)))
            return self._told(_told(cast("Json", followed)), (*trail, ""))
        except (Beyond, TooComplex):
            return Gap()

    def _json(self, value: Any) -> str:
        text = json_text(value)
        self._steps.take(len(text) // CHARACTERS)
        return text

    def _told(self, schema: Json, trail: tuple[str, ...]) -> Shape:
        if "const" in schema or "enum" in schema:
            return self._values(schema, trail)
        combining = [key for key in _COMBINING if key in schema]
        if combining:
            return self._combined(schema, combining, trail)
        kinds = _kinds(schema)
        shapes = [self._one(kind, schema, trail) for kind in kinds]
        return _union(shapes) if shapes else self._untyped(schema, trail)

    def _values(self, schema: Json, trail: tuple[str, ...]) -> Shape:
        listed: Any = [schema["const"]] if "const" in schema else schema["enum"]
        values = cast("list[Any]", listed) if isinstance(listed, list) else []
        self._steps.take(len(values))
        kinds = _kinds(schema)
        fitting = [v for v in values if not kinds or any(_is(v, kind) for kind in kinds)]
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
        """A branch of a choice with what holds for all of them; None where they contradict."""
        if not rest:
            return branch
        self._steps.take(1 + len(rest))
        followed = self._refs.followed(branch, trail)[0]
        if not isinstance(followed, dict):
            return rest if followed is True else None
        self._steps.take(len(cast("Json", followed)))
        own = _told(cast("Json", followed))
        clash = [key for key in own if key in rest and self._differ(own[key], rest[key])]
        return None if clash else {**rest, **own}

    def _differ(self, one: Any, other: Any) -> bool:
        if isinstance(one, list | dict):
            self._json(one)  # takes the steps that a look at all of it needs
        return one != other

    def _untyped(self, schema: Json, trail: tuple[str, ...]) -> Shape:
        if "properties" in schema or isinstance(schema.get("additionalProperties"), dict):
            return self._one("object", schema, trail)
        if "items" in schema:
            return self._one("array", schema, trail)
        ruled = (*_STRING, *_NUMBER, *_ARRAY, *_OBJECT, "prefixItems")
        return self._inline(schema, trail) if any(key in schema for key in ruled) else ANY

    def _one(self, kind: str, schema: Json, trail: tuple[str, ...]) -> Shape:
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
        found = self._fields(schema, trail)
        if found.fields:
            return found
        more: Any = schema.get("additionalProperties")
        if isinstance(more, dict) and not any(key in schema for key in _OBJECT):
            of = self.shape(cast("Any", more), trail)
            return Base("object") if of == ANY else Map(of)
        return found if more is False and not found.rules else Base("object", found.rules)

    def _fields(self, schema: Json, trail: tuple[str, ...]) -> Fields:
        listed: Any = schema.get("properties")
        properties = cast("Json", listed) if isinstance(listed, dict) else {}
        named: Any = schema.get("required")
        needed = cast("list[Any]", named) if isinstance(named, list) else []
        required = dict.fromkeys(name for name in needed if isinstance(name, str))
        fields: list[Field] = []
        try:
            for name, value in _named(properties, required):
                self._steps.take(1 + len(name) // CHARACTERS)
                fields.append(self._field(name, value, required=name in required, trail=trail))
        except TooComplex:
            return Fields(tuple(fields), UNTOLD)
        ruled = (*_OBJECT, *_COMBINING)
        if isinstance(schema.get("additionalProperties"), dict) and fields:
            ruled = ("additionalProperties", *ruled)
        return Fields(tuple(fields), self._rules(schema, ruled, trail))

    def _field(self, name: str, schema: Any, *, required: bool, trail: tuple[str, ...]) -> Field:
        shape = self.shape(schema, trail)
        default, none = "", object()
        try:
            whole: Any = self._refs.followed(schema, trail)[0]
        except (Beyond, TooComplex):
            whole = schema
        value: Any = cast("Json", whole).get("default", none) if isinstance(whole, dict) else none
        if value is None and not required:
            shape = _without_null(shape)  # leaving it out says the same
        elif value is not none:
            default = self._json(value)
        return Field(name, shape, required, default)

    def _rules(
        self, schema: Json, keys: tuple[str, ...], trail: tuple[str, ...], bounds: Any = ()
    ) -> str:
        """These keywords as they are spelled: two bounds alone have a notation of their own."""
        found = {k: schema[k] for k in keys if k in schema and _IDLE.get(k, keys) != schema[k]}
        if not found:
            return ""
        if bounds and found.keys() <= set(bounds) and all(map(_is_number, found.values())):
            low, high = (json_text(found[key]) if key in found else "" for key in bounds)
            return f"({low}..{high})"
        try:
            return f"@{self._json(plain(found, self._refs, trail))}"
        except (Beyond, TooComplex):
            return UNTOLD

    def _inline(self, schema: Json, trail: tuple[str, ...]) -> Shape:
        return Inline(self._json(plain(schema, self._refs, trail)))


def _told(schema: Json) -> Json:
    """What a schema demands, without what it only says about itself; odd nests of one unwrapped."""
    return {key: value for key, value in schema.items() if told_by(key)}


def _named(properties: Json, required: dict[str, None]) -> Iterator[tuple[str, Any]]:
    """The members by name, those that must be there first."""
    yield from ((name, properties.get(name, True)) for name in required)
    for name, value in properties.items():
        if name not in required and value is not False:
            yield name, value


def _kinds(schema: Json) -> list[str]:
    kinds: Any = schema.get("type")
    listed = cast("list[Any]", kinds) if isinstance(kinds, list) else [kinds]
    return list(dict.fromkeys(kind for kind in listed if isinstance(kind, str)))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is(value: Any, kind: str) -> bool:
    if kind in ("integer", "number"):
        return _is_number(value)
    kinds = {"string": str, "boolean": bool, "null": type(None), "array": list, "object": dict}
    return isinstance(value, kinds.get(kind, object))


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
        return _union([one for one in shape.of if one != NULL])
    return shape
