"""A tool's arguments on one line, and what is wrong with those that a person typed."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from mcp_workbench.core.catalogue import ToolInfo
from mcp_workbench.core.errors import did_you_mean

Json = dict[str, Any]

_SHORT = {"string": "str", "integer": "int", "boolean": "bool"}
_MOST_CHOICES = 5  # of an enumeration; more would hide the rest of the line


def signature(tool: ToolInfo, *, types: bool = True) -> str:
    """`create_issue(owner: str, title: str, [labels: str[]])`: the required ones first."""
    properties, required = _properties(tool), _required(tool)
    spelled = {n: f"{n}: {_kind(schema)}" if types else n for n, schema in properties.items()}
    needed = [text for name, text in spelled.items() if name in required]
    optional = [f"[{text}]" for name, text in spelled.items() if name not in required]
    return f"{tool.name}({', '.join(needed + optional)})"


def tokens(tool: ToolInfo) -> int:
    """About what the definition costs a model: bytes by four, a rule of thumb that is told as such."""
    return round(len(msgspec.json.encode(tool.definition)) / 4)


def read_only(tool: ToolInfo) -> bool | None:
    """What the tool claims of itself; nothing where it claims nothing."""
    hint = _object(tool.definition.get("annotations")).get("readOnlyHint")
    return hint if isinstance(hint, bool) else None


def misfits(tool: ToolInfo, arguments: Json, texts: set[str]) -> list[str]:
    """What is wrong with the arguments, the worst first. `texts` were typed as `name=text`."""
    properties = _properties(tool)
    missing = [name for name in _required(tool) if name not in arguments]
    strange = [name for name in arguments if name not in properties]
    closed = tool.input_schema.get("additionalProperties") is False
    free = [name for name in properties if name not in arguments]
    told = [_several("missing", missing, tool)] if missing else []
    if missing:
        told += [f"got: {name}{_near(name, free)}" for name in strange]
    elif closed:
        told += [f"{_several('unknown', [name], tool)}{_near(name, free)}" for name in strange]
    typed = [name for name in arguments if name in texts and name in properties]
    return told + [text for n in typed if (text := _mistyped(n, arguments[n], properties[n]))]


def _several(fault: str, names: list[str], tool: ToolInfo) -> str:
    whose = f"{tool.toolbox_name}/{tool.source_server}/{tool.name}"
    listed = ", ".join(f"'{name}'" for name in names)
    return f"{fault} argument{'s' if len(names) > 1 else ''} {listed} for {whose}"


def _near(name: str, known: list[str]) -> str:
    hint = did_you_mean(name, known)
    return f" (did{hint.removeprefix('Did')})" if hint else ""


def _mistyped(name: str, text: str, schema: Json) -> str:
    kinds = _kinds(schema)
    if not kinds or "string" in kinds:
        return ""
    return f"argument '{name}' takes {_kind(schema)}, not text: write {name}:={_as_json(text)}"


def _as_json(text: str) -> str:
    try:
        msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return "JSON"
    return text


def _properties(tool: ToolInfo) -> dict[str, Json]:
    properties = _object(tool.input_schema.get("properties"))
    return {name: _object(schema) for name, schema in properties.items()}


def _required(tool: ToolInfo) -> list[str]:
    names: Any = tool.input_schema.get("required")
    if not isinstance(names, list):
        return []
    return [name for name in cast("list[Any]", names) if isinstance(name, str)]


def _object(value: Any) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def _kinds(schema: Json) -> list[str]:
    kinds: Any = schema.get("type")
    listed = cast("list[Any]", kinds) if isinstance(kinds, list) else [kinds]
    return [kind for kind in listed if isinstance(kind, str)]


def _kind(schema: Json) -> str:
    choices: Any = schema.get("enum")
    if isinstance(choices, list) and len(cast("list[Any]", choices)) <= _MOST_CHOICES:
        return "|".join(str(choice) for choice in cast("list[Any]", choices))
    if _kinds(schema) == ["array"]:
        return f"{_kind(_object(schema.get('items')))}[]"
    return "|".join(_SHORT.get(kind, kind) for kind in _kinds(schema)) or "any"
