"""How arguments fail their schema, each problem with its path, as far as that can be said for sure."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, cast

from mcp_workbench.core.errors import did_you_mean
from mcp_workbench.core.schemas import Beyond, Refs, json_text
from mcp_workbench.core.signature import MARK, name_text

Json = dict[str, Any]

MOST = 8  # problems that are told
ITEMS = 1000  # of a list that are looked at
DEEPEST = 32
LONGEST = 60  # characters of a value or a choice that is quoted
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

    Patterns and formats are left to the server: dialects differ, and some patterns never end.
    """
    return list(islice(_Checker(schema).problems(schema, arguments, "", ("#",)), MOST))


class _Checker:
    def __init__(self, root: Any) -> None:
        self._refs = Refs(root)

    def problems(self, schema: Any, value: Any, path: str, trail: tuple[str, ...]) -> Iterator[str]:
        if schema is False:
            yield _told(path, "not allowed")
            return
        try:
            schema, trail = self._refs.followed(schema, trail if path == "" else ())
        except Beyond:
            return
        if not isinstance(schema, dict) or path.count(".") > DEEPEST:
            return
        own = cast("Json", schema)
        wrong = _wrong_kind(own, value) or _wrong_value(own, value)
        if wrong:
            yield _told(path, wrong)
            return
        yield from (_told(path, text) for text in _out_of_bounds(own, value))
        yield from self._choices(own, value, path, trail)
        yield from self._inside(own, value, path, trail)

    def _inside(self, schema: Json, value: Any, path: str, trail: tuple[str, ...]) -> Iterator[str]:
        if isinstance(value, dict):
            yield from self._members(schema, cast("Json", value), path, trail)
        items: Any = schema.get("items")
        if isinstance(value, list) and isinstance(items, dict) and "prefixItems" not in schema:
            for index, item in enumerate(cast("list[Any]", value)[:ITEMS]):
                yield from self.problems(items, item, f"{path}[{index}]", trail)

    def _members(
        self, schema: Json, value: Json, path: str, trail: tuple[str, ...]
    ) -> Iterator[str]:
        listed: Any = schema.get("properties")
        properties = cast("Json", listed) if isinstance(listed, dict) else {}
        strange = [name for name in value if name not in properties]
        more: Any = schema.get("additionalProperties")
        closed = more is False and "patternProperties" not in schema
        for name in _texts(schema.get("required")):
            if name not in value:
                near = did_you_mean(name, strange) if not closed else ""
                hint = f", got {_quoted(near)}" if near else ""
                yield _told(_at(path, name), f"Required{hint}")
        for name in strange if closed else ():
            free = [known for known in properties if known not in value]
            near = did_you_mean(name, free)
            yield _told(_at(path, name), f"unknown.{f' {near}' if near else ''}")
        for name, one in value.items():
            rule = properties.get(name, more if isinstance(more, dict) else None)
            if rule is not None:
                yield from self.problems(rule, one, _at(path, name), trail)

    def _choices(
        self, schema: Json, value: Any, path: str, trail: tuple[str, ...]
    ) -> Iterator[str]:
        for part in _list(schema.get("allOf")):
            yield from self.problems(part, value, path, trail)
        for key in ("anyOf", "oneOf"):
            branches = _list(schema.get(key))
            found = [list(self.problems(one, value, path, trail)) for one in branches]
            if found and all(found):
                fitting = [
                    f for f, one in zip(found, branches, strict=True) if _is_kind(one, value)
                ]
                yield from (
                    fitting[0]
                    if len(fitting) == 1
                    else [_told(path, "fits none of the forms that are allowed")]
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
        near = did_you_mean(value, [one for one in allowed if isinstance(one, str)])
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
    known = [kind for kind in listed if isinstance(kind, str)]
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


def _texts(value: Any) -> list[str]:
    return [one for one in _list(value) if isinstance(one, str)]


def _at(path: str, name: str) -> str:
    return f"{path}.{name_text(name)}" if path else name_text(name)


def _told(path: str, problem: str) -> str:
    return f"{path}: {problem}" if path else problem


def _short(value: Any) -> str:
    text = json_text(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}{MARK}"


def _quoted(hint: str) -> str:
    """The name in a `Did you mean 'name'?`."""
    return hint.removeprefix("Did you mean ").removesuffix("?")
