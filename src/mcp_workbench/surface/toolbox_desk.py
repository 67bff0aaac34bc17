"""What a host sees of toolboxes: the list of tools, and opening one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from mcp_workbench.core.errors import WorkbenchError
from mcp_workbench.core.names import ServerAddress
from mcp_workbench.era.translate import Members
from mcp_workbench.surface import texts
from mcp_workbench.surface.beside_tools import BesideTools
from mcp_workbench.surface.menu import Collision, Menu
from mcp_workbench.surface.reading import HostEra, Refusal
from mcp_workbench.wire import envelope
from mcp_workbench.workbench import Workbench

if TYPE_CHECKING:
    from mcp_workbench.surface.errands import Work

LIST_CHANGED = "notifications/tools/list_changed"


class Session(Protocol):
    """What the desk needs of the session that it belongs to."""

    @property
    def era(self) -> HostEra: ...
    def reply_own(self, id: bytes, result: bytes) -> None: ...
    def refuse(self, id: bytes, error: bytes) -> None: ...
    def notify(self, method: str, params: bytes = b"", about: bytes = b"") -> None: ...
    def run(self, id: bytes, work: Work, *args: Any) -> None: ...


class ToolboxDesk:
    """Shows one host its menu, and keeps it up to date."""

    def __init__(
        self, session: Session, workbench: Workbench, menu: Menu, beside: BesideTools
    ) -> None:
        self._session = session
        self._workbench = workbench
        self._menu = menu
        self._beside = beside

    def list_tools(self, id: bytes, members: Members, meta: Members) -> None:
        if "cursor" in members and not envelope.is_null(members["cursor"]):
            raise Refusal(envelope.INVALID_PARAMS, "Unknown cursor: the list has one page")
        if self._menu.is_static:
            modern = self._session.era.modern
            self._session.reply_own(id, self._menu.static_list(modern=modern))
        else:
            self._session.run(id, self._live_list, id)

    async def _live_list(self, id: bytes) -> None:
        try:
            listed = await self._menu.live_list(modern=self._session.era.modern)
        except Collision as error:
            told = envelope.error_object(envelope.INTERNAL_ERROR, str(error))
            self._session.refuse(id, told)
        else:
            self._session.reply_own(id, listed)

    async def open(self, id: bytes, name: str) -> None:
        """Open a toolbox; what that changes of the host's lists is announced."""
        try:
            opened = await self._workbench.open(name)
        except WorkbenchError as error:
            self._session.reply_own(id, texts.error_result(error))
            return
        if self._menu.opened(name) and not self._session.era.modern:
            self._session.notify(LIST_CHANGED)
        self._session.reply_own(id, texts.text_result(self._menu.opened_text(opened)))
        await self._beside.opened(name)

    def tools_changed(self, server: ServerAddress) -> None:
        """A connected server has other tools than before."""
        if self._session.era.modern:
            self._beside.tools_changed(server)
        elif self._session.era.legacy and self._menu.shows(server.toolbox):
            self._session.notify(LIST_CHANGED)
