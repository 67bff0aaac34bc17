"""Arguments that a tool wants repeated in headers: both must say the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

import msgspec

from mcp_workbench.bounded import Inside
from mcp_workbench.core.steps import TOO_COMPLEX
from mcp_workbench.wire.headers import decode_value
from mcp_workbench.wire.http_message import Request

ANNOTATION = "x-mcp-header"
PREFIX = "mcp-param-"
MOST_READ = 512 << 10  # bytes of a tool's definition

_MARK = ANNOTATION.encode()
_DECIMAL = re.compile(r"(-?[0-9]+)(?:\.0+)?")

Path = tuple[str, ...]


class _Tool(msgspec.Struct):
    inputSchema: Any = None  # noqa: N815 - the wire's word


def differing(request: Request, definition: bytes, arguments: msgspec.Raw) -> str:
    """The header that does not say what the arguments say; empty where all do."""
    if _MARK not in definition:
        return ""
    if len(definition) > MOST_READ:
        return f"Mcp-Param-* (the tool's schema is {TOO_COMPLEX})"
    schema = msgspec.json.decode(definition, type=_Tool).inputSchema
    inside = Inside(arguments)
    for path, header, kind in _annotated(schema, ()):
        key = f"{PREFIX}{header}".lower().encode()
        told = request.headers.get(key)
        value = inside.at(path)
        carried = value[:1] not in (b"", b"n", b"{", b"[")  # not absent, null, object or list
        if key in request.doubled or (told is not None) != carried:
            return f"Mcp-Param-{header}"
        if told is not None and not _same(kind, value, decode_value(told)):
            return f"Mcp-Param-{header}"
    return ""


def _annotated(schema: Any, path: Path) -> Iterator[tuple[Path, str, Any]]:
    """The annotated arguments; only names of properties lead to one."""
    below: list[tuple[Any, Path]] = [(schema, path)]
    while below:
        node, path = below.pop()
        if not isinstance(node, dict):
            continue
        node = cast("dict[str, Any]", node)
        if path and isinstance(header := node.get(ANNOTATION), str):
            yield path, header, node.get("type")
        properties = node.get("properties")
        if isinstance(properties, dict):
            inner = cast("dict[str, Any]", properties)
            below += [(inner[name], (*path, name)) for name in reversed(inner)]


def _same(kind: Any, value: bytes, told: str | None) -> bool:
    if value[:1] == b'"':
        return msgspec.json.decode(value) == told
    text = value.decode()
    if kind == "integer" and told is not None:
        ours, theirs = _DECIMAL.fullmatch(text), _DECIMAL.fullmatch(told)
        if ours and theirs:
            return _whole(ours[1]) == _whole(theirs[1])
    return text == told


def _whole(digits: str) -> str:
    """An integer in one spelling. Digits are compared, not numbers: they may be many."""
    plain = digits.lstrip("-").lstrip("0")
    return f"-{plain}" if plain and digits[0] == "-" else plain
