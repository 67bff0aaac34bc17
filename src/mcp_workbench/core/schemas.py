"""JSON Schemas as data: references followed inside their document, remarks left out."""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import unquote

import msgspec

Json = dict[str, Any]

# What a schema says about itself or for readers. No caller's arguments depend on it.
REMARKS = frozenset(
    ("title", "description", "default", "$schema", "$id", "id", "$comment", "examples", "example",
     "readOnly", "writeOnly", "deprecated", "$defs", "definitions", "$anchor", "$vocabulary")
)  # fmt: skip
_OF_SCHEMAS = ("properties", "patternProperties", "dependentSchemas")  # names of the file's own
_OF_VALUES = ("enum", "const", "required", "dependentRequired")
MOST_INLINE = 2000  # parts of a schema that is written out as it is


class Beyond(Exception):
    """A schema that lies in itself, or outside of its document."""


def told_by(key: str) -> bool:
    """Does this keyword demand something?"""
    return key not in REMARKS and not key.startswith("x-")


class Refs:
    """The references of one document. A remote one is never fetched."""

    def __init__(self, root: Any) -> None:
        self._root = root

    def followed(self, schema: Any, trail: tuple[str, ...]) -> tuple[Any, tuple[str, ...]]:
        """The schema that is meant, with what stands beside its reference; and the way there."""
        while isinstance(schema, dict) and "$ref" in schema:
            own = cast("Json", schema)
            ref: Any = own["$ref"]
            if ref in trail:
                raise Beyond
            trail = (*trail, str(ref))
            found = self._at(ref)
            beside = {key: value for key, value in own.items() if key != "$ref"}
            schema = {**cast("Json", found), **beside} if isinstance(found, dict) else found
        return cast("Any", schema), trail

    def _at(self, ref: Any) -> Any:
        if not isinstance(ref, str) or not ref.startswith("#"):
            raise Beyond
        found: Any = self._root
        for part in unquote(ref[1:]).split("/")[1:] if ref != "#" else ():
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and key.isdigit() and int(key) < len(cast("Any", found)):
                found = cast("list[Any]", found)[int(key)]
            elif isinstance(found, dict) and key in found:
                found = cast("Json", found)[key]
            else:
                raise Beyond
        if ref not in ("#", "#/") and "/" not in ref:
            raise Beyond  # an anchor
        return found


def plain(schema: Any, refs: Refs, trail: tuple[str, ...]) -> Any:
    """A schema without references and remarks. Raises Beyond where that has no end."""
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
    text = msgspec.json.encode(value).decode()
    return text if text.isprintable() else "".join(map(_seen, text))


def _seen(sign: str) -> str:
    if sign.isprintable():
        return sign
    return "".join(f"\\u{unit:04x}" for unit in _units(sign))


def _units(sign: str) -> list[int]:
    data = sign.encode("utf-16-be", "surrogatepass")
    return [data[at] << 8 | data[at + 1] for at in range(0, len(data), 2)]
