"""One host's conversation: its era, its requests, each answered exactly once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from mcp_workbench.core.call import ToolCall
from mcp_workbench.core.errors import InvalidCall, WorkbenchError
from mcp_workbench.core.names import ToolIdentifier
from mcp_workbench.era.ourselves import STAMPS
from mcp_workbench.era.translate import Members, complete
from mcp_workbench.surface import texts, wishes
from mcp_workbench.surface.beside_tools import BesideTools
from mcp_workbench.surface.errands import Errands, Work
from mcp_workbench.surface.express import ExpressLane
from mcp_workbench.surface.greeting import discover_result, initialize_result, offered_revision
from mcp_workbench.surface.host_call import HostCall, UnderWay
from mcp_workbench.surface.menu import Collision, Menu
from mcp_workbench.surface.meta_tools import read_plain_call
from mcp_workbench.surface.question_desk import ROOTS_CHANGED, Asked, QuestionDesk
from mcp_workbench.surface.reading import (
    HostEra,
    Refusal,
    cancelled_id,
    read_meta,
    read_name,
    read_params,
)
from mcp_workbench.surface.toolbox_desk import ToolboxDesk
from mcp_workbench.wire import envelope
from mcp_workbench.wire.envelope import Envelope
from mcp_workbench.wire.stdio import Channel
from mcp_workbench.wire.tasks import TaskScope
from mcp_workbench.workbench import Workbench

if TYPE_CHECKING:
    from mcp_workbench.surface.asking import Asking

log = logging.getLogger(__name__)

Handler = Callable[[bytes, Members, Members], None]  # id, members of params, members of _meta


class HostSession:
    """A host on a channel. `receive` takes its messages; nothing in it waits."""

    def __init__(  # noqa: PLR0913 - what one host is made of
        self,
        workbench: Workbench,
        channel: Channel,
        scope: TaskScope,
        menu: Menu,
        *,
        asked: Asked = "by modern servers",
        asking: Asking | None = None,
    ) -> None:
        self.era = HostEra()
        self.questions = self._questions = QuestionDesk(self, asking, workbench.beside)
        self._workbench = workbench
        if asked != "by modern servers":
            self._workbench = workbench.for_host(self._questions, alone=asked == "by all servers")
            if asking is None:  # exchanges share a menu, and list what all of them share
                menu.belong_to(self._workbench)
        self._channel = channel
        self._errands = Errands(scope, lambda id: self.refuse(id, _OUR_FAULT))
        self._menu = menu
        self.under_way = self._under_way = UnderWay()
        self._on_idle: Callable[[], None] | None = None
        self._beside = BesideTools(self, self._questions, self._workbench, menu, self._under_way)
        self._toolboxes = ToolboxDesk(self, self._workbench, menu, self._beside)
        self.express = ExpressLane(self, self._workbench, menu, self._beside)
        self._methods: dict[str, Handler] = {
            "tools/call": self._tools_call,
            "tools/list": self._toolboxes.list_tools,
            "initialize": self._initialize,
            "server/discover": self._discover,
            "ping": self._ping,
        }
        desk = self._toolboxes
        self._stop_hearing = workbench.on_change(desk.tools_changed, desk.reloaded)

    # In

    def receive(self, message: Envelope) -> None:
        """One message of the host. Nothing in it may raise: on a pipe that would end the reading."""
        method = message.method
        if not method:
            self._questions.answer(message)
            return
        id = bytes(message.id)
        if not id:
            self._notified(method, message.params)
            return
        if id in self._under_way or not envelope.usable_id(id):
            used = id in self._under_way
            problem = "id is in use" if used else "id must be a string or an integer"
            error = envelope.error_object(envelope.INVALID_REQUEST, problem)
            self._channel.send(envelope.refusal(b"", error), id)
            return
        try:
            plain = method == "tools/call" and not self._menu.careful
            if plain and self._call_plainly(id, message.params):
                return
            members = read_params(message.params)
            meta = read_meta(members.pop("_meta", None))
            self.era.check(method, members, meta)
            self._questions.declared(meta)  # whatever server this request may open is told
            self._handler(method)(id, members, self._beside.levelled(meta))
        except Refusal as refusal:
            self.refuse(id, refusal.error)
        except Exception:  # a fault of ours costs one request, not the conversation
            log.exception("%r failed", method)
            self.refuse(id, _OUR_FAULT)

    def _notified(self, method: str, params: msgspec.Raw) -> None:
        if method == "notifications/cancelled":
            self.cancel(cancelled_id(params), "cancelled by the host")
        elif method == ROOTS_CHANGED:
            self._questions.roots_changed(self._workbench.all_live)

    def _handler(self, method: str) -> Handler:
        found = self._methods.get(method) or self._beside.handler(method)
        if found is None or (self.era.modern and method == "ping"):
            raise Refusal(envelope.METHOD_NOT_FOUND, f"Method not found: {method}")
        return found

    # Openings

    def _initialize(self, id: bytes, members: Members, meta: Members) -> None:
        self._questions.declare(members.get("capabilities"))
        offered = offered_revision(members)
        self.era.revision, result = initialize_result(offered, self._workbench.snapshot)
        self.reply(id, result)

    def _discover(self, id: bytes, members: Members, meta: Members) -> None:
        self.reply(id, discover_result(self._workbench.snapshot))

    def _ping(self, id: bytes, members: Members, meta: Members) -> None:
        self.reply(id, b"{}")

    # Tools

    def _call_plainly(self, id: bytes, params: msgspec.Raw) -> bool:
        """The road of nearly every call: one reading decides. Anything unusual is False."""
        plain = read_plain_call(params)
        if plain is None:
            return False
        meta: Members = {}
        if plain.meta or not self.era.legacy:
            meta = read_meta(plain.meta)
            self.era.check("tools/call", {}, meta)
        if meta or self._beside.log_level is not None:
            meta = self._beside.levelled(meta)
        wish = plain.arguments
        tool = ToolIdentifier(wish.tool.toolbox, wish.tool.server, wish.tool.tool)
        declared = self._questions.declared(meta)
        call = ToolCall(tool, {"arguments": wish.arguments}, meta, self.era.modern, declared)
        self.use(HostCall(self, id, call, flat=False))
        return True

    def _tools_call(self, id: bytes, members: Members, meta: Members) -> None:
        name = read_name(members)
        if self._menu.bare:
            said = self._questions.opening(id, ToolIdentifier("", "", name), members, meta)
            if said is not None:
                self.run(id, self._call_barely, id, name, said, meta)
            return
        mode = self._workbench.snapshot.tool_mode
        try:
            wish = wishes.read_wish(mode, name, members, meta, modern_host=self.era.modern)
        except wishes.UnknownTool as error:
            raise Refusal(envelope.INVALID_PARAMS, str(error)) from None
        except InvalidCall as error:
            self.reply_own(id, texts.error_result(error))
            return
        if isinstance(wish, wishes.UseTool):
            self._use_again(id, wish, self._questions.declared(meta))
            return
        what = ToolIdentifier(wish.toolbox, "", name)
        if not wish.toolbox or self._questions.opening(id, what, members, meta) is not None:
            self.run(id, self._toolboxes.answer, id, wish)

    async def _call_barely(self, id: bytes, name: str, members: Members, meta: Members) -> None:
        """A call under the server's own name, answered as the server itself would."""
        try:
            tool = await self._menu.route(name)
            if tool is None:
                raise Refusal(  # noqa: TRY301 - told with the others below
                    envelope.INVALID_PARAMS, f"Unknown tool: {name}"
                )
            members.setdefault("arguments", wishes.NO_ARGUMENTS)
            call = ToolCall(tool, members, meta, self.era.modern)
            self._use_again(id, wishes.UseTool(call), self._questions.declared(meta))
        except Collision as error:
            self.refuse(id, envelope.error_object(envelope.INTERNAL_ERROR, str(error)))
        except Refusal as refusal:
            self.refuse(id, refusal.error)

    def _use_again(self, id: bytes, wish: wishes.UseTool, declared: msgspec.Raw) -> None:
        """A call that may bring answers to questions of an earlier one."""
        call = msgspec.structs.replace(wish.call, capabilities=declared)
        now = self._questions.returned(id, call)
        if now is not None:
            self._toolboxes.use(id, now, flat=wish.flat)

    def use(self, host_call: HostCall) -> None:
        """Begin a call, at once or as soon as its server is ready."""
        self._under_way[host_call.id] = host_call
        try:
            if not self._workbench.begin(host_call.call, host_call):
                self.run(host_call.id, self._dispatch, host_call)
        except WorkbenchError as error:
            host_call.failed(error)

    async def _dispatch(self, host_call: HostCall) -> None:
        try:
            await self._workbench.dispatch(host_call.call, host_call)
        except WorkbenchError as error:
            host_call.failed(error)

    # Requests that wait, and those that are taken back

    def run(self, id: bytes, work: Work, *args: Any) -> None:
        """Answer a request in a task of its own."""
        self._under_way.setdefault(id, None)
        self._errands.start(id, work, *args)

    def cancel(self, id: bytes, reason: str) -> None:
        """Take a request back: its server is told, and it is not answered."""
        if id not in self._under_way:
            return
        host_call = self._under_way.pop(id)
        self._errands.cancel(id)
        self._beside.cancelled(id)
        if host_call is not None:
            host_call.cancel(reason)
        self._rest()

    def stop(self, id: bytes) -> None:
        """Leave a request unperformed; it is answered in another way."""
        self._errands.cancel(id)

    # Out

    @property
    def sender(self) -> HostSession:
        return self

    def put(self, frame: bytes, about: bytes) -> None:
        """Send a question of a server."""
        self._channel.send(frame, about)

    def reply(self, id: bytes, result: msgspec.Raw | bytes) -> None:
        """Answer with a result that is right for the host's era already."""
        self._channel.send(b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (id, result), id)
        self._under_way.pop(id, None)
        if self._on_idle is not None:
            self._rest()

    def reply_own(self, id: bytes, result: bytes) -> None:
        """Answer with a result of our own making."""
        self.reply(id, complete(result, STAMPS) if self.era.modern else result)

    def refuse(self, id: bytes, error: msgspec.Raw | bytes) -> None:
        self._channel.send(envelope.refusal(id, error), id)
        self._under_way.pop(id, None)
        self._rest()

    def notify(self, method: str, params: bytes = b"", about: bytes = b"") -> None:
        """Tell the host something; `about` is the request that it belongs to, if any."""
        self._channel.send(envelope.notification(method, params), about)

    def close(self) -> None:
        """The host is gone: what it asked for is taken back."""
        self._stop_hearing()
        self._beside.close()
        self._questions.close()
        self._workbench.release()
        for id in list(self._under_way):
            self.cancel(id, "the host is gone")

    def when_idle(self, act: Callable[[], None]) -> None:
        """Call `act` as soon as no request is under way."""
        self._beside.end_listening()
        self._on_idle = act
        self._rest()

    def _rest(self) -> None:
        if self._on_idle is not None and not self._under_way:
            self._on_idle()


_OUR_FAULT = envelope.error_object(envelope.INTERNAL_ERROR, "the workbench failed; see its log")
