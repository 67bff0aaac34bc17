"""One host's session: its era, its requests, each answered exactly once.

`HostSession` handles messages and writes replies. It has three parts: `SessionTools` (tools and toolboxes),
`SessionPrimitives` (prompts, resources, completion, subscriptions, log messages) and `Elicitation` (questions of
servers to the host). `stdio_front` reads a session's messages from stdio; `server.http` has the fronts for HTTP.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from mcp_workbench.core.call_request import TOOLS_CALL, CallRequest
from mcp_workbench.core.errors import InvalidCall, WorkbenchError, shown_name
from mcp_workbench.core.raw_json import LONGEST_NAME, Members
from mcp_workbench.core.spec import ToolIdentifier, ToolMode
from mcp_workbench.gateway.interceptors import Rejected
from mcp_workbench.gateway.script_extra import has_scripts
from mcp_workbench.protocol.handshake import (
    CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    NEWEST_LEGACY,
    STAMPS,
)
from mcp_workbench.protocol.translation import complete
from mcp_workbench.server import parse, text, tool_requests
from mcp_workbench.server.elicitation import ROOTS_CHANGED, AskedBy, Elicitation
from mcp_workbench.server.host_calls import HostCall, OpenRequests, OwnCall, RequestTasks, Work
from mcp_workbench.server.parse import HostEra, Message, RequestError, UseToolRequest
from mcp_workbench.server.session_primitives import PRIMITIVE_CALLS, Handler, SessionPrimitives
from mcp_workbench.server.session_tools import NameCollision, SessionTools, ToolView
from mcp_workbench.server.wrong_arguments import long_member
from mcp_workbench.transport import jsonrpc
from mcp_workbench.transport.jsonrpc import NOTHING, Envelope
from mcp_workbench.transport.stdio import Channel
from mcp_workbench.transport.tasks import TaskScope

if TYPE_CHECKING:
    from mcp_workbench.gateway.calls import Door
    from mcp_workbench.gateway.views import View
    from mcp_workbench.server.elicitation import InputRequests
    from mcp_workbench.server.task_watches import FollowedTasks

log = logging.getLogger(__name__)

_NO_META: Members = {}  # of requests without any; never changed
CALLS = PRIMITIVE_CALLS | {TOOLS_CALL}  # requests that reach a server on the host's behalf
_INTERNAL_ERROR = jsonrpc.error_object(jsonrpc.INTERNAL_ERROR, "the workbench failed; see its log")


class HostSession:
    """A host on a channel. `receive` takes its messages and never waits."""

    followed_tasks: FollowedTasks | None = None  # whose changes a legacy host is notified of

    def __init__(  # noqa: PLR0913 - what one session is made of
        self,
        view: View,
        channel: Channel,
        scope: TaskScope,
        tool_view: ToolView,
        *,
        asked: AskedBy = "by modern servers",
        input_requests: InputRequests | None = None,
    ) -> None:
        self.era = HostEra()
        self.under_way = OpenRequests()
        self.elicitation = Elicitation(self, input_requests, view.gateway.suspended)
        self.view = view
        self.public_origin: Callable[[], str] = str  # where its person reaches our pages; over HTTP
        if asked != "by modern servers":
            self.view = view.for_host(self.elicitation, sole=asked == "by all servers")
            if input_requests is None:  # HTTP exchanges share a tool view of what all of them share
                tool_view.use_view(self.view)
        self._channel = channel
        self._tasks = RequestTasks(scope, lambda id: self.refuse(id, _INTERNAL_ERROR))
        self._tool_view = tool_view
        self.host = ("", "")  # name and version, declared at initialize or in `_meta`
        self.door: Door = "stdio"
        self._is_draining = False
        self._known_meta: tuple[bytes, Members] = (b"", _NO_META)  # of a modern host's last call
        self.on_idle: Callable[[], None] | None = None  # called when no request is in flight
        # Called when what `remembered` returns has changed, before the host is answered.
        self.on_change: Callable[[], None] | None = None
        self._primitives = SessionPrimitives(self, tool_view)
        self._tools = tools = SessionTools(self, tool_view, self._primitives)
        self._stop_listening = view.on_change(
            tools.tools_changed, tools.reloaded, tools.first_listed
        )

    @property
    def results_owner(self) -> object:
        """Who may read on in results that are cut."""
        return self._tool_view.owner

    @property
    def is_fresh(self) -> bool:
        """Whether nothing is left of its requests: one with the same `_meta` finds it as if it were new."""
        left = self.under_way or self._tasks.any or self.elicitation.leases
        return not (left or self._is_draining or self._primitives.is_loaded)

    # In

    def receive(self, message: Message) -> None:
        """Handle one message of the host. Never raises: on stdio that would end the reading."""
        method, id = message.method, bytes(message.id)
        if not method or not id:
            self._receive_other(message.whole() if isinstance(message, UseToolRequest) else message)
            return
        if id in self.under_way or not (id.isdigit() or jsonrpc.usable_id(id)):
            self._refuse_id(id)
            return
        try:
            if self._is_draining and method != "ping":
                self._refuse_draining(id, method)
            elif isinstance(message, UseToolRequest):
                self._use_tool(id, message)
            else:
                self._request(id, message)
        except RequestError as error:
            self.refuse_request(id, method, error)
        except Exception:  # a bug of ours fails one request, not the session
            log.exception("%r failed", method)
            self.refuse(id, _INTERNAL_ERROR)

    def _refuse_id(self, id: bytes) -> None:
        problem = "id must be a string or an integer"
        if id in self.under_way:
            problem = "id is in use"
        elif len(id) > jsonrpc.LONGEST_ID:
            problem = f"id is longer than {jsonrpc.LONGEST_ID} bytes"
        error = jsonrpc.error_object(jsonrpc.INVALID_REQUEST, problem)
        self._channel.send(jsonrpc.refusal(b"", error), id)

    def _receive_other(self, message: Envelope) -> None:
        """Handle a notification, or a response to a question of a server."""
        if not message.method:
            self.elicitation.answer(message)
        elif message.method == "notifications/cancelled":
            self.cancel(parse.cancelled_id(message), "cancelled by the host")
        elif message.method == ROOTS_CHANGED:
            self.elicitation.roots_changed(self.view.gateway.connected)

    def _request(self, id: bytes, message: Envelope) -> None:
        members = parse.read_params(message)
        meta = self._meta(message.method, members.pop("_meta", None), members)
        self._handler(message.method)(id, members, meta)

    def _meta(self, method: str, raw: msgspec.Raw | None, members: Members) -> Members:
        """`_meta` of a request, checked against the era. A modern one also describes its host."""
        meta = parse.read_meta(raw)
        self.era.check(method, members, meta)
        if self.era.modern:
            self._known_meta = (b"", _NO_META)  # another one describes the host now
            self.host = parse.client_name_and_version(meta.get(CLIENT_INFO_KEY, NOTHING))
            self.elicitation.declare(meta.get(CAPABILITIES_KEY))
        return self._primitives.with_log_level(meta)

    def _call_meta(self, raw: msgspec.Raw) -> Members:
        """`_meta` of a call. A modern host repeats it with each request: then it was read before."""
        known, meta = self._known_meta
        written = bytes(raw)
        if known and written == known:
            return meta
        meta = self._meta(TOOLS_CALL, raw, {})
        if self.era.modern and not self._primitives.is_loaded:
            self._known_meta = (written, meta)
        return meta

    @property
    def offers_tasks(self) -> bool:
        """Whether a legacy host is told that tools run as tasks: where it calls them itself, by their names."""
        native = self.view.snapshot.tool_mode == "dynamic"
        return native and self.era.revision == NEWEST_LEGACY

    def _task_request(self, method: str, id: bytes, members: Members, meta: Members) -> None:
        from mcp_workbench.server.task_requests import handle_task_request  # seldom needed

        handle_task_request(self, method, id, members, meta)

    def _handler(self, method: str) -> Handler:
        if method.startswith("tasks/"):
            return partial(self._task_request, method)
        handler = self._own_handler(method) or self._primitives.handler(method)
        if handler is None or (self.era.modern and method == "ping"):
            raise RequestError(jsonrpc.METHOD_NOT_FOUND, f"Method not found: {method}")
        return handler

    def _own_handler(self, method: str) -> Handler | None:
        if method == TOOLS_CALL:
            return self._tools_call
        if method == "tools/list":
            return self._tools.list_tools
        if method == "initialize":
            return self._initialize
        if method == "server/discover":
            return self._discover
        return self._ping if method == "ping" else None

    def refuse_request(self, id: bytes, method: str, error: RequestError) -> None:
        """Answer a request with an error; one that would have been a call ends as one."""
        if method in CALLS:
            name = "" if method == TOOLS_CALL else method
            target = ToolIdentifier("", "", name)
            request = CallRequest(target, {}, modern_host=self.era.modern, method=method)
            HostCall(self, id, request).finish(Rejected(msgspec.Raw(error.error), is_ours=True))
        else:
            self.refuse(id, error.error)

    # With replicas: what another one needs to go on with this session

    def remembered(self) -> tuple[tuple[str, ...], bytes, tuple[str, ...]]:
        """The toolboxes that its host has opened, its log level as written, the URIs that it subscribed to."""
        level = self._primitives.log_level
        uris = self._primitives.subscribed_uris
        return self._tool_view.opened_toolboxes, b"" if level is None else bytes(level), uris

    def changed(self) -> None:
        """What `remembered` returns has changed."""
        if self.on_change is not None:
            self.on_change()

    def reopen(self, toolbox: str) -> None:
        """Its host has opened this toolbox already."""
        self._tool_view.opened(toolbox)

    # Opening the conversation

    def _initialize(self, id: bytes, members: Members, meta: Members) -> None:
        self.host = parse.client_name_and_version(members.get("clientInfo", NOTHING))
        self.elicitation.declare(members.get("capabilities"))
        offered = parse.offered_revision(members)
        self.era.revision, result = text.initialize_result(offered, self.view)
        self.reply(id, result)

    def _discover(self, id: bytes, members: Members, meta: Members) -> None:
        self.reply(id, text.discover_result(self.view))

    def _ping(self, id: bytes, members: Members, meta: Members) -> None:
        self.reply(id, b"{}")

    # Tools

    def _use_tool(self, id: bytes, message: UseToolRequest) -> None:
        """The most frequent request. If its route is known, nothing else of it is parsed."""
        params = message.params
        named = params.arguments.tool
        written = bytes(named) if len(named) <= LONGEST_NAME else b""
        route = self.view.routes.get(written)
        tool = tool_requests.read_tool(written) if route is None else route.tool
        if tool is None or self._tool_view.bare:
            self._unusual_use_tool(id, message)
            return
        era, meta = self.era, _NO_META
        if params.meta or not era.legacy or self._primitives.log_level is not None:
            meta = self._call_meta(params.meta)
        arguments = {"arguments": params.arguments.arguments}
        declared = self.elicitation.declared
        call = HostCall(self, id, CallRequest(tool, arguments, meta, era.modern, declared))
        self.under_way[id] = call
        if route is None or not route.send(call):
            self.start(call, written)

    def _unusual_use_tool(self, id: bytes, message: UseToolRequest) -> None:
        if len(message.tool) <= LONGEST_NAME or self._tool_view.bare:
            self._request(id, message.whole())
            return
        meta = self._meta(TOOLS_CALL, message.params.meta, {})
        call = self._call(id, ToolIdentifier("", "", parse.USE_TOOL), {}, meta)
        call.fail(long_member("tool"))

    def _tools_call(self, id: bytes, members: Members, meta: Members) -> None:
        name = parse.read_name(members)
        if self._tool_view.bare:
            self._bare_tools_call(id, name, members, meta)
            return
        modern, mode = self.era.modern, self._mode_of(name)
        of_app = self._tool_view.known(name) if self.elicitation.shows_apps else None
        try:
            request = tool_requests.read_tool_request(
                mode, name, members, meta, modern_host=modern, of_app=of_app
            )
        except tool_requests.UnknownTool as error:
            call = self._call(id, ToolIdentifier("", "", name), members, meta)
            self._refuse_call(call, RequestError(jsonrpc.INVALID_PARAMS, str(error)))
            return
        except InvalidCall as error:
            if name == parse.OPEN_TOOLBOX:
                self.reply_own(id, text.error_result(error))
            else:
                self._call(id, ToolIdentifier("", "", name), members, meta).fail(error)
            return
        if isinstance(request, tool_requests.ServerTool):
            self.begin(self._server_call(id, request))
            return
        if name == parse.RUN_SCRIPT:
            self._run_script(id, members, meta)
            return
        target = ToolIdentifier(request.toolbox, "", name)
        if not request.toolbox or self._registered(id, target, members, meta):
            self.run(id, self._tools.answer, id, request, meta.get("progressToken"))

    def _mode_of(self, name: str) -> ToolMode:
        """Where a tool of this name belongs: with scripts, dynamic mode has some of proxy mode."""
        snapshot = self.view.snapshot
        is_ours = name in tool_requests.OF_SCRIPTS and has_scripts(snapshot)
        return "proxy" if is_ours else snapshot.tool_mode

    def _registered(self, id: bytes, tool: ToolIdentifier, members: Members, meta: Members) -> bool:
        own = self._call(id, tool, members, meta, OwnCall)
        return self.elicitation.register(own)

    def _run_script(self, id: bytes, members: Members, meta: Members) -> None:
        if not has_scripts(self.view.snapshot):
            unknown = f"Unknown tool: {parse.RUN_SCRIPT}"
            raise RequestError(jsonrpc.INVALID_PARAMS, unknown)
        from mcp_workbench.server.script_calls import run_script  # only where it is configured

        run_script(self, id, members, meta)

    def _server_call(self, id: bytes, request: tool_requests.ServerTool) -> HostCall:
        declared = self.elicitation.declared
        call_request = msgspec.structs.replace(request.request, capabilities=declared)
        if request.projection is None:
            return HostCall(self, id, call_request, flat=request.flat)
        from mcp_workbench.server.projected_calls import ProjectedCall  # rarely needed

        return ProjectedCall(self, id, call_request, request.projection)

    def _call(
        self,
        id: bytes,
        tool: ToolIdentifier,
        members: Members,
        meta: Members,
        kind: type[HostCall] = HostCall,
    ) -> HostCall:
        """A call whose target may not be known yet."""
        declared = self.elicitation.declared
        members.setdefault("arguments", parse.NO_ARGUMENTS)
        return kind(self, id, CallRequest(tool, members, meta, self.era.modern, declared))

    def _bare_tools_call(self, id: bytes, name: str, members: Members, meta: Members) -> None:
        call = self._call(id, ToolIdentifier("", "", name), members, meta)
        if self.elicitation.register(call):
            self.run(id, self._call_by_bare_name, call)

    async def _call_by_bare_name(self, call: HostCall) -> None:
        """A call under the server's own name; errors are those that the server would return."""
        name = call.request.tool.tool
        try:
            tool = await self._tool_view.route(name, apps=self.elicitation.shows_apps)
        except NameCollision as error:
            self._refuse_call(call, RequestError(jsonrpc.INTERNAL_ERROR, str(error)))
            return
        if tool is None:
            unknown = RequestError(jsonrpc.INVALID_PARAMS, f"Unknown tool: {shown_name(name)}")
            self._refuse_call(call, unknown)
            return
        call.request = msgspec.structs.replace(call.request, tool=tool)
        self.begin(call)

    def _refuse_call(self, call: HostCall, error: RequestError) -> None:
        call.finish(Rejected(msgspec.Raw(error.error), is_ours=True))

    def begin(self, call: HostCall) -> None:
        """Start a call, which may bring answers to questions of an earlier one."""
        try:
            starts = self.elicitation.take_answers(call)
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

    # Requests that wait, and those that are cancelled

    def run(self, id: bytes, work: Work, *args: Any) -> None:
        """Answer a request in a task of its own."""
        self.under_way.setdefault(id, None)
        self._tasks.start(id, work, *args)

    def cancel(self, id: bytes, reason: str) -> None:
        """Cancel a request, also at its server; it is not answered."""
        if id not in self.under_way:
            return
        call = self.under_way.pop(id)
        self._tasks.cancel(id)
        self._primitives.cancelled(id)
        if call is not None:
            call.cancel(reason)
        self._check_idle()

    def stop(self, id: bytes) -> None:
        """Stop handling a request, which is answered in another way."""
        self._tasks.cancel(id)

    def drain(self) -> None:
        """Refuse new requests; responses, cancellations and pings are handled as before."""
        self._is_draining = True

    def _refuse_draining(self, id: bytes, method: str) -> None:
        if method == TOOLS_CALL:
            request = CallRequest(ToolIdentifier("", "", ""), {}, modern_host=self.era.modern)
            HostCall(self, id, request).fail(text.draining())
        else:
            self.refuse_request(id, method, RequestError(*text.draining_error()))

    # Out

    def put(self, frame: bytes, about: bytes) -> None:
        """Send a request to the host; `about` is the request that it belongs to, if any."""
        self._channel.send(frame, about)

    def reply(self, id: bytes, result: msgspec.Raw | bytes) -> None:
        """Reply with a result that has the form of the host's era."""
        if len(result) > jsonrpc.LARGE:  # copied once, where a format copies it twice
            frame = b"".join((b'{"jsonrpc":"2.0","id":', id, b',"result":', result, b"}\n"))
        else:
            frame = b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (id, result)
        self._channel.send(frame, id)
        self.under_way.pop(id, None)
        if self.on_idle is not None:
            self._check_idle()

    def reply_own(self, id: bytes, result: bytes) -> None:
        """Reply with a result of our own."""
        self.reply(id, complete(result, STAMPS) if self.era.modern else result)

    def refuse(self, id: bytes, error: msgspec.Raw | bytes) -> None:
        self._channel.send(jsonrpc.refusal(id, error), id)
        self.under_way.pop(id, None)
        self._check_idle()

    def notify(self, method: str, params: bytes | msgspec.Raw = b"", about: bytes = b"") -> None:
        """Send a notification; `about` is the request that it belongs to, if any."""
        self._channel.send(jsonrpc.notification(method, params), about)

    def close(self) -> None:
        """The host is gone: cancel its requests and release its servers."""
        self._stop_listening()
        self._primitives.close()
        self.elicitation.close()
        if self.followed_tasks is not None:
            self.followed_tasks.close()
        self.view.release()
        for id in list(self.under_way):
            self.cancel(id, "the host is gone")

    def end_listening(self) -> None:
        """Answer the requests that would never end otherwise."""
        self._primitives.end_listening()

    def when_idle(self, act: Callable[[], None]) -> None:
        """Call `act` as soon as no request is in flight."""
        self.end_listening()
        self.on_idle = act
        self._check_idle()

    def _check_idle(self) -> None:
        if self.on_idle is not None and not self.under_way:
            self.on_idle()
