"""What a host sees of toolboxes: the list of tools, and opening one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_workbench.core.errors import WorkbenchError
from mcp_workbench.core.names import ServerAddress
from mcp_workbench.era.translate import Members
from mcp_workbench.surface import texts
from mcp_workbench.surface.beside_tools import BesideTools
from mcp_workbench.surface.menu import Collision, Menu
from mcp_workbench.surface.meta_tools import open_toolbox_definition, own_definitions
from mcp_workbench.surface.parse import SEARCH_TOOLS, OpenToolbox, OwnTool, RequestError
from mcp_workbench.wire import envelope

if TYPE_CHECKING:
    from mcp_workbench.core.reload import Reloaded
    from mcp_workbench.surface.session import HostSession

LIST_CHANGED = "notifications/tools/list_changed"


class ToolboxDesk:
    """Shows one host its menu, and keeps it up to date."""

    def __init__(self, session: HostSession, menu: Menu, beside: BesideTools) -> None:
        self._session = session
        self._view = session.view
        self._menu = menu
        self._beside = beside
        menu.renew()  # hosts without a session share one, and may have missed a change

    def list_tools(self, id: bytes, members: Members, meta: Members) -> None:
        if "cursor" in members and not envelope.is_null(members["cursor"]):
            raise RequestError(envelope.INVALID_PARAMS, "Unknown cursor: the list has one page")
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
            self._session.reply(id, listed)

    async def _open(self, id: bytes, wanted: OpenToolbox) -> None:
        """Open a toolbox; what that changes of the host's lists is announced."""
        name = wanted.toolbox
        try:
            opened = await self._view.open(name)
        except WorkbenchError as error:
            result = texts.error_result(error, *self._view.gateway.warnings)
            self._session.reply_own(id, result)
            return
        if self._menu.opened(name) and not self._session.era.modern:
            self._session.notify(LIST_CHANGED)
        modern = self._session.era.modern
        result = await self._menu.opened_result(opened, wanted.detail, modern=modern)
        self._session.reply(id, result)
        await self._beside.opened(name)

    async def answer(self, id: bytes, wanted: OpenToolbox | OwnTool) -> None:
        """Answer a call of a tool of ours."""
        if isinstance(wanted, OpenToolbox):
            await self._open(id, wanted)
            return
        from mcp_workbench.surface import own_answers  # not before somebody searches

        try:
            if wanted.name == SEARCH_TOOLS:
                result = await own_answers.searched(self._view, wanted.arguments)
            else:
                result = own_answers.read(self._view, self._menu.owner, wanted.arguments)
        except WorkbenchError as error:
            result = texts.error_result(error)
        self._session.reply_own(id, result)

    def tools_changed(self, server: ServerAddress) -> None:
        """A connected server has other tools than before."""
        if server.toolbox not in self._view.snapshot.toolboxes:
            return
        if self._session.era.modern:
            self._beside.list_changed(LIST_CHANGED)
        elif self._session.era.legacy and self._menu.shows(server.toolbox):
            self._session.notify(LIST_CHANGED)

    def reloaded(self, change: Reloaded) -> None:
        """Another configuration holds: say which lists of the host differ, begin what may add to them."""
        era, menu, view = self._session.era, self._menu, self._view
        menu.renew()
        if not (era.modern or era.legacy):
            return
        before, after = view.scope.of(change.before), view.scope.of(change.after)
        either = {**before.toolboxes, **after.toolboxes}
        boxes = {box for box in either if menu.sees(box, modern=era.modern)}
        differ = {kind for box, kind in change.lists if box in boxes}
        kept = self._beside.lists_kept  # by the host, which wants to hear of their changes
        if not menu.dynamic:
            differ.discard("tools")
            kept = kept - {"tools"}
        elif era.legacy:
            kept = kept | {"tools"}
        ours = open_toolbox_definition if menu.dynamic else own_definitions
        if not menu.bare and ours(before) != ours(after):
            differ.add("tools")
        for kind in sorted(differ):
            self._list_changed(kind)
        plan, subscribed = change.plan, self._beside.subscribed
        view.revive(a for a in (*plan.changed, *plan.added) if kept and a.toolbox in boxes)
        view.revive(a for a in plan.changed if a in subscribed)

    def _list_changed(self, kind: str) -> None:
        method = f"notifications/{kind}/list_changed"
        if method == LIST_CHANGED and self._session.era.legacy:
            self._session.notify(LIST_CHANGED)
        else:
            self._beside.list_changed(method)
