"""The headers of our requests: those of the entry, the protocol's, and those that a tool asks for."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator
from typing import Any, cast

import msgspec

from mcp_workbench.bounded import Inside, read_elements, read_members
from mcp_workbench.core.errors import shown_name
from mcp_workbench.core.spec import Pairs
from mcp_workbench.core.steps import TOO_COMPLEX
from mcp_workbench.era.ourselves import OURSELVES
from mcp_workbench.wire.headers import encode_value

ANNOTATION = "x-mcp-header"
MOST_READ = 1 << 20  # bytes of annotated tools on one page
MOST_HEADERS = 100  # that one tool may ask for
NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
# Ours to say: framing, and what the protocol ties to the body of a request.
OURS = frozenset(
    [
        "accept",
        "content-length",
        "content-type",
        "connection",
        "host",
        "transfer-encoding",
        "te",
        "upgrade",
        "mcp-protocol-version",
        "mcp-session-id",
        "mcp-method",
        "mcp-name",
        "last-event-id",
    ]
)
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_PRIMITIVE = ("string", "integer", "boolean")

Path = tuple[str, ...]
Wanted = dict[Path, str]  # where in the arguments a value lies, and the header that repeats it


class BadHeader(ValueError):
    """A header of the entry that can't be sent."""


class BadAnnotation(ValueError):
    """A tool asks for headers in a way that the protocol does not allow."""


def entry_headers(pairs: Pairs, user: str = "") -> bytes:
    """The headers of a server's entry as they are sent with every request."""
    lines: list[bytes] = []
    names = {name.lower() for name, _ in pairs}
    for name, value in pairs:
        if not _TOKEN.fullmatch(name):
            raise BadHeader(f"{name!r} can't be the name of a header: correct 'headers'")
        if name.lower() not in OURS:
            try:
                lines.append(f"{name}: {value.strip()}\r\n".encode("latin-1"))
            except UnicodeEncodeError:
                raise BadHeader(
                    f"the header {name!r} has characters that no header can carry"
                ) from None
    if user and "authorization" not in names:
        lines.append(b"Authorization: Basic %b\r\n" % b64encode(user.encode()))
    if "user-agent" not in names:
        lines.append(f"User-Agent: {OURSELVES['name']}/{OURSELVES['version']}\r\n".encode())
    if "accept-encoding" not in names:
        lines.append(b"Accept-Encoding: gzip, deflate\r\n")
    return b"".join(lines)


class _Named(msgspec.Struct):
    name: str = ""
    uri: str = ""
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


def modern_headers(method: str, params: msgspec.Raw, wanted: dict[str, Wanted]) -> bytes:
    """`Mcp-Method`, `Mcp-Name` and `Mcp-Param-*` of a request, which repeat its body."""
    lines = [f"Mcp-Method: {encode_value(method)}\r\n"]
    key = NAMED_BY.get(method)
    if key is not None:
        named = msgspec.json.decode(params, type=_Named)
        name = named.uri if key == "uri" else named.name
        lines.append(f"Mcp-Name: {encode_value(name)}\r\n")
        if method == "tools/call" and name in wanted:
            lines += _param_headers(named.arguments, wanted[name])
    return "".join(lines).encode("ascii")


def _param_headers(arguments: msgspec.Raw, wanted: Wanted) -> Iterator[str]:
    inside = Inside(arguments)
    for path, header in wanted.items():
        value = _scalar(inside.at(path))
        if isinstance(value, bool):
            yield f"Mcp-Param-{header}: {'true' if value else 'false'}\r\n"
        elif isinstance(value, str | int):
            yield f"Mcp-Param-{header}: {encode_value(str(value))}\r\n"


def _scalar(raw: bytes) -> Any:
    """A text, a number or a truth value; None for what no header repeats."""
    if raw[:1] in (b"", b"{", b"["):
        return None
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError:  # a number too large
        return None


class _ToolName(msgspec.Struct):
    name: str = ""


class _Tool(_ToolName):
    inputSchema: Any = None  # noqa: N815 - the wire's word


class _Tools(msgspec.Struct):
    tools: msgspec.Raw = msgspec.Raw(b"[]")


