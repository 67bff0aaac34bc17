"""What is wrong with typed arguments, in words for a person: the schema is read by `schema.check`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import msgspec

from mcp_workbench.core.catalogue import ToolInfo
from mcp_workbench.core.errors import did_you_mean
from mcp_workbench.core.raw_json import TooComplex
from mcp_workbench.schema.check import Mismatch, Path, allowed_values, is_closed, mismatches
from mcp_workbench.schema.document import properties_of, types_of
from mcp_workbench.schema.signature import type_text
from mcp_workbench.transport.json_text import read_json

Json = dict[str, Any]

_MOST_SHOWN = 12  # choices of an enumeration in a message
_WORDS: dict[Any, str] = {
    str: "text",
    bool: "true or false",
    int: "a number",
    float: "a number",
    list: "an array",
    dict: "an object",
    type(None): "null",
}


def misfits(tool: ToolInfo, arguments: Json, texts: set[str]) -> list[str]:
    """Returns what the schema refuses, the worst first. `texts` were typed as `name=text`."""
    wrong = list(_mismatches(tool, arguments))
    missing = [str(m.path[0]) for m in wrong if m.kind == "missing" and len(m.path) == 1]
    strange, free = _names(tool, arguments)
    lines = [_several("missing", missing, tool)] if missing else []
    if missing:
        lines += [f"got: {name}{_near(name, free)}" for name in strange]
    elif is_closed(tool.input_schema):
        lines += [f"{_several('unknown', [name], tool)}{_near(name, free)}" for name in strange]
    inner = (m for m in wrong if len(m.path) > (m.kind in ("missing", "unknown")))
    return lines + [line for m in inner if (line := _line(m, texts))]


def remarks(tool: ToolInfo, arguments: Json) -> list[str]:
    """Returns what the schema allows although it is probably a slip."""
    if not properties_of(tool.input_schema) or is_closed(tool.input_schema):
        return []
    strange, free = _names(tool, arguments)
    near = {name: _near(name, free) for name in strange}
    return [f"{_several('unknown', [name], tool)}{hint}" for name, hint in near.items() if hint]


def _mismatches(tool: ToolInfo, arguments: Json) -> Iterator[Mismatch]:
    try:
        yield from mismatches(tool.input_schema, arguments, direct=True)
    except TooComplex:  # the server decides about the rest
        return


def _names(tool: ToolInfo, arguments: Json) -> tuple[list[str], list[str]]:
    """Returns the arguments that the schema does not name, and its names that were not given."""
    properties = properties_of(tool.input_schema)
    strange = [name for name in arguments if name not in properties]
    return strange, [name for name in properties if name not in arguments]


def _line(mismatch: Mismatch, texts: set[str]) -> str:
    """Returns one mismatch in words; nothing for those that are left to the server."""
    *parents, name = mismatch.path
    match mismatch.kind:
        case "type":
            return _mistyped(mismatch, typed=not parents and name in texts)
        case "value":
            return _unlisted(mismatch)
        case "missing":
            return f"missing '{name}' in argument '{_dotted(parents)}'"
        case "unknown":
            hint = _in_brackets(mismatch.detail)
            return f"unknown '{name}' in argument '{_dotted(parents)}'{hint}"
        case _:
            return ""


def _mistyped(mismatch: Mismatch, *, typed: bool) -> str:
    path, value, schema = _dotted(mismatch.path), mismatch.value, mismatch.schema
    words = _WORDS[cast("Any", type(value))]
    line = f"argument '{path}' takes {type_text(schema)}, not {words}"
    if typed:
        return f"{line}: write {path}:={_as_json(value)}"
    if "string" in types_of(schema) and "." not in path and "[" not in path:
        return f"{line}: write {path}={msgspec.json.encode(value).decode()}"
    return line


def _unlisted(mismatch: Mismatch) -> str:
    names = [str(choice) for choice in allowed_values(mismatch.schema)]
    shown = ", ".join(names[:_MOST_SHOWN]) + (", …" if len(names) > _MOST_SHOWN else "")
    value = str(mismatch.value)
    path = _dotted(mismatch.path)
    return f"argument '{path}' takes one of {shown}; not '{value}'{_near(value, names)}"


def _dotted(path: Path | list[str | int]) -> str:
    text = ""
    for key in path:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else key
    return text


def _as_json(text: str) -> str:
    try:
        read_json(text)
    except (ValueError, RecursionError):
        return "JSON"
    return text


def _several(fault: str, names: list[str], tool: ToolInfo) -> str:
    owner = f"{tool.toolbox_name}/{tool.source_server}/{tool.name}"
    listed = ", ".join(f"'{name}'" for name in names)
    return f"{fault} argument{'s' if len(names) > 1 else ''} {listed} for {owner}"


def _near(name: str, known: list[str]) -> str:
    return _in_brackets(did_you_mean(name, known))


def _in_brackets(hint: str) -> str:
    return f" (did{hint.removeprefix('Did')})" if hint else ""
