"""One host's conversation: its era, its requests, each answered exactly once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from mcp_workbench.core.call import TOOLS_CALL, CallRequest
from mcp_workbench.core.errors import InvalidCall, WorkbenchError
from mcp_workbench.core.names import ToolIdentifier
from mcp_workbench.era.ourselves import STAMPS
from mcp_workbench.era.revision import CLIENT_INFO_KEY
from mcp_workbench.era.translate import Members, complete
from mcp_workbench.gateway.interceptors import Rejected
from mcp_workbench.surface import parse, texts
from mcp_workbench.surface.beside_tools import BesideTools
from mcp_workbench.surface.calls import HostCall, OwnCall, UnderWay
from mcp_workbench.surface.errands import Errands, Work
from mcp_workbench.surface.greeting import discover_result, initialize_result
from mcp_workbench.surface.menu import Collision, Menu
from mcp_workbench.surface.parse import HostEra, Message, RequestError, UseToolRequest
from mcp_workbench.surface.question_desk import ROOTS_CHANGED, Asked, QuestionDesk
from mcp_workbench.surface.toolbox_desk import ToolboxDesk
from mcp_workbench.wire import envelope
from mcp_workbench.wire.envelope import NOTHING, Envelope
from mcp_workbench.wire.stdio import Channel
from mcp_workbench.wire.tasks import TaskScope

if TYPE_CHECKING:
    from mcp_workbench.gateway.views import View
    from mcp_workbench.surface.asking import Asking

log = logging.getLogger(__name__)

Handler = Callable[[bytes, Members, Members], None]  # id, members of params, members of _meta

# Requests that reach a server on the host's behalf.
CALLS = frozenset({TOOLS_CALL, "prompts/get", "resources/read", "completion/complete"})


class HostSession:
    """A host on a channel. `receive` takes its messages; nothing in it waits."""

    def __init__(  # noqa: PLR0913 - what one host is made of
        self,
        view: View,
        channel: Channel,
        scope: TaskScope,
        menu: Menu,
        *,
        asked: Asked = "by modern servers",
        asking: Asking | None = None,
    ) -> None:
        self.era = HostEra()
        self.under_way = UnderWay()
        self.questions = QuestionDesk(self, asking, view.gateway.suspended)
        self.view = view
        if asked != "by modern servers":
            self.view = view.for_host(self.questions, sole=asked == "by all servers")
            if asking is None:  # exchanges share a menu, and list what all of them share
                menu.belong_to(self.view)
        self._channel = channel
        self._errands = Errands(scope, lambda id: self.refuse(id, _OUR_FAULT))
        self._menu = menu
        self._client_info = NOTHING
        self._is_draining = False
        self._on_idle: Callable[[], None] | None = None
        self._beside = BesideTools(self, menu)
        self._toolboxes = desk = ToolboxDesk(self, menu, self._beside)
        self._methods: dict[str, Handler] = {
            TOOLS_CALL: self._tools_call,
            "tools/list": desk.list_tools,
            "initialize": self._initialize,
            "server/discover": self._discover,
            "ping": self._ping,
        }
        self._stop_hearing = view.gateway.on_change(desk.tools_changed, desk.reloaded)

    @property
    def host_name(self) -> str:
        """The host by its own name; empty where it has not said one."""
        return parse.client_name(self._client_info)

    @property
    def results_owner(self) -> object:
        """Whose results are kept when they are cut."""
        return self._menu.owner

    # In

    def receive(self, message: Message) -> None:
        """One message of the host. Nothing in it may raise: on a pipe that would end the reading."""
        method, id = message.method, bytes(message.id)
        if not method or not id:
            self._receive_other(message.whole() if isinstance(message, UseToolRequest) else message)
            return
        if id in self.under_way or not envelope.usable_id(id):
            used = id in self.under_way
            problem = "id is in use" if used else "id must be a string or an integer"
            error = envelope.error_object(envelope.INVALID_REQUEST, problem)
            self._channel.send(envelope.refusal(b"", error), id)
            return
        try:
            if self._is_draining and method != "ping":
                self._turn_away(id, method)
            elif isinstance(message, UseToolRequest):
                self._use_tool(id, message)
            else:
                self._request(id, message)
        except RequestError as error:
            self._refuse_request(id, method, error)
        except Exception:  # a fault of ours costs one request, not the conversation
            log.exception("%r failed", method)
            self.refuse(id, _OUR_FAULT)

    def _receive_other(self, message: Envelope) -> None:
        """A notification, or an answer to a question of a server."""
        if not message.method:
            self.questions.answer(message)
        elif message.method == "notifications/cancelled":
            self.cancel(parse.cancelled_id(message.params), "cancelled by the host")
        elif message.method == ROOTS_CHANGED:
            self.questions.roots_changed(self.view.gateway.connected)

    def _request(self, id: bytes, message: Envelope) -> None:
        members = parse.read_params(message.params)
        meta = self._meta(message.method, members.pop("_meta", None), members)
        self._handler(message.method)(id, members, meta)

    def _meta(self, method: str, raw: msgspec.Raw | None, members: Members) -> Members:
        """`_meta` of a request that fits the era; what a modern one says of its host is noted."""
        meta = parse.read_meta(raw)
        self.era.check(method, members, meta)
        if self.era.modern:
            self._client_info = meta.get(CLIENT_INFO_KEY, NOTHING)
            self.questions.declared(meta)  # whatever server this request may open is told
        return self._beside.levelled(meta)

    def _handler(self, method: str) -> Handler:
        found = self._methods.get(method) or self._beside.handler(method)
        if found is None or (self.era.modern and method == "ping"):
            raise RequestError(envelope.METHOD_NOT_FOUND, f"Method not found: {method}")
        return found

    def _refuse_request(self, id: bytes, method: str, error: RequestError) -> None:
        if method in CALLS:
            name = "" if method == TOOLS_CALL else method
            request = CallRequest(ToolIdentifier("", "", name), {}, method=method)
            HostCall(self, id, request).finish(Rejected(msgspec.Raw(error.error), is_ours=True))
        else:
            self.refuse(id, error.error)

    # Openings

    def _initialize(self, id: bytes, members: Members, meta: Members) -> None:
        self._client_info = members.get("clientInfo", NOTHING)
        self.questions.declare(members.get("capabilities"))
        offered = parse.offered_revision(members)
        self.era.revision, result = initialize_result(offered, self.view.snapshot)
        self.reply(id, result)

    def _discover(self, id: bytes, members: Members, meta: Members) -> None:
        self.reply(id, discover_result(self.view.snapshot))

    def _ping(self, id: bytes, members: Members, meta: Members) -> None:
        self.reply(id, b"{}")

    # Tools

    def _use_tool(self, id: bytes, message: UseToolRequest) -> None:
        """The commonest request. Where its route is known, nothing of it is read again."""
        written = bytes(message.tool)
        route = self.view.routes.get(written)
        tool = parse.read_tool(written) if route is None else route.tool
        if tool is None or self._menu.bare:
            self._request(id, message.whole())
            return
        era, raw, meta = self.era, message.params.meta, {}
        if raw or not era.legacy or self._beside.log_level is not None:
            meta = self._meta(TOOLS_CALL, raw, {})
        params = {"arguments": message.arguments}
        declared = self.questions.declared_once
        call = HostCall(self, id, CallRequest(tool, params, meta, era.modern, declared))
        self.under_way[id] = call
        if route is None or not route.send(call):
            self.start(call, written)

    def _tools_call(self, id: bytes, members: Members, meta: Members) -> None:
        name = parse.read_name(members)
        if self._menu.bare:
            self._bare_tools_call(id, name, members, meta)
            return
        modern, mode = self.era.modern, self.view.snapshot.tool_mode
        try:
            wanted = parse.read_tool_request(mode, name, members, meta, modern_host=modern)
        except parse.UnknownTool as error:
            call = self._call(id, ToolIdentifier("", "", name), members, meta)
            self._refuse_call(call, RequestError(envelope.INVALID_PARAMS, str(error)))
            return
        except InvalidCall as error:
            if name == parse.OPEN_TOOLBOX:
                self.reply_own(id, texts.error_result(error))
            else:
                self._call(id, ToolIdentifier("", "", name), members, meta).fail(error)
            return
        if isinstance(wanted, parse.ServerTool):
            declared = self.questions.declared_once
            request = msgspec.structs.replace(wanted.request, capabilities=declared)
            self.begin(HostCall(self, id, request, flat=wanted.flat))
            return
        if wanted.toolbox:
            own = self._call(id, ToolIdentifier(wanted.toolbox, "", name), members, meta, OwnCall)
            if not self.questions.opening(own):
                return
        self.run(id, self._toolboxes.answer, id, wanted)

    def _call(
        self,
        id: bytes,
        tool: ToolIdentifier,
        members: Members,
        meta: Members,
        kind: type[HostCall] = HostCall,
    ) -> HostCall:
        """A call of which the target may not be known yet."""
        declared = self.questions.declared_once
        members.setdefault("arguments", parse.NO_ARGUMENTS)
        return kind(self, id, CallRequest(tool, members, meta, self.era.modern, declared))

    def _bare_tools_call(self, id: bytes, name: str, members: Members, meta: Members) -> None:
        call = self._call(id, ToolIdentifier("", "", name), members, meta)
        if self.questions.opening(call):
            self.run(id, self._call_by_bare_name, call)

    async def _call_by_bare_name(self, call: HostCall) -> None:
        """A call under the server's own name, answered as the server itself would."""
        name = call.request.tool.tool
        try:
            tool = await self._menu.route(name)
        except Collision as error:
            self._refuse_call(call, RequestError(envelope.INTERNAL_ERROR, str(error)))
            return
        if tool is None:
            unknown = RequestError(envelope.INVALID_PARAMS, f"Unknown tool: {name}")
            self._refuse_call(call, unknown)
            return
        call.request = msgspec.structs.replace(call.request, tool=tool)
        self.begin(call)

    def _refuse_call(self, call: HostCall, error: RequestError) -> None:
        call.finish(Rejected(msgspec.Raw(error.error), is_ours=True))

    def begin(self, call: HostCall) -> None:
        """Start a call, which may bring answers to questions of an earlier one."""
        try:
            starts = self.questions.returned(call)
        except RequestError as error:
            self._refuse_call(call, error)
            return
        if starts:
            self.start(call)

    def start(self, call: HostCall, key: bytes | None = None) -> None:
        """Send a call, at once or as soon as its server is ready."""
        self.under_way[call.id] = call
        try:
            if not self.view.start(call, key):
                self.run(call.id, self._dispatch, call)
        except WorkbenchError as error:
            call.fail(error)

    async def _dispatch(self, call: HostCall) -> None:
        try:
            await self.view.dispatch(call)
        except WorkbenchError as error:
            call.fail(error)

    # Requests that wait, and those that are taken back

    def run(self, id: bytes, work: Work, *args: Any) -> None:
        """Answer a request in a task of its own."""
        self.under_way.setdefault(id, None)
        self._errands.start(id, work, *args)

    def cancel(self, id: bytes, reason: str) -> None:
        """Take a request back: its server is told, and it is not answered."""
        if id not in self.under_way:
            return
        call = self.under_way.pop(id)
        self._errands.cancel(id)
        self._beside.cancelled(id)
        if call is not None:
            call.cancel(reason)
        self._rest()

    def stop(self, id: bytes) -> None:
        """Leave a request unperformed; it is answered in another way."""
        self._errands.cancel(id)

    def drain(self) -> None:
        """Begin nothing new; answers, cancels and pings are heard as before."""
        self._is_draining = True

    def _turn_away(self, id: bytes, method: str) -> None:
        if method == TOOLS_CALL:
            request = CallRequest(ToolIdentifier("", "", ""), {})
            HostCall(self, id, request).fail(texts.draining())
        else:
            self._refuse_request(id, method, RequestError(*texts.draining_error()))

    # Out

    def put(self, frame: bytes, about: bytes) -> None:
        """Send a question of a server."""
        self._channel.send(frame, about)

    def reply(self, id: bytes, result: msgspec.Raw | bytes) -> None:
        """Answer with a result that is right for the host's era already."""
        self._channel.send(b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (id, result), id)
        self.under_way.pop(id, None)
        if self._on_idle is not None:
            self._rest()

    def reply_own(self, id: bytes, result: bytes) -> None:
        """Answer with a result of our own making."""
        self.reply(id, complete(result, STAMPS) if self.era.modern else result)

    def refuse(self, id: bytes, error: msgspec.Raw | bytes) -> None:
        self._channel.send(envelope.refusal(id, error), id)
        self.under_way.pop(id, None)
        self._rest()

    def notify(self, method: str, params: bytes = b"", about: bytes = b"") -> None:
        """Tell the host something; `about` is the request that it belongs to, if any."""
        self._channel.send(envelope.notification(method, params), about)

    def close(self) -> None:
        """The host is gone: what it asked for is taken back."""
        self._stop_hearing()
        self._beside.close()
        self.questions.close()
        self.view.release()
        for id in list(self.under_way):
            self.cancel(id, "the host is gone")

    def when_idle(self, act: Callable[[], None]) -> None:
        """Call `act` as soon as no request is under way."""
        self._beside.end_listening()
        self._on_idle = act
        self._rest()

    def _rest(self) -> None:
        if self._on_idle is not None and not self.under_way:
            self._on_idle()


_OUR_FAULT = envelope.error_object(envelope.INTERNAL_ERROR, "the workbench failed; see its log")