def screened(result: bytes) -> tuple[bytes, dict[str, Wanted], list[str]]:
    """A page of tools without those that ask for headers wrongly; what the others want; complaints."""
    kept: list[msgspec.Raw] = []
    wanted: dict[str, Wanted] = {}
    complaints: list[str] = []
    tools = read_elements(msgspec.json.decode(result, type=_Tools).tools)
    room = MOST_READ
    for raw in tools:
        if ANNOTATION.encode() in bytes(raw):
            room -= len(raw)
            try:
                name, headers = _asked_for(raw, room)
            except BadAnnotation as error:
                complaints.append(str(error))
                continue
            wanted[name] = headers
        kept.append(raw)
    if len(kept) < len(tools):
        members = read_members(result)
        members["tools"] = msgspec.Raw(msgspec.json.encode(kept))
        result = msgspec.json.encode(members)
    return result, wanted, complaints


def _asked_for(raw: msgspec.Raw, room: int) -> tuple[str, Wanted]:
    """The tool's name and the headers that it wants. Raises BadAnnotation with the whole complaint."""
    try:
        tool = msgspec.json.decode(raw, type=_Tool if room >= 0 else _ToolName)
    except msgspec.DecodeError:
        tool = _Tool()  # odd in another way, which others judge
    if not isinstance(tool, _Tool):
        raise BadAnnotation(_left_out(tool, f"its schema is {TOO_COMPLEX}"))
    try:
        return tool.name, wanted_headers(tool.inputSchema)
    except BadAnnotation as error:
        raise BadAnnotation(_left_out(tool, str(error))) from None


def _left_out(tool: _ToolName, reason: str) -> str:
    return f"the tool {shown_name(tool.name)!r} was left out: {reason}"


def wanted_headers(schema: Any) -> Wanted:
    """Which arguments are repeated in which header. Raises BadAnnotation."""
    wanted: Wanted = {}
    names: set[str] = set()
    for path, node in _annotated(schema):
        header = node[ANNOTATION]
        where = ".".join(path or ()) or "its schema"
        if not path:
            raise BadAnnotation(f"{ANNOTATION} where no argument is named")
        if not isinstance(header, str) or not _TOKEN.fullmatch(header):
            raise BadAnnotation(f"{ANNOTATION} of {where!r} is no name of a header")
        if node.get("type") not in _PRIMITIVE:
            raise BadAnnotation(
                f"{ANNOTATION} of {where!r}, which is no string, integer or boolean"
            )
        if header.lower() in names:
            raise BadAnnotation(f"{ANNOTATION} {header!r} stands twice")
        if len(names) == MOST_HEADERS:
            raise BadAnnotation(f"{ANNOTATION} stands more than {MOST_HEADERS} times")
        names.add(header.lower())
        wanted[path] = header
    return wanted


# Where a schema may have schemas inside. Only `properties` leads to a named argument.
_ONE = frozenset(
    [
        "items",
        "contains",
        "unevaluatedItems",
        "additionalProperties",
        "propertyNames",
        "unevaluatedProperties",
        "not",
        "if",
        "then",
        "else",
        "contentSchema",
    ]
)
_SOME = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_BY_NAME = frozenset(("patternProperties", "dependentSchemas", "$defs", "definitions"))


def _annotated(root: Any) -> Iterator[tuple[Path | None, dict[str, Any]]]:
    """Every annotated place in a schema, with its path of properties, or None off that path."""
    todo: list[tuple[Path | None, Any]] = [((), root)]
    while todo:
        path, found = todo.pop()
        if not isinstance(found, dict):
            continue
        node = cast("dict[str, Any]", found)
        if ANNOTATION in node:
            yield path, node
        for key, value in node.items():
            if key == "properties" and isinstance(value, dict):
                inner = cast("dict[str, Any]", value)
                todo += [(None if path is None else (*path, n), s) for n, s in inner.items()]
            else:
                todo += [(None, sub) for sub in _inside(key, value)]


def _inside(key: str, value: Any) -> list[Any]:
    if key in _ONE:
        return [value]
    if key in _SOME and isinstance(value, list):
        return cast("list[Any]", value)
    if key in _BY_NAME and isinstance(value, dict):
        return list(cast("dict[str, Any]", value).values())
    return []
