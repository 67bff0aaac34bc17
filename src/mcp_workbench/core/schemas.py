"""JSON Schemas as data: references followed inside their document, remarks left out."""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import unquote

import msgspec

from mcp_workbench.core.raw_json import Steps, TooComplex

Json = dict[str, Any]

# What a schema says about itself or for readers. No caller's arguments depend on it.
REMARKS = frozenset(
    ("title", "description", "default", "$schema", "$id", "id", "$comment", "examples", "example",
     "readOnly", "writeOnly", "deprecated", "$defs", "definitions", "$anchor", "$vocabulary")
)  # fmt: skip
_OF_SCHEMAS = ("properties", "patternProperties", "dependentSchemas")  # names of the file's own
_OF_VALUES = ("enum", "const", "required", "dependentRequired")
MOST_INLINE = 2000  # parts of a schema that is written out as it is
MOST_HOPS = 64  # from one reference to the next
LONGEST_REF = 1000  # characters
STEPS = 40_000  # for one document
CHARACTERS = 32  # of a text that is written, in one step


class Beyond(Exception):
    """A schema that lies in itself, or outside of its document."""


def told_by(key: str) -> bool:
    """Does this keyword demand something?"""
    return key not in REMARKS and not key.startswith("x-")


class Refs:
    """The references of one document, and the steps for reading it. A remote one is never fetched."""

    def __init__(self, root: Any, steps: Steps | None = None) -> None:
        self._root = root
        self.steps = Steps(STEPS) if steps is None else steps

    def followed(self, schema: Any, trail: tuple[str, ...]) -> tuple[Any, tuple[str, ...]]:
        """The schema that is meant, with what stands beside its reference; and the way there.

        Raises Beyond where it leads nowhere, and TooComplex where the way is too long.
        """
        last = len(trail) + MOST_HOPS
        while isinstance(schema, dict) and "$ref" in schema:
            own = cast("Json", schema)
            ref: Any = own["$ref"]
            if ref in trail:
                raise Beyond
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
            raise Beyond
        if len(ref) > LONGEST_REF:
            raise TooComplex
        self.steps.take(1 + ref.count("/"))
        found: Any = self._root
        for part in unquote(ref[1:]).split("/")[1:] if ref != "#" else ():
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and _is_index(key, cast("list[Any]", found)):
                found = cast("list[Any]", found)[int(key)]
            elif isinstance(found, dict) and key in found:
                found = cast("Json", found)[key]
            else:
                raise Beyond
        if ref not in ("#", "#/") and "/" not in ref:
            raise Beyond  # an anchor
        return found


def _is_index(key: str, found: list[Any]) -> bool:
    return key.isascii() and key.isdigit() and int(key) < len(found)


def plain(schema: Any, refs: Refs, trail: tuple[str, ...]) -> Any:
    """A schema without references and remarks. Raises Beyond or TooComplex where that has no end."""
    return _Plain(refs).schema(schema, trail)


class _Plain:
    def __init__(self, refs: Refs) -> None:
        self._refs = refs
        self._left = MOST_INLINE

    def schema(self, schema: Any, trail: tuple[str, ...]) -> Any:
        self._left -= 1
        if self._left < 0:
            raise Beyond
        schema, trail = self._refs.followed(schema, trail)
        if isinstance(schema, list | dict):
            self._refs.steps.take(len(cast("Any", schema)))
        if isinstance(schema, list):
            return [self.schema(one, trail) for one in cast("list[Any]", schema)]
        if not isinstance(schema, dict):
            return schema
        told = {key: value for key, value in cast("Json", schema).items() if told_by(key)}
        return {key: self._member(key, value, trail) for key, value in told.items()}

    def _member(self, key: str, value: Any, trail: tuple[str, ...]) -> Any:
        if key in _OF_VALUES:
            return value
        if key in _OF_SCHEMAS and isinstance(value, dict):
            members = cast("Json", value)
            return {name: self.schema(one, trail) for name, one in members.items()}
        return self.schema(value, trail)


def json_text(value: Any) -> str:
    """JSON on one line, in signs that can be seen: no text of a server can forge a line."""
    return seen(msgspec.json.encode(value).decode())


def seen(json: str) -> str:
    """JSON with escapes in the place of signs that can't be seen."""
    if json.isprintable():
        return json
    return json.translate(
        {ord(sign): _escape(sign) for sign in set(json) if not sign.isprintable()}
    )


def _escape(sign: str) -> str:
    return "".join(f"\\u{unit:04x}" for unit in _units(sign))


def _units(sign: str) -> list[int]:
    data = sign.encode("utf-16-be", "surrogatepass")
    return [data[at] << 8 | data[at + 1] for at in range(0, len(data), 2)]
