"""One host's conversation: its era, its requests, each answered exactly once."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from mcp_workbench.core.errors import InvalidCall, WorkbenchError
from mcp_workbench.core.names import ServerAddress
from mcp_workbench.era.ourselves import STAMPS
from mcp_workbench.era.revision import BATCHES, MODERN, UNSUPPORTED_VERSION
from mcp_workbench.era.translate import Members, complete, read_members
from mcp_workbench.surface import texts
from mcp_workbench.surface.greeting import (
    EnvelopeFault,
    discover_result,
    initialize_result,
    is_stamped,
    offered_revision,
    read_stamp,
)
from mcp_workbench.surface.host_call import HostCall
from mcp_workbench.surface.menu import Menu
from mcp_workbench.surface.wishes import OpenToolbox, UnknownTool, UseTool, Wish, read_wish
from mcp_workbench.wire import envelope
from mcp_workbench.wire.envelope import Envelope, Malformed
from mcp_workbench.wire.frames import LineFramer, Oversize
from mcp_workbench.wire.stdio import Channel
from mcp_workbench.wire.tasks import TaskScope
from mcp_workbench.workbench import Workbench

log = logging.getLogger(__name__)

Handler = Callable[[bytes, Members], None]


class Refusal(Exception):
    """A request is answered with this JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.error = envelope.error_object(code, message, data)


