"""Headers of our requests: those of the entry, of the protocol, and those that a tool asks for."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator
from typing import Any, cast

import msgspec

from mcp_workbench.core.errors import shown_name
from mcp_workbench.core.raw_json import TOO_COMPLEX, Inside, read_elements, read_members
from mcp_workbench.core.spec import Pairs
from mcp_workbench.protocol.handshake import IMPLEMENTATION
from mcp_workbench.transport.http.messages import encode_value

ANNOTATION = "x-mcp-header"
MOST_READ = 1 << 20  # bytes of annotated tools on one page
MOST_HEADERS = 100  # of one tool
NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
# Reserved: framing, and what the protocol derives from the body of a request.
RESERVED = frozenset(
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
ParamHeaders = dict[Path, str]  # the path of an argument, and the header that repeats its value


class BadHeader(ValueError):
    """A header of the entry that can't be sent."""


class BadAnnotation(ValueError):
    """A tool asks for headers in a way that the protocol does not allow."""


def entry_headers(pairs: Pairs, user: str = "") -> bytes:
    """The headers of a server's entry, sent with every request. Raises BadHeader."""
    lines: list[bytes] = []
    names = {name.lower() for name, _ in pairs}
    for name, value in pairs:
        if not _TOKEN.fullmatch(name):
            raise BadHeader(f"{name!r} can't be the name of a header: correct 'headers'")
        if name.lower() not in RESERVED:
            try:
                lines.append(f"{name}: {value.strip()}\r\n".encode("latin-1"))
            except UnicodeEncodeError:
                raise BadHeader(
                    f"the header {name!r} has characters that no header can carry"
                ) from None
    if user and "authorization" not in names:
        lines.append(b"Authorization: Basic %b\r\n" % b64encode(user.encode()))
    if "user-agent" not in names:
        lines.append(
            f"User-Agent: {IMPLEMENTATION['name']}/{IMPLEMENTATION['version']}\r\n".encode()
        )
    if "accept-encoding" not in names:
        lines.append(b"Accept-Encoding: gzip, deflate\r\n")
    return b"".join(lines)


class _Named(msgspec.Struct):
    name: str = ""
    uri: str = ""
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


def modern_headers(
    method: str, params: msgspec.Raw, param_headers: dict[str, ParamHeaders]
) -> bytes:
    """`Mcp-Method`, `Mcp-Name` and `Mcp-Param-*` of a request, which repeat parts of its body."""
    lines = [f"Mcp-Method: {encode_value(method)}\r\n"]
    key = NAMED_BY.get(method)
    if key is not None:
        named = msgspec.json.decode(params, type=_Named)
        name = named.uri if key == "uri" else named.name
        lines.append(f"Mcp-Name: {encode_value(name)}\r\n")
        if method == "tools/call" and name in param_headers:
            lines += _param_headers(named.arguments, param_headers[name])
    return "".join(lines).encode("ascii")


def _param_headers(arguments: msgspec.Raw, headers: ParamHeaders) -> Iterator[str]:
    inside = Inside(arguments)
    for path, header in headers.items():
        value = _scalar(inside.at(path))
        if isinstance(value, bool):
            yield f"Mcp-Param-{header}: {'true' if value else 'false'}\r\n"
        elif isinstance(value, str | int):
            yield f"Mcp-Param-{header}: {encode_value(str(value))}\r\n"


def _scalar(raw: bytes) -> Any:
    """A string, number or boolean; None for what no header repeats."""
    if raw[:1] in (b"", b"{", b"["):
        return None
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError:  # a number too large
        return None


class _ToolName(msgspec.Struct):
    name: str = ""


class _Tool(_ToolName):
    inputSchema: Any = None  # noqa: N815 - the protocol's name


class _Tools(msgspec.Struct):
    tools: msgspec.Raw = msgspec.Raw(b"[]")


def screen_tools(result: bytes) -> tuple[bytes, dict[str, ParamHeaders], list[str]]:
    """A page of tools without invalid header annotations; the headers of the others; complaints."""
    kept: list[msgspec.Raw] = []
    param_headers: dict[str, ParamHeaders] = {}
    complaints: list[str] = []
    tools = read_elements(msgspec.json.decode(result, type=_Tools).tools)
    budget = MOST_READ
    for raw in tools:
        if ANNOTATION.encode() in bytes(raw):
            budget -= len(raw)
            try:
                name, headers = _tool_headers(raw, budget)
            except BadAnnotation as error:
                complaints.append(str(error))
                continue
            param_headers[name] = headers
        kept.append(raw)
    if len(kept) < len(tools):
        members = read_members(result)
        members["tools"] = msgspec.Raw(msgspec.json.encode(kept))
        result = msgspec.json.encode(members)
    return result, param_headers, complaints


def _tool_headers(raw: msgspec.Raw, budget: int) -> tuple[str, ParamHeaders]:
    """The tool's name and the headers that it asks for. Raises BadAnnotation with the complaint."""
    try:
        tool = msgspec.json.decode(raw, type=_Tool if budget >= 0 else _ToolName)
    except msgspec.DecodeError:
        tool = _Tool()  # malformed in another way, which the listing reports
    if not isinstance(tool, _Tool):
        raise BadAnnotation(_left_out(tool, f"its schema is {TOO_COMPLEX}"))
    try:
        return tool.name, annotated_headers(tool.inputSchema)
    except BadAnnotation as error:
        raise BadAnnotation(_left_out(tool, str(error))) from None


def _left_out(tool: _ToolName, reason: str) -> str:
    return f"the tool {shown_name(tool.name)!r} was left out: {reason}"


def annotated_headers(schema: Any) -> ParamHeaders:
    """Which arguments are repeated in which header. Raises BadAnnotation."""
    headers: ParamHeaders = {}
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
        headers[path] = header
    return headers


# Keywords with subschemas. Only `properties` leads to a named argument.
_SINGLE = frozenset(
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
_LISTS = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_BY_NAME = frozenset(("patternProperties", "dependentSchemas", "$defs", "definitions"))


def _annotated(root: Any) -> Iterator[tuple[Path | None, dict[str, Any]]]:
    """Every annotated subschema, with its path of properties; None where it has none."""
    todo: list[tuple[Path | None, Any]] = [((), root)]
    while todo:
        path, schema = todo.pop()
        if not isinstance(schema, dict):
            continue
        node = cast("dict[str, Any]", schema)
        if ANNOTATION in node:
            yield path, node
        for key, value in node.items():
            if key == "properties" and isinstance(value, dict):
                inner = cast("dict[str, Any]", value)
                todo += [(None if path is None else (*path, n), s) for n, s in inner.items()]
            else:
                todo += [(None, sub) for sub in _subschemas(key, value)]


def _subschemas(key: str, value: Any) -> list[Any]:
    if key in _SINGLE:
        return [value]
    if key in _LISTS and isinstance(value, list):
        return cast("list[Any]", value)
    if key in _BY_NAME and isinstance(value, dict):
        return list(cast("dict[str, Any]", value).values())
    return []
