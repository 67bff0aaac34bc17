"""Names of servers and tools, structured and flat."""

import msgspec

SEPARATOR = "__"


class ServerAddress(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """A server's place in the configuration."""

    toolbox: str
    server: str

    def __str__(self) -> str:
        return f"{self.toolbox}/{self.server}"


class ToolIdentifier(msgspec.Struct, frozen=True, order=True):
    """Identifies a tool: its toolbox, its server, and the name that the server gives it."""

    toolbox: str
    server: str
    tool: str

    @property
    def address(self) -> ServerAddress:
        return ServerAddress(self.toolbox, self.server)

    def __str__(self) -> str:
        return f"{self.toolbox}/{self.server}/{self.tool}"


def generate_tool_name(toolbox: str, server: str, tool: str) -> str:
    """Returns the flat name that dynamic mode shows for a tool."""
    return f"{toolbox}{SEPARATOR}{server}{SEPARATOR}{tool}"


def parse_tool_name(name: str) -> ToolIdentifier | None:
    """Splits a flat name at its first two separators; the rest is the tool's own name."""
    parts = name.split(SEPARATOR, 2)
    if len(parts) < 3 or not all(parts):
        return None
    return ToolIdentifier(*parts)
