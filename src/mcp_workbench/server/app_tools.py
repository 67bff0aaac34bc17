"""Tools of apps: hosts that show apps list them, also in proxy mode.

Hosts show the page of a tool only if the tool is in their list. So beside our own tools there are those with a page,
under flat names, and the other tools that the app of the same server may call. A model sees the latter in
`open_toolbox` or not at all; here they are for the app alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from mcp_workbench.core.apps import for_app, has_page
from mcp_workbench.core.catalogue import Definition, OpenedServer
from mcp_workbench.core.primitive_names import owners_of_flat_name
from mcp_workbench.core.spec import SEPARATOR, ServerAddress, ServerSpec, ToolIdentifier
from mcp_workbench.server.flat_tools import ListReader, flat_definition, native_definition

if TYPE_CHECKING:
    from mcp_workbench.gateway.views import View


class AppTools:
    """The tools of apps that hosts with one view are shown."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._listed: set[ServerAddress] = set()  # servers that had an app

    def definitions(self, toolboxes: Iterable[str], reader: ListReader) -> Iterator[bytes]:
        """Flat definitions of these toolboxes, from what is known; no server is started."""
        for spec in self._specs(toolboxes):
            server = self._view.known_tools(spec)
            if server is not None and any(has_page(tool.raw) for tool in server.tools):
                self._listed.add(server.address)
                yield from _definitions(server, reader)

    def concerns(self, address: ServerAddress) -> bool:
        """Whether a change of this server's tools may be one of the tools of apps."""
        if address in self._listed:
            return True
        spec = self._view.snapshot.find(address)
        server = None if spec is None else self._view.known_tools(spec)
        return server is not None and any(has_page(tool.raw) for tool in server.tools)

    def find(self, name: str) -> ToolIdentifier | None:
        """The tool with this flat name. Names of toolboxes and servers may contain the separator."""
        if SEPARATOR not in name:
            return None
        specs = {spec.address: spec for spec in self._specs(self._view.snapshot.toolboxes)}
        owners = [
            ToolIdentifier(owner.address.toolbox, owner.address.server, owner.key)
            for owner in owners_of_flat_name(name, specs)
        ]
        if len(owners) > 1:
            owners.sort(key=lambda tool: not self._has(specs[tool.address], tool.tool))
        return owners[0] if owners else None

    def _has(self, spec: ServerSpec, name: str) -> bool:
        server = self._view.known_tools(spec)
        return server is not None and any(tool.name == name for tool in server.tools)

    def _specs(self, toolboxes: Iterable[str]) -> list[ServerSpec]:
        boxes = self._view.snapshot.toolboxes
        known = (boxes[name] for name in toolboxes if name in boxes)
        return [spec for box in known for spec in box.servers.values()]


def _definitions(server: OpenedServer, reader: ListReader) -> Iterator[bytes]:
    for tool in server.tools:
        raw = tool.raw if has_page(tool.raw) else for_app(tool.raw)
        if raw is not None:
            native = native_definition(Definition(tool.name, raw), server, reader)
            shown = Definition(tool.name, native)
            yield flat_definition(shown, server.address, is_tool=True)
