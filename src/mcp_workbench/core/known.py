"""What a server offered when it was last connected, and how that differs from the time before."""

from collections.abc import Iterator

import msgspec

from mcp_workbench.core.catalogue import Catalogue, Definition, Stale, tool_info
from mcp_workbench.core.reports import OpenedServer, ServerReport, ToolChange
from mcp_workbench.core.spec import ServerSpec


class Known(msgspec.Struct, frozen=True):
    """What a server offered. A call never trusts it: the server itself is asked."""

    catalogue: Catalogue
    modern: bool
    revision: str = ""
    server_name: str = ""
    server_version: str = ""
    instructions: str = ""
    capabilities: dict[str, bool] = {}  # by the names of era/declared.py
    seconds: float = 0.0  # that it took to start
    at: float = 0.0  # when it said so
    change: ToolChange | None = None  # the last one that was noticed
    # Prompts, resources and templates as received; a kind that nobody has asked for is not here.
    offers: dict[str, tuple[bytes, ...]] = {}

    def age(self, now: float) -> float:
        """Seconds; a clock that was set back makes nothing younger than new."""
        return max(now - self.at, 0.0)

    def opened(self, spec: ServerSpec, now: float, why: str) -> OpenedServer:
        """The server as its toolbox shows it while it is not there, and what is wrong with it, if anything."""
        stale = Stale(spec.address.server, round(self.age(now)), why) if why else None
        tools = tuple(self._visible(spec))
        return OpenedServer(spec.address, tools, self.modern, connected=False, stale=stale)

    def report(self, spec: ServerSpec, now: float) -> ServerReport:
        """The same for people."""
        tools = tuple(tool_info(tool, spec.address) for tool in self._visible(spec))
        return ServerReport(
            spec.address,
            revision=self.revision,
            server_name=self.server_name,
            server_version=self.server_version,
            tools=tools,
            hidden=len(self.catalogue.tools) - len(tools),
            idle_filters=tuple(spec.tools.idle(self.catalogue.names)),
            seconds=self.seconds,
            age=self.age(now),
            change=self.change,
        )

    def _visible(self, spec: ServerSpec) -> Iterator[Definition]:
        return (tool for name, tool in self.catalogue.tools.items() if spec.tools.shows(name))


def compared(before: Known, after: Known) -> ToolChange | None:
    """How the tools differ, if they do; their order is no difference."""
    old, new = before.catalogue.tools, after.catalogue.tools
    if old == new:
        return None
    return ToolChange(
        before.at,
        after.at,
        added=tuple(name for name in new if name not in old),
        removed=tuple(name for name in old if name not in new),
        changed=tuple(name for name in new if name in old and new[name] != old[name]),
    )
