"""What a tool's definition says of it, and what it costs."""

from __future__ import annotations

import msgspec

from mcp_workbench.core.catalogue import ToolInfo
from mcp_workbench.core.token_estimate import estimate_tokens
from mcp_workbench.schema.document import as_object
from mcp_workbench.schema.shape import arguments_shape
from mcp_workbench.schema.signature import AMPLE, signature_within


def signature(tool: ToolInfo, most: int = AMPLE) -> str:
    """As agents get it; above so many characters it is shortened."""
    return signature_within(most, tool.name, arguments_shape(tool.input_schema)).text


def tokens(tool: ToolInfo) -> int:
    """About what the definition costs a model."""
    return estimate_tokens(msgspec.json.encode(tool.definition).decode())


def characters(tool: ToolInfo) -> int:
    """How long the definition is, as compact JSON."""
    return len(msgspec.json.encode(tool.definition).decode())


def read_only(tool: ToolInfo) -> bool | None:
    """What the tool claims of itself; nothing where it claims nothing."""
    hint = as_object(tool.definition.get("annotations")).get("readOnlyHint")
    return hint if isinstance(hint, bool) else None
