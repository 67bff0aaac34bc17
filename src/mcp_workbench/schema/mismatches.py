"""Compares values with their schema: every mismatch with its path, as far as that is certain.

Patterns and formats are left to the server: dialects differ, and some patterns never end. So is
everything behind a reference that can't be resolved. A budget of steps bounds the work; beyond it
TooComplex is raised.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Literal, NamedTuple, cast

import msgspec

from mcp_workbench.core.errors import did_you_mean
from mcp_workbench.core.raw_json import Steps, TooComplex
from mcp_workbench.schema.document import (
    CHARACTERS,
    TYPES,
    Refs,
    Unresolvable,
    as_list,
    as_object,
    is_type,
    json_text,
    properties_of,
    required_of,
    type_of,
    types_of,
)
from mcp_workbench.schema.signature import MARK, name_text

Json = dict[str, Any]
Path = tuple[str | int, ...]
MismatchKind = Literal["type", "value", "limit", "missing", "unknown", "forbidden", "choice"]

MOST = 8  # mismatches that are explained
ITEMS = 1000  # of a list that are checked
DEEPEST = 32
LONGEST = 60  # characters of a value or a choice that is quoted
LONGEST_NAME = 200  # characters of a name in a path
STEPS = 20_000  # for one call: nested choices can ask for any number
GUESSES = 200  # names among which a mistyped one is looked for
_BOUNDS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "minimum": (operator.lt, "must be at least"),
    "maximum": (operator.gt, "must be at most"),
    "exclusiveMinimum": (operator.le, "must be above"),
    "exclusiveMaximum": (operator.ge, "must be below"),
}
_SIZES: dict[str, tuple[type, Callable[[int, int], bool], str]] = {
    "minLength": (str, operator.lt, "must have at least {} characters"),
    "maxLength": (str, operator.gt, "must have at most {} characters"),
    "minItems": (list, operator.lt, "must have at least {} items"),
    "maxItems": (list, operator.gt, "must have at most {} items"),
}


class Mismatch(msgspec.Struct, frozen=True):
    """One thing that a schema refuses."""

    kind: MismatchKind
    path: Path  # of the value, or of the member that is missing or unknown
    schema: Json = {}  # that refuses the value
    value: Any = None
    detail: str = ""  # the limit in words, or a hint at the name that was meant


def mismatches(schema: Any, value: Any) -> Iterator[Mismatch]:
    """Yields what is wrong, in the order of the values. Raises TooComplex, also after some mismatches."""
    return _Checker(schema).check(schema, value, _Place())


def explain(schema: Any, arguments: Any) -> list[str]:
    """Returns the first mismatches as text. Raises TooComplex if the steps suffice for none."""
    lines: list[str] = []
    try:
        lines.extend(_line(m) for m in islice(mismatches(schema, arguments), MOST))
    except TooComplex:
        if not lines:
            raise
    return lines


class _Place(NamedTuple):
    """The path of a value, and the references by which its schema was reached."""

    path: Path = ()
    trail: tuple[str, ...] = ("#",)

    def inner(self, key: str | int) -> _Place:
        return _Place((*self.path, key), ())


class _Checker:
    def __init__(self, root: Any) -> None:
        self._steps = Steps(STEPS)
        self._refs = Refs(root, self._steps)

    def check(self, schema: Any, value: Any, place: _Place) -> Iterator[Mismatch]:
        self._steps.take()
        if schema is False:
            yield Mismatch("forbidden", place.path, value=value)
            return
        try:
            schema, trail = self._refs.resolve(schema, place.trail)
        except Unresolvable:
            return
        if not isinstance(schema, dict) or len(place.path) > DEEPEST:
            return
        yield from self._resolved(cast("Json", schema), value, place._replace(trail=trail))

    def _resolved(self, schema: Json, value: Any, place: _Place) -> Iterator[Mismatch]:
        self._take_for(schema, value)
        if _has_wrong_type(schema, value):
            yield Mismatch("type", place.path, schema, value)
        elif _has_wrong_value(schema, value):
            yield Mismatch("value", place.path, schema, value)
        else:
            for limit in _exceeded(schema, value):
                yield Mismatch("limit", place.path, schema, value, limit)
            yield from self._choices(schema, value, place)
            yield from self._inside(schema, value, place)

    def _take_for(self, schema: Json, value: Any) -> None:
        """Takes the steps for the value itself, which is compared with each of those allowed."""
        choices = ("const" in schema) + len(as_list(schema.get("enum")))
        if choices and isinstance(value, list | dict):
            choices *= 1 + len(msgspec.json.encode(value)) // CHARACTERS
        self._steps.take(choices + len(as_list(schema.get("type"))))

    def _inside(self, schema: Json, value: Any, place: _Place) -> Iterator[Mismatch]:
        if isinstance(value, dict):
            yield from self._members(schema, cast("Json", value), place)
        items: Any = schema.get("items")
        if isinstance(value, list) and isinstance(items, dict) and "prefixItems" not in schema:
            for index, item in enumerate(cast("list[Any]", value)[:ITEMS]):
                yield from self.check(items, item, place.inner(index))

    def _members(self, schema: Json, value: Json, place: _Place) -> Iterator[Mismatch]:
        self._steps.take(len(value) + len(as_list(schema.get("required"))))
        properties = properties_of(schema)
        strange = [name for name in value if name not in properties]
        closed = is_closed(schema)
        for name in required_of(schema):
            if name not in value:
                hint = "" if closed else self._near(name, strange)
                yield Mismatch("missing", (*place.path, name), schema, detail=hint)
        more: Any = schema.get("additionalProperties")
        for name, inner in value.items():
            rule = properties.get(name, more if isinstance(more, dict) else None)
            if rule is not None:
                yield from self.check(rule, inner, place.inner(name))
            elif closed and name not in properties:
                hint = self._near(name, (known for known in properties if known not in value))
                yield Mismatch("unknown", (*place.path, name), schema, inner, hint)

    def _near(self, name: str, known: Iterable[str]) -> str:
        self._steps.take(GUESSES)
        return did_you_mean(name, list(islice(known, GUESSES)))

    def _choices(self, schema: Json, value: Any, place: _Place) -> Iterator[Mismatch]:
        for part in as_list(schema.get("allOf")):
            yield from self.check(part, value, place)
        for key in ("anyOf", "oneOf"):
            branches = as_list(schema.get(key))
            wrong: list[list[Mismatch]] = []
            for branch in branches:
                wrong.append(list(self.check(branch, value, place)))
                if not wrong[-1]:
                    break
            if wrong and all(wrong):
                of_type = [
                    w for w, b in zip(wrong, branches, strict=True) if _names_type_of(b, value)
                ]
                fits_none = [Mismatch("choice", place.path, schema, value)]
                yield from of_type[0] if len(of_type) == 1 else fits_none


def is_closed(schema: Json) -> bool:
    """Does the schema forbid members that it does not name?"""
    return schema.get("additionalProperties") is False and "patternProperties" not in schema


def allowed_values(schema: Json) -> list[Any]:
    """Returns the values that a schema lists; empty if it lists none."""
    return [schema["const"]] if "const" in schema else as_list(schema.get("enum"))


def _known_types(schema: Json) -> list[str]:
    types = types_of(schema)
    return types if all(name in TYPES for name in types) else []


def _has_wrong_type(schema: Json, value: Any) -> bool:
    types = _known_types(schema)
    return bool(types) and not any(is_type(value, name) for name in types)


def _names_type_of(schema: Any, value: Any) -> bool:
    """Does this branch name the type of the value, so that only its inside is wrong?"""
    own = as_object(schema)
    return bool(_known_types(own)) and not _has_wrong_type(own, value)


def _has_wrong_value(schema: Json, value: Any) -> bool:
    allowed = allowed_values(schema)
    if not allowed or any(value == one and type(value) is type(one) for one in allowed):
        return False
    return isinstance(value, bool) or all(value != one for one in allowed)  # 1 is 1.0, not true


def _exceeded(schema: Json, value: Any) -> Iterator[str]:
    for key, (is_wrong, words) in _BOUNDS.items() if is_type(value, "number") else ():
        bound: Any = schema.get(key)
        if is_type(bound, "number") and is_wrong(value, bound):
            yield f"{words} {_short(bound)}"
    for key, (kind, is_wrong, words) in _SIZES.items():
        size: Any = schema.get(key)
        if isinstance(value, kind) and is_type(size, "number") and is_wrong(len(value), size):
            yield words.format(size)


# Text


def _line(mismatch: Mismatch) -> str:
    path, text = _path_text(mismatch.path), _text(mismatch)
    return f"{path}: {text}" if path else text


def _text(mismatch: Mismatch) -> str:
    hint = mismatch.detail
    match mismatch.kind:
        case "type":
            types = " or ".join(types_of(mismatch.schema))
            return f"Expected {types}, received {type_of(mismatch.value)}"
        case "value":
            return _value_text(mismatch.value, allowed_values(mismatch.schema))
        case "limit":
            return mismatch.detail
        case "missing":
            return f"Required{f', got {_quoted_name(hint)}' if hint else ''}"
        case "unknown":
            return f"unknown.{f' {hint}' if hint else ''}"
        case "forbidden":
            return "not allowed"
        case "choice":
            return "fits none of the forms that are allowed"


def _value_text(value: Any, allowed: list[Any]) -> str:
    hint = ""
    if isinstance(value, str):
        texts = (one for one in allowed if isinstance(one, str))
        hint = did_you_mean(value, islice(texts, GUESSES))
    shown = ", ".join(_short(one) for one in allowed[:MOST])
    more = f", {MARK}" if len(allowed) > MOST else ""
    return f"must be one of {shown}{more}, not {_short(value)}.{f' {hint}' if hint else ''}"


def _path_text(path: Path) -> str:
    text = ""
    for key in path:
        if isinstance(key, int):
            text += f"[{key}]"
        else:
            name = name_text(key if len(key) <= LONGEST_NAME else f"{key[:LONGEST_NAME]}{MARK}")
            text += f".{name}" if text else name
    return text


def _short(value: Any) -> str:
    text = ""
    for piece in _pieces(value):
        text += piece
        if len(text) > LONGEST:
            return f"{text[:LONGEST]}{MARK}"
    return text


def _pieces(value: Any) -> Iterator[str]:
    """Yields JSON in small parts, so that no more of it is written than is shown."""
    if isinstance(value, dict):
        for number, (name, inner) in enumerate(cast("Json", value).items()):
            yield f"{',' if number else '{'}{json_text(name[: LONGEST + 1])}:"
            yield from _pieces(inner)
        yield "}" if value else "{}"
    elif isinstance(value, list):
        for number, item in enumerate(cast("list[Any]", value)):
            yield "," if number else "["
            yield from _pieces(item)
        yield "]" if value else "[]"
    else:
        yield json_text(value[: LONGEST + 1] if isinstance(value, str) else value)


def _quoted_name(hint: str) -> str:
    """Returns the name in a `Did you mean 'name'?`."""
    return hint.removeprefix("Did you mean ").removesuffix("?")