class HostSession:
    """A host on a channel. `receive` takes its bytes; nothing in it waits."""

    def __init__(
        self,
        workbench: Workbench,
        channel: Channel,
        scope: TaskScope,
        opened: tuple[str, ...] = (),
    ) -> None:
        self._workbench = workbench
        self._channel = channel
        self._scope = scope  # of the requests that have to wait
        self._framer = LineFramer(workbench.snapshot.limits.message_bytes)
        self._menu = Menu(workbench, opened)
        self._revision = ""  # fixed by the first request that opens
        self._under_way: dict[bytes, HostCall | None] = {}
        self._errands: dict[bytes, asyncio.Task[Any]] = {}
        self._on_idle: Callable[[], None] | None = None
        self._methods: dict[str, Handler] = {
            "tools/call": self._tools_call,
            "tools/list": self._tools_list,
            "initialize": self._initialize,
            "server/discover": self._discover,
            "ping": self._ping,
        }
        workbench.on_change(self._tools_changed)

    @property
    def modern(self) -> bool:
        return self._revision == MODERN

    def when_idle(self, act: Callable[[], None]) -> None:
        """Call `act` as soon as no request is under way."""
        self._on_idle = act
        self._rest()

    def _rest(self) -> None:
        if self._on_idle is not None and not self._under_way:
            self._on_idle()

    # In

    def receive(self, data: bytes) -> None:
        """Bytes from the host. Nothing in them may raise: on uvloop that ends the pipe."""
        try:
            lines = self._framer.feed(data)
        except Oversize as error:
            self.refuse(b"", envelope.error_object(envelope.INVALID_REQUEST, str(error)))
            return
        for line in lines:
            try:
                self._receive_line(line)
            except Exception:  # a fault of ours costs one request, not the conversation
                log.exception("a request failed")
                self._refuse_line(Malformed(envelope.INTERNAL_ERROR, "the workbench failed"))

    def _receive_line(self, line: bytes) -> None:
        try:
            if not line.isascii():
                line.decode()
            message = envelope.decode(line)
        except UnicodeDecodeError:
            self._refuse_line(Malformed(envelope.PARSE_ERROR, "not UTF-8"))
        except Malformed as error:
            if self._revision == BATCHES and envelope.is_batch(line):
                self._receive_batch(line)
            else:
                self._refuse_line(error)
        else:
            self._receive_message(message)

    def _receive_batch(self, line: bytes) -> None:
        try:
            members = envelope.read_batch(line)
        except Malformed as error:
            self._refuse_line(error)
            return
        for member in members:
            if not envelope.is_batch(member):
                self._receive_line(member)

    def _refuse_line(self, error: Malformed) -> None:
        self.refuse(error.id, envelope.error_object(error.code, str(error)))

    def _receive_message(self, message: Envelope) -> None:
        id = bytes(message.id)
        if not message.method:
            return  # an answer: we have asked nothing
        if not id:
            if message.method == "notifications/cancelled":
                self._cancelled(message.params)
            return
        if not envelope.usable_id(id) or id in self._under_way:
            problem = (
                "its id is in use" if id in self._under_way else "an id is a string or an integer"
            )
            self.refuse(b"", envelope.error_object(envelope.INVALID_REQUEST, problem))
            return
        try:
            members = _members(message.params)
            self._check_era(message.method, members)
            self._handler(message.method)(id, members)
        except Refusal as refusal:
            self._answered(id)
            self.refuse(id, refusal.error)

    # Eras

    def _check_era(self, method: str, members: Members) -> None:
        """Does this request fit the era of the conversation? The first one fixes it."""
        stamped = is_stamped(members)
        if self._revision and not self.modern:
            if stamped:
                raise Refusal(
                    envelope.INVALID_REQUEST,
                    f"this conversation was opened by initialize ({self._revision})",
                )
            return
        if stamped or self.modern:
            self._check_stamp(method, members)
        elif method not in ("initialize", "server/discover", "ping"):
            raise Refusal(
                envelope.INVALID_PARAMS,
                f"open the conversation first: initialize, or a request with _meta for {MODERN}",
            )

    def _check_stamp(self, method: str, members: Members) -> None:
        if method == "initialize":
            data = {"supported": [MODERN], "requested": offered_revision(members)}
            raise Refusal(UNSUPPORTED_VERSION, "this conversation is modern", data)
        try:
            requested = read_stamp(members)
        except EnvelopeFault as fault:
            raise Refusal(envelope.INVALID_PARAMS, str(fault)) from None
        if requested != MODERN:
            data = {"supported": [MODERN], "requested": requested}
            raise Refusal(UNSUPPORTED_VERSION, "Unsupported protocol version", data)
        if method != "server/discover":
            self._revision = MODERN

    def _handler(self, method: str) -> Handler:
        found = self._methods.get(method)
        if found is None or (self.modern and method == "ping"):
            raise Refusal(envelope.METHOD_NOT_FOUND, f"Method not found: {method}")
        return found

    def _initialize(self, id: bytes, members: Members) -> None:
        self._revision, result = initialize_result(
            offered_revision(members), self._workbench.snapshot
        )
        self.reply(id, result)

    def _discover(self, id: bytes, members: Members) -> None:
        self.reply(id, discover_result(self._workbench.snapshot))

    def _ping(self, id: bytes, members: Members) -> None:
        self.reply(id, b"{}")

    # Tools

    def _tools_list(self, id: bytes, members: Members) -> None:
        if "cursor" in members:
            raise Refusal(envelope.INVALID_PARAMS, "Unknown cursor: the list has one page")
        if self._menu.is_static:
            self.reply_own(id, self._menu.static_list(modern=self.modern))
        else:
            self._run(id, self._live_list(id))

    async def _live_list(self, id: bytes) -> None:
        self.reply_own(id, await self._menu.live_list(modern=self.modern))

    def _tools_call(self, id: bytes, members: Members) -> None:
        name = _name(members)
        mode = self._workbench.snapshot.tool_mode
        try:
            wish = read_wish(mode, name, members, modern_host=self.modern)
        except UnknownTool as error:
            raise Refusal(envelope.INVALID_PARAMS, str(error)) from None
        except InvalidCall as error:
            self.reply_own(id, texts.error_result(error))
            return
        self._grant(id, wish, members)

    def _grant(self, id: bytes, wish: Wish, members: Members) -> None:
        match wish:
            case OpenToolbox(name):
                self._run(id, self._open_toolbox(id, name))
            case UseTool(call, flat):
                host_call = HostCall(self, id, call, flat=flat, token=_token(members))
                self._under_way[id] = host_call
                try:
                    if not self._workbench.begin(call, host_call):
                        self._run(id, self._dispatch(host_call))
                except WorkbenchError as error:
                    host_call.failed(error)

    async def _dispatch(self, host_call: HostCall) -> None:
        try:
            await self._workbench.dispatch(host_call.call, host_call)
        except WorkbenchError as error:
            host_call.failed(error)

    async def _open_toolbox(self, id: bytes, name: str) -> None:
        try:
            opened = await self._workbench.open(name)
        except WorkbenchError as error:
            self.reply_own(id, texts.error_result(error))
            return
        if self._menu.opened(name) and not self.modern:
            self.notify("notifications/tools/list_changed")
        self.reply_own(id, texts.text_result(self._menu.opened_text(opened)))

    def _tools_changed(self, server: ServerAddress) -> None:
        if self._revision and not self.modern and self._menu.shows(server.toolbox):
            self.notify("notifications/tools/list_changed")

    # Requests that wait, and those that are taken back

    def _run(self, id: bytes, work: Any) -> None:
        self._under_way.setdefault(id, None)
        task = self._scope.start(self._guarded(id, work), f"request {id.decode()}")
        self._errands[id] = task
        task.add_done_callback(lambda _: self._errands.pop(id, None))

    async def _guarded(self, id: bytes, work: Any) -> None:
        try:
            await work
        except Exception:
            error = envelope.error_object(
                envelope.INTERNAL_ERROR, "the workbench failed; see its log"
            )
            self.refuse(id, error)
            raise

    def _cancelled(self, params: msgspec.Raw) -> None:
        try:
            id = bytes(msgspec.json.decode(params, type=_Cancelled).requestId)
        except msgspec.DecodeError:
            return
        host_call = self._under_way.pop(id, None)
        if (errand := self._errands.get(id)) is not None:
            errand.cancel()
        if host_call is not None:
            host_call.cancel("cancelled by the host")

    # Out

    def reply(self, id: bytes, result: msgspec.Raw | bytes) -> None:
        """Answer with a result that is right for the host's era already."""
        self._answered(id)
        self._channel.send(envelope.answer(id, result))
        if self._on_idle is not None:
            self._rest()

    def reply_own(self, id: bytes, result: bytes) -> None:
        """Answer with a result of our own making."""
        self.reply(id, complete(result, STAMPS) if self.modern else result)

    def refuse(self, id: bytes, error: msgspec.Raw | bytes) -> None:
        self._answered(id)
        self._channel.send(envelope.refusal(id, error))
        self._rest()

    def notify(self, method: str, params: bytes = b"") -> None:
        self._channel.send(envelope.notification(method, params))

    def _answered(self, id: bytes) -> None:
        self._under_way.pop(id, None)


class _Cancelled(msgspec.Struct):
    requestId: msgspec.Raw  # noqa: N815 - the wire's word


def _members(params: msgspec.Raw) -> Members:
    if not params:
        return {}
    try:
        return read_members(params)
    except msgspec.ValidationError:
        raise Refusal(envelope.INVALID_PARAMS, "params must be an object") from None


def _name(members: Members) -> str:
    try:
        return msgspec.json.decode(members.pop("name"), type=str)
    except (KeyError, msgspec.ValidationError):
        raise Refusal(envelope.INVALID_PARAMS, "params.name must be a string") from None


def _token(members: Members) -> bytes:
    meta = members.get("_meta")
    if not meta:
        return b""
    try:
        return bytes(read_members(meta).get("progressToken", b""))
    except msgspec.ValidationError:
        raise Refusal(envelope.INVALID_PARAMS, "params._meta must be an object") from None
