"""One call of a tool: what every surface produces, and all that the workbench needs."""

import msgspec

from mcp_workbench.core.names import ToolIdentifier


class ToolCall(msgspec.Struct, frozen=True):
    """Which tool, and what the host wrote beside its name: other members of `params`, and `_meta`."""

    tool: ToolIdentifier
    params: dict[str, msgspec.Raw]
    meta: dict[str, msgspec.Raw] = {}
    modern_host: bool = False
    capabilities: msgspec.Raw = msgspec.Raw(b"{}")  # what the host may be asked for, to be declared
