"""One path of the HTTP front: the toolboxes that it shows, and conversations with them."""

from __future__ import annotations

from mcp_workbench.gateway.views import View
from mcp_workbench.surface.asking import Asking
from mcp_workbench.surface.menu import Menu
from mcp_workbench.surface.session import HostSession
from mcp_workbench.wire.stdio import Channel
from mcp_workbench.wire.tasks import TaskScope


class Endpoint:
    """All toolboxes, or one."""

    def __init__(self, view: View, scope: TaskScope, opened: tuple[str, ...] = ()) -> None:
        self._view = view
        self._scope = scope
        self._opened = opened
        self._menu = Menu(view, opened)

    @property
    def gone(self) -> bool:
        """Was its one toolbox removed? Whoever has a session here is told so call by call."""
        return bool(self._opened) and not self._view.snapshot.toolboxes

    def session(self, channel: Channel) -> HostSession:
        """A conversation with a memory of its own: what it opens stays open."""
        menu = Menu(self._view, self._opened)
        return HostSession(self._view, channel, self._scope, menu, asked="by its own servers")

    def exchange(self, channel: Channel, asking: Asking) -> HostSession:
        """A conversation of one request; its questions are answered by another."""
        return HostSession(
            self._view,
            channel,
            self._scope,
            self._menu,
            asked="by its own servers",
            asking=asking,
        )

    def definition(self, name: str) -> bytes:
        """A tool as it was advertised under this name, as far as it is known; nothing is asked."""
        tool = self._menu.known(name)
        if tool is None:
            return b""
        toolbox = self._view.snapshot.toolboxes.get(tool.toolbox)
        spec = toolbox.servers.get(tool.server) if toolbox else None
        if spec is None:
            return b""
        catalogues = [connection.catalogue for connection in self._view.live([spec])]
        if not catalogues and (known := self._view.remembered(spec)) is not None:
            catalogues = [known.catalogue]  # the host's list came from there
        found = next((one.tools[tool.tool] for one in catalogues if tool.tool in one.tools), None)
        return b"" if found is None else found.raw
