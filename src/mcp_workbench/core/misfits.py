"""How arguments fail their schema, each problem with its path, as far as that can be said for sure."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple, cast

import msgspec

from mcp_workbench.core.errors import did_you_mean
from mcp_workbench.core.schemas import CHARACTERS, Beyond, Refs, json_text
from mcp_workbench.core.signature import MARK, name_text
from mcp_workbench.core.raw_json import Steps, TooComplex

Json = dict[str, Any]

MOST = 8  # problems that are told
ITEMS = 1000  # of a list that are looked at
DEEPEST = 32
LONGEST = 60  # characters of a value or a choice that is quoted
LONGEST_NAME = 200  # characters of a name in a path
STEPS = 20_000  # for one call: branches of branches can ask for any number
GUESSES = 200  # names among which a mistyped one is looked for
_KINDS: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "boolean": bool,
    "null": type(None),
    "array": list,
    "object": dict,
}
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


def misfits(schema: Any, arguments: Any) -> list[str]:
    """What is wrong, the outermost first; nothing where all is well, or where only a server can tell.

    Patterns and formats are left to the server: dialects differ, and some patterns never end. Raises
    TooComplex where the steps do not suffice to find anything.
    """
    wrong: list[str] = []
    try:
        wrong.extend(islice(_Checker(schema).problems(schema, arguments, _Place()), MOST))
    except TooComplex:
        if not wrong:
            raise
    return wrong


class _Place(NamedTuple):
    """Where in the arguments a value lies, and by which references its schema was reached."""

    path: str = ""
    depth: int = 0
    trail: tuple[str, ...] = ("#",)

    def member(self, name: str) -> _Place:
        return _Place(_at(self.path, name), self.depth + 1, ())

    def item(self, index: int) -> _Place:
        return _Place(f"{self.path}[{index}]", self.depth + 1, ())

    def told(self, problem: str) -> str:
        return f"{self.path}: {problem}" if self.path else problem


class _Checker:
    def __init__(self, root: Any) -> None:
        self._steps = Steps(STEPS)
        self._refs = Refs(root, self._steps)

    def problems(self, schema: Any, value: Any, place: _Place) -> Iterator[str]:
        self._steps.take()
        if schema is False:
            yield place.told("not allowed")
            return
        try:
            schema, trail = self._refs.followed(schema, place.trail)
        except Beyond:
            return
        if not isinstance(schema, dict) or place.depth > DEEPEST:
            return
        own = cast("Json", schema)
        here = place._replace(trail=trail)
        self._take_for(own, value)
        wrong = _wrong_kind(own, value) or _wrong_value(own, value)
        if wrong:
            yield place.told(wrong)
            return
        yield from (place.told(text) for text in _out_of_bounds(own, value))
        yield from self._choices(own, value, here)
        yield from self._inside(own, value, here)

    def _take_for(self, schema: Json, value: Any) -> None:
        """The steps for a look at the value itself, which is compared with each of those allowed."""
        choices = ("const" in schema) + len(_list(schema.get("enum")))
        if choices and isinstance(value, list | dict):
            choices *= 1 + len(msgspec.json.encode(value)) // CHARACTERS
        self._steps.take(choices + len(_list(schema.get("type"))))

    def _inside(self, schema: Json, value: Any, place: _Place) -> Iterator[str]:
        if isinstance(value, dict):
            yield from self._members(schema, cast("Json", value), place)
        items: Any = schema.get("items")
        if isinstance(value, list) and isinstance(items, dict) and "prefixItems" not in schema:
            for index, item in enumerate(cast("list[Any]", value)[:ITEMS]):
                yield from self.problems(items, item, place.item(index))

    def _members(self, schema: Json, value: Json, place: _Place) -> Iterator[str]:
        listed: Any = schema.get("properties")
        properties = cast("Json", listed) if isinstance(listed, dict) else {}
        required = _list(schema.get("required"))
        self._steps.take(len(value) + len(required))
        strange = [name for name in value if name not in properties]
        more: Any = schema.get("additionalProperties")
        closed = more is False and "patternProperties" not in schema
        for name in required:
            if isinstance(name, str) and name not in value:
                near = self._near(name, strange) if not closed else ""
                hint = f", got {_quoted(near)}" if near else ""
                yield place.member(name).told(f"Required{hint}")
        for name in strange if closed else ():
            near = self._near(name, (known for known in properties if known not in value))
            yield place.member(name).told(f"unknown.{f' {near}' if near else ''}")
        for name, one in value.items():
            rule = properties.get(name, more if isinstance(more, dict) else None)
            if rule is not None:
                yield from self.problems(rule, one, place.member(name))

    def _near(self, name: str, known: Iterable[str]) -> str:
        self._steps.take(GUESSES)
        return did_you_mean(name, list(islice(known, GUESSES)))

    def _choices(self, schema: Json, value: Any, place: _Place) -> Iterator[str]:
        for part in _list(schema.get("allOf")):
            yield from self.problems(part, value, place)
        for key in ("anyOf", "oneOf"):
            branches = _list(schema.get(key))
            found: list[list[str]] = []
            for one in branches:
                found.append(list(self.problems(one, value, place)))
                if not found[-1]:
                    break
            if found and all(found):
                fitting = [
                    f for f, one in zip(found, branches, strict=True) if _is_kind(one, value)
                ]
                yield from (
                    fitting[0]
                    if len(fitting) == 1
                    else [place.told("fits none of the forms that are allowed")]
                )


def _wrong_kind(schema: Json, value: Any) -> str:
    kinds = _kinds(schema)
    if not kinds or any(_is(value, kind) for kind in kinds):
        return ""
    return f"Expected {' or '.join(kinds)}, received {_kind_of(value)}"


def _wrong_value(schema: Json, value: Any) -> str:
    allowed = [schema["const"]] if "const" in schema else _list(schema.get("enum"))
    if not allowed or any(value == one and type(value) is type(one) for one in allowed):
        return ""
    if any(value == one for one in allowed) and not isinstance(value, bool):
        return ""
    near = ""
    if isinstance(value, str):
        texts = (one for one in allowed if isinstance(one, str))
        near = did_you_mean(value, islice(texts, GUESSES))
    shown = ", ".join(_short(one) for one in allowed[:MOST])
    more = f", {MARK}" if len(allowed) > MOST else ""
    return f"must be one of {shown}{more}, not {_short(value)}.{f' {near}' if near else ''}"


def _out_of_bounds(schema: Json, value: Any) -> Iterator[str]:
    for key, (is_wrong, words) in _BOUNDS.items() if _is(value, "number") else ():
        bound: Any = schema.get(key)
        if _is(bound, "number") and is_wrong(value, bound):
            yield f"{words} {_short(bound)}"
    for key, (kind, is_wrong, words) in _SIZES.items():
        size: Any = schema.get(key)
        if isinstance(value, kind) and _is(size, "number") and is_wrong(len(value), size):
            yield words.format(size)


def _kinds(schema: Json) -> list[str]:
    kinds: Any = schema.get("type")
    listed = _list(kinds) if isinstance(kinds, list) else [kinds]
    known = list(dict.fromkeys(kind for kind in listed if isinstance(kind, str)))
    return known if all(k in _KINDS or k in ("integer", "number") for k in known) else []


def _is_kind(schema: Any, value: Any) -> bool:
    """Is the value of the right kind for this branch, and only its inside wrong?"""
    if not isinstance(schema, dict) or not _kinds(cast("Json", schema)):
        return False
    return not _wrong_kind(cast("Json", schema), value)


def _is(value: Any, kind: str) -> bool:
    if kind in ("integer", "number"):
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return kind == "number" or value == value // 1
    return isinstance(value, _KINDS[kind])


def _kind_of(value: Any) -> str:
    return next((kind for kind, of in _KINDS.items() if isinstance(value, of)), "number")


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _at(path: str, name: str) -> str:
    text = name_text(name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}{MARK}")
    return f"{path}.{text}" if path else text


def _short(value: Any) -> str:
    text = ""
    for piece in _pieces(value):
        text += piece
        if len(text) > LONGEST:
            return f"{text[:LONGEST]}{MARK}"
    return text


def _pieces(value: Any) -> Iterator[str]:
    """JSON in small parts, so that no more of it is written than is shown."""
    if isinstance(value, dict):
        for number, (name, one) in enumerate(cast("Json", value).items()):
            yield f"{',' if number else '{'}{json_text(name[: LONGEST + 1])}:"
            yield from _pieces(one)
        yield "}" if value else "{}"
    elif isinstance(value, list):
        for number, one in enumerate(cast("list[Any]", value)):
            yield "," if number else "["
            yield from _pieces(one)
        yield "]" if value else "[]"
    else:
        yield json_text(value[: LONGEST + 1] if isinstance(value, str) else value)


def _quoted(hint: str) -> str:
    """The name in a `Did you mean 'name'?`."""
    return hint.removeprefix("Did you mean ").removesuffix("?")
