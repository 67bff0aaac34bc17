"""How a tool and a server are named, inside the program and on the flat surface."""

import msgspec

SEPARATOR = "__"


class ServerAddress(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """Where a server stands in the configuration."""

    toolbox: str
    server: str

    def __str__(self) -> str:
        return f"{self.toolbox}/{self.server}"


class ToolIdentifier(msgspec.Struct, frozen=True, order=True):
    """The one way to name a tool: its toolbox, its server, and the server's own name for it."""

    toolbox: str
    server: str
    tool: str

    @property
    def address(self) -> ServerAddress:
        return ServerAddress(self.toolbox, self.server)

    def __str__(self) -> str:
        return f"{self.toolbox}/{self.server}/{self.tool}"


def generate_tool_name(toolbox: str, server: str, tool: str) -> str:
    """The flat name under which dynamic mode shows a tool."""
    return f"{toolbox}{SEPARATOR}{server}{SEPARATOR}{tool}"


def parse_tool_name(name: str) -> ToolIdentifier | None:
    """Take a flat name apart: the first two separators count, the rest is the tool's own name."""
    parts = name.split(SEPARATOR, 2)
    if len(parts) < 3 or not all(parts):
        return None
    return ToolIdentifier(*parts)
