"""What the two meta-tools take, as values for Python programs."""

from typing import Any

import msgspec

from mcp_workbench.core.names import ToolIdentifier


class UseToolInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of `use_tool`: which tool, and what to hand to it."""

    tool: ToolIdentifier
    arguments: dict[str, Any] = {}


class OpenToolboxInput(msgspec.Struct, frozen=True):
    """Arguments of `open_toolbox`; other keys are ignored."""

    toolbox_name: str
