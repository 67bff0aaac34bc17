"""Headers that tools of a modern server ask for, by annotations in their schemas."""

from collections.abc import Iterator
from typing import Any, cast

import msgspec

from mcp_workbench.core.errors import shown_name
from mcp_workbench.core.raw_json import TOO_COMPLEX, read_elements, read_members
from mcp_workbench.core.schema_paths import SchemaPlace, path_of
from mcp_workbench.upstream.http.requests import HEADER_NAME, ParamHeaders, Path

ANNOTATION = "x-mcp-header"
MOST_READ = 1 << 20  # bytes of annotated tools on one page
MOST_HEADERS = 100  # of one tool
_PRIMITIVE = ("string", "integer", "boolean")


class BadAnnotation(ValueError):
    """A tool asks for headers in a way that the protocol does not allow."""


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


class _ToolName(msgspec.Struct, frozen=True):
    name: str = ""


class _Tool(_ToolName, frozen=True):
    inputSchema: Any = None  # noqa: N815 - the protocol's name


class _Tools(msgspec.Struct, frozen=True):
    tools: msgspec.Raw = msgspec.Raw(b"[]")


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
        if not isinstance(header, str) or not HEADER_NAME.fullmatch(header):
            raise BadAnnotation(f"{ANNOTATION} of {where!r} is not a header name")
        if node.get("type") not in _PRIMITIVE:
            raise BadAnnotation(
                f"{ANNOTATION} of {where!r}, which is not a string, integer or boolean"
            )
        if header.lower() in names:
            raise BadAnnotation(f"{ANNOTATION} {header!r} is used twice")
        if len(names) == MOST_HEADERS:
            raise BadAnnotation(f"{ANNOTATION} is used more than {MOST_HEADERS} times")
        names.add(header.lower())
        headers[path] = header
    return headers


# Keywords with subschemas. Only `properties` leads to a named argument.
_SINGLE = frozenset(
    """
    items contains unevaluatedItems additionalProperties propertyNames unevaluatedProperties
    not if then else contentSchema
    """.split()  # noqa: SIM905 - names, read as a list of words
)
_LISTS = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_BY_NAME = frozenset(("patternProperties", "dependentSchemas", "$defs", "definitions"))


def _annotated(root: Any) -> Iterator[tuple[Path | None, dict[str, Any]]]:
    """Every annotated subschema, with its path of properties; None where it has none."""
    todo: list[tuple[bool, SchemaPlace | None, Any]] = [(True, None, root)]
    while todo:
        is_named, place, schema = todo.pop()
        if not isinstance(schema, dict):
            continue
        node = cast("dict[str, Any]", schema)
        if ANNOTATION in node:
            yield path_of(place) if is_named else None, node
        for key, value in node.items():
            if key == "properties" and isinstance(value, dict):
                inner = cast("dict[str, Any]", value)
                todo += [(is_named, SchemaPlace(place, name), part) for name, part in inner.items()]
            else:
                todo += [(False, None, part) for part in _subschemas(key, value)]


def _subschemas(key: str, value: Any) -> list[Any]:
    if key in _SINGLE:
        return [value]
    if key in _LISTS and isinstance(value, list):
        return cast("list[Any]", value)
    if key in _BY_NAME and isinstance(value, dict):
        return list(cast("dict[str, Any]", value).values())
    return []
