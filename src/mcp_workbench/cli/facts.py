"""What a tool's definition says of it, and what it costs."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from mcp_workbench.core.catalogue import ToolInfo
from mcp_workbench.core.shape import arguments_shape, value_shape
from mcp_workbench.core.signature import AMPLE, signature_within, spelled
from mcp_workbench.core.tokens import tokens as estimated

Json = dict[str, Any]

_LONG_KIND = 80  # characters; of what is longer, only the types are named


def signature(tool: ToolInfo, most: int = AMPLE) -> str:
    """As agents get it; above so many characters it is shortened."""
    return signature_within(most, tool.name, arguments_shape(tool.input_schema)).text


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
    """What an argument may be, as a signature says it: `string`, `int[]`, `"open"|"closed"`."""
    text = spelled(value_shape(schema)).text
    return text if len(text) <= _LONG_KIND else "|".join(kinds_of(schema))


def _object(value: Any) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}
