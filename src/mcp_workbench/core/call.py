"""One call of a tool: what every surface produces, and all that the workbench needs."""

import msgspec

from mcp_workbench.core.names import ToolIdentifier


class ToolCall(msgspec.Struct, frozen=True):
    """Which tool, and the members of `params` as the host wrote them (its name apart)."""

    tool: ToolIdentifier
    params: dict[str, msgspec.Raw]
    modern_host: bool = False
