"""A tool's arguments on one line, and what its definition says and costs."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from mcp_workbench.core.catalogue import ToolInfo
from mcp_workbench.core.tokens import tokens as estimated

Json = dict[str, Any]

_SHORT = {"string": "str", "integer": "int", "boolean": "bool"}
_MOST_CHOICES = 5  # of an enumeration; more would hide the rest of the line


def signature(tool: ToolInfo, *, types: bool = True) -> str:
    """`create_issue(owner: str, title: str, [labels: str[]])`: the required ones first."""
    properties, required = properties_of(tool.input_schema), required_of(tool.input_schema)
    spelled = {n: f"{n}: {kind_of(schema)}" if types else n for n, schema in properties.items()}
    needed = [text for name, text in spelled.items() if name in required]
    optional = [f"[{text}]" for name, text in spelled.items() if name not in required]
    return f"{tool.name}({', '.join(needed + optional)})"


def tokens(tool: ToolInfo) -> int:
    """About what the definition costs a model."""
    return estimated(msgspec.json.encode(tool.definition).decode())


def characters(tool: ToolInfo) -> int:
    """How long the definition is, as compact JSON."""
    return len(msgspec.json.encode(tool.definition).decode())


def read_only(tool: ToolInfo) -> bool | None:
    """What the tool claims of itself; nothing where it claims nothing."""
    hint = _object(tool.definition.get("annotations")).get("readOnlyHint")
    return hint if isinstance(hint, bool) else None


def properties_of(schema: Json) -> dict[str, Json]:
    """The arguments, or the members of one of them."""
    return {name: _object(inner) for name, inner in _object(schema.get("properties")).items()}


def required_of(schema: Json) -> list[str]:
    names: Any = schema.get("required")
    if not isinstance(names, list):
        return []
    return [name for name in cast("list[Any]", names) if isinstance(name, str)]


def kinds_of(schema: Json) -> list[str]:
    """The types that a schema names."""
    kinds: Any = schema.get("type")
    listed = cast("list[Any]", kinds) if isinstance(kinds, list) else [kinds]
    return [kind for kind in listed if isinstance(kind, str)]


def kind_of(schema: Json) -> str:
    """The same as a person reads it: `str`, `int[]`, `open|closed`."""
    choices: Any = schema.get("enum")
    if isinstance(choices, list) and len(cast("list[Any]", choices)) <= _MOST_CHOICES:
        return "|".join(str(choice) for choice in cast("list[Any]", choices))
    if kinds_of(schema) == ["array"]:
        return f"{kind_of(_object(schema.get('items')))}[]"
    return "|".join(_SHORT.get(kind, kind) for kind in kinds_of(schema)) or "any"


def _object(value: Any) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}
