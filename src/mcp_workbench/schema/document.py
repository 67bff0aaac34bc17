"""The keywords of a JSON Schema, its references resolved inside the document, annotations removed."""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import unquote

import msgspec

from mcp_workbench.core.raw_json import Steps, TooComplex

Json = dict[str, Any]

# Keywords for readers. No argument depends on them.
ANNOTATIONS = frozenset(
    ("title", "description", "default", "$schema", "$id", "id", "$comment", "examples", "example",
     "readOnly", "writeOnly", "deprecated", "$defs", "definitions", "$anchor", "$vocabulary")
)  # fmt: skip
_OF_SCHEMAS = (
    "properties",
    "patternProperties",
    "dependentSchemas",
)  # their keys are names, not keywords
_OF_VALUES = ("enum", "const", "required", "dependentRequired")
MOST_INLINE = 2000  # parts of a schema that is shown as JSON
MOST_HOPS = 64  # reference to reference
LONGEST_REF = 1000  # characters
STEPS = 40_000  # for one document
CHARACTERS = 32  # of text that are written per step
_TYPES: dict[str, type] = {
    "string": str,
    "boolean": bool,
    "null": type(None),
    "array": list,
    "object": dict,
}
TYPES = frozenset((*_TYPES, "integer", "number"))


class Unresolvable(Exception):
    """A schema inside itself, or outside its document."""


# Keywords


def as_object(value: Any) -> Json:
    """Returns the value if it is an object, else an empty one."""
    return cast("Json", value) if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Returns the value if it is a list, else an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def properties_of(schema: Json) -> Json:
    """Returns the schemas of the named members."""
    return as_object(schema.get("properties"))


def required_of(schema: Json) -> list[str]:
    """Returns the names of the required members, each once."""
    names = as_list(schema.get("required"))
    return list(dict.fromkeys(name for name in names if isinstance(name, str)))


def types_of(schema: Json) -> list[str]:
    """Returns the types that a schema names, each once."""
    types: Any = schema.get("type")
    listed = cast("list[Any]", types) if isinstance(types, list) else [types]
    return list(dict.fromkeys(name for name in listed if isinstance(name, str)))


def type_of(value: Any) -> str:
    """Returns the type of a value; every number is a `number`."""
    return next((name for name, of in _TYPES.items() if isinstance(value, of)), "number")


def is_type(value: Any, name: str) -> bool:
    """Is the value of this type? Every value is of an unknown type."""
    if name in ("integer", "number"):
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return name == "number" or value == value // 1
    return isinstance(value, _TYPES.get(name, object))


def is_constraint(keyword: str) -> bool:
    """Does this keyword constrain a value?"""
    return keyword not in ANNOTATIONS and not keyword.startswith("x-")


def constraints(schema: Json) -> Json:
    """Returns the schema without its annotations."""
    return {key: value for key, value in schema.items() if is_constraint(key)}


# References


class Refs:
    """Resolves the references of one document within a budget. Remote ones are never fetched."""

    def __init__(self, root: Any, steps: Steps | None = None) -> None:
        self._root = root
        self.steps = Steps(STEPS) if steps is None else steps

    def resolve(self, schema: Any, trail: tuple[str, ...]) -> tuple[Any, tuple[str, ...]]:
        """Returns the referenced schema, with the keywords beside the reference, and the trail to it.

        Raises Unresolvable for a broken or circular reference, TooComplex for a chain that is too long.
        """
        last = len(trail) + MOST_HOPS
        while isinstance(schema, dict) and "$ref" in schema:
            own = cast("Json", schema)
            ref: Any = own["$ref"]
            if ref in trail:
                raise Unresolvable
            if len(trail) >= last:
                raise TooComplex
            schema = self._at(ref)
            trail = (*trail, str(ref))
            if isinstance(schema, dict) and len(own) > 1:
                self.steps.take(len(own) + len(cast("Json", schema)))
                beside = {key: value for key, value in own.items() if key != "$ref"}
                schema = {**cast("Json", schema), **beside}
        return cast("Any", schema), trail

    def _at(self, ref: Any) -> Any:
        if not isinstance(ref, str) or not ref.startswith("#"):
            raise Unresolvable
        if len(ref) > LONGEST_REF:
            raise TooComplex
        self.steps.take(1 + ref.count("/"))
        target: Any = self._root
        for part in unquote(ref[1:]).split("/")[1:] if ref != "#" else ():
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(target, list) and _is_index(key, cast("list[Any]", target)):
                target = cast("list[Any]", target)[int(key)]
            elif isinstance(target, dict) and key in target:
                target = cast("Json", target)[key]
            else:
                raise Unresolvable
        if ref not in ("#", "#/") and "/" not in ref:
            raise Unresolvable  # an anchor
        return target


def _is_index(key: str, items: list[Any]) -> bool:
    return key.isascii() and key.isdigit() and int(key) < len(items)


def plain(schema: Any, refs: Refs, trail: tuple[str, ...]) -> Any:
    """Returns a schema without references and annotations. Raises Unresolvable or TooComplex."""
    return _Plain(refs).schema(schema, trail)


class _Plain:
    def __init__(self, refs: Refs) -> None:
        self._refs = refs
        self._left = MOST_INLINE

    def schema(self, schema: Any, trail: tuple[str, ...]) -> Any:
        self._left -= 1
        if self._left < 0:
            raise Unresolvable
        schema, trail = self._refs.resolve(schema, trail)
        if isinstance(schema, list | dict):
            self._refs.steps.take(len(cast("Any", schema)))
        if isinstance(schema, list):
            return [self.schema(item, trail) for item in cast("list[Any]", schema)]
        if not isinstance(schema, dict):
            return schema
        own = constraints(cast("Json", schema))
        return {key: self._member(key, value, trail) for key, value in own.items()}

    def _member(self, key: str, value: Any, trail: tuple[str, ...]) -> Any:
        if key in _OF_VALUES:
            return value
        if key in _OF_SCHEMAS and isinstance(value, dict):
            members = cast("Json", value)
            return {name: self.schema(item, trail) for name, item in members.items()}
        return self.schema(value, trail)


# Text


def json_text(value: Any) -> str:
    """Returns JSON on one line in printable characters: no text of a server can forge a line."""
    return printable(msgspec.json.encode(value).decode())


def printable(json: str) -> str:
    """Returns JSON with unprintable characters escaped."""
    if json.isprintable():
        return json
    return json.translate(
        {ord(char): _escape(char) for char in set(json) if not char.isprintable()}
    )


def _escape(char: str) -> str:
    return "".join(f"\\u{unit:04x}" for unit in _utf16(char))


def _utf16(char: str) -> list[int]:
    data = char.encode("utf-16-be", "surrogatepass")
    return [data[at] << 8 | data[at + 1] for at in range(0, len(data), 2)]
