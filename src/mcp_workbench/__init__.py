"""MCP Workbench: one MCP server in front of many. Names are loaded on first use."""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` itself is four milliseconds that importing us does without
if TYPE_CHECKING:
    from mcp_workbench.config.load import load_config
    from mcp_workbench.core.call_request import OpenToolboxInput, UseToolInput
    from mcp_workbench.core.catalogue import OpenToolboxResult, ToolInfo
    from mcp_workbench.core.errors import ConfigError, WorkbenchError
    from mcp_workbench.core.spec import ToolIdentifier, generate_tool_name, parse_tool_name
    from mcp_workbench.gateway.approvals import ApprovalRequest
    from mcp_workbench.gateway.workbench import Workbench

__version__ = "0.11.0"

__all__ = [
    "ApprovalRequest",
    "ConfigError",
    "OpenToolboxInput",
    "OpenToolboxResult",
    "ToolIdentifier",
    "ToolInfo",
    "UseToolInput",
    "Workbench",
    "WorkbenchError",
    "__version__",
    "generate_tool_name",
    "load_config",
    "parse_tool_name",
]

_HOME = {
    "ApprovalRequest": "gateway.approvals",
    "ConfigError": "core.errors",
    "OpenToolboxInput": "core.call_request",
    "OpenToolboxResult": "core.catalogue",
    "ToolIdentifier": "core.spec",
    "ToolInfo": "core.catalogue",
    "UseToolInput": "core.call_request",
    "Workbench": "gateway.workbench",
    "WorkbenchError": "core.errors",
    "generate_tool_name": "core.spec",
    "load_config": "config.load",
    "parse_tool_name": "core.spec",
}


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
