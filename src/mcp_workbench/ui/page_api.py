"""The API of the page: each path, what it needs, and who answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qs

import msgspec

from mcp_workbench.core.ended_calls import MOST_KEPT
from mcp_workbench.core.errors import InvalidCall, NotFound, WorkbenchError
from mcp_workbench.core.spec import ServerAddress, ToolIdentifier
from mcp_workbench.gateway.reload import restart
from mcp_workbench.server.http.later_answers import answer_later
from mcp_workbench.transport.json_text import is_utf8, too_deep
from mcp_workbench.ui import page_edits
from mcp_workbench.ui.page_arguments import arguments_of_call
from mcp_workbench.ui.page_calls import MOST_SHOWN, try_tool
from mcp_workbench.ui.page_events import PageEvents, PageStream, number_of
from mcp_workbench.ui.page_hosts import connections
from mcp_workbench.ui.page_locks import lock_changes
from mcp_workbench.ui.page_numbers import BATCH, call_rows, numbers
from mcp_workbench.ui.page_routes import NOT_FOUND, api_reply, is_local
from mcp_workbench.ui.page_tools import PAGE, ToolLine

if TYPE_CHECKING:
    from mcp_workbench.core.spec import Snapshot
    from mcp_workbench.transport.http.messages import HttpRequest, Reply, ResponseWriter
    from mcp_workbench.transport.tasks import TaskScope
    from mcp_workbench.ui.page_documents import Documents

AT_ONCE = 32  # requests in progress
FIELDS = 20  # of a query

Query = dict[str, str]
T = TypeVar("T")
SIGN_IN = "sign-in"
ELSEWHERE = api_reply(
    403,
    b'{"error":"a browser comes back to this machine only: sign in with the command","code":"elsewhere"}',
)
BUSY = api_reply(503, b'{"error":"too many requests at once","code":"busy"}')


class Address(msgspec.Struct, frozen=True):
    """A server, as the page names it."""

    toolbox: str
    server: str


class Trial(msgspec.Struct, frozen=True):
    """A call that a person makes."""

    toolbox: str
    server: str
    tool: str
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


class Undo(msgspec.Struct, frozen=True):
    """The number of an edit."""

    id: int


class Rows(msgspec.Struct, frozen=True):
    """A part of a list."""

    total: int
    rows: Any


class PageApi:
    """Answers the page of one port."""

    def __init__(self, documents: Documents, events: PageEvents, scope: TaskScope) -> None:
        self.documents = documents
        self._events = events
        self._scope = scope
        self._under_way = 0
        self._comparing: asyncio.Task[Any] | None = None  # definitions with the lock file
        self._reads: dict[str, Callable[[Query], Awaitable[Any]]] = {
            "home": self._home,
            "server": self._server,
            "tools": self._tools,
            "search": self._search,
            "tool": self._tool,
            "locks": self._locks,
            "calls": self._calls,
            "arguments": self._arguments,
            "numbers": self._numbers,
            "hosts": self._hosts,
        }
        self._writes: dict[str, Callable[[bytes], Awaitable[Any]]] = {
            "call": self._call,
            "restart": self._restart,
            SIGN_IN: self._sign_in,
            "start": self._start,
            "switch/preview": self._preview,
            "switch/apply": self._apply,
            "undo": self._undo,
        }

    def handle(self, path: str, request: HttpRequest, response: ResponseWriter) -> None:
        if path == "events" and request.method == b"GET":
            self._follow(request, response)
            return
        work: Callable[[], Awaitable[Any]] | None = None
        if request.method == b"POST":
            if path == SIGN_IN and not is_local(request):
                response.plain(ELSEWHERE)
                return
            if write := self._writes.get(path):
                work = partial(self._write, write, bytes(request.body))
        elif read := self._reads.get(path):
            work = partial(read, _query(request))
        if work is None:
            response.plain(NOT_FOUND)
        elif self._under_way >= AT_ONCE:
            response.plain(BUSY)
        else:
            self._under_way += 1
            task = answer_later(self._scope, _answer(work, response), response, f"page {path}")
            task.add_done_callback(self._ended)
            response.on_gone(lambda: _cancel(task))

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._under_way -= 1

    def _follow(self, request: HttpRequest, response: ResponseWriter) -> None:
        query = _query(copy(request))
        address = ServerAddress(query.get("toolbox", ""), query.get("server", ""))
        stream = PageStream(response, set(query.get("topics", "").split(",")), address)
        last = request.headers.get(b"last-event-id", b"").decode("latin-1")
        stream.call = number_of(last or query.get("after", ""))
        if not self._events.add(stream):
            response.plain(BUSY)

    def close(self) -> None:
        self._events.close()

    @property
    def is_followed(self) -> bool:
        """Whether a page is open."""
        return self._events.is_running

    @property
    def _snapshot(self) -> Snapshot:
        return self.documents.gateway.snapshot

    # Reading

    async def _home(self, query: Query) -> Any:
        return await self.documents.home()

    async def _server(self, query: Query) -> Any:
        return await self.documents.server(_address(query))

    async def _tools(self, query: Query) -> Any:
        toolbox = query.get("toolbox", "")
        self._snapshot.toolbox(toolbox)
        servers = await self.documents.tools.read()
        only = query.get("server", "")
        lines: list[ToolLine] = [
            line
            for address, one in servers.items()
            if address.toolbox == toolbox and only in ("", address.server)
            for line in one.lines
        ]
        start = _number(query, "start")
        return Rows(len(lines), lines[start : start + _number(query, "most", PAGE, 2000)])

    async def _search(self, query: Query) -> Any:
        words, toolbox = query.get("words", ""), query.get("toolbox", "")
        found = await self.documents.tools.search(words, toolbox)
        return Rows(len(found), found)

    async def _tool(self, query: Query) -> Any:
        tool = ToolIdentifier(
            query.get("toolbox", ""), query.get("server", ""), query.get("tool", "")
        )
        raw = self.documents.tools.definition(tool).raw
        if len(raw) > MOST_SHOWN:
            raise InvalidCall(f"its definition is too long to be shown: {len(raw)} bytes")
        return msgspec.Raw(raw)

    async def _locks(self, query: Query) -> Any:
        """All who ask at the same time share one comparison: it may take a second of a thread."""
        task = self._comparing
        if task is None:
            work = asyncio.to_thread(lock_changes, self.documents.gateway)
            task = self._comparing = self._scope.start(work, "page: definitions that have changed")
            task.add_done_callback(self._compared)
        await asyncio.wait((task,))
        return task.result()

    def _compared(self, task: asyncio.Task[Any]) -> None:
        self._comparing = None

    async def _calls(self, query: Query) -> Any:
        meter = self.documents.gateway.meter
        most = _number(query, "most", BATCH, MOST_KEPT)
        return call_rows(meter.since(_number(query, "after"), most), meter.calls)

    async def _arguments(self, query: Query) -> Any:
        gateway, number = self.documents.gateway, _number(query, "number")
        return await arguments_of_call(gateway, number, _seconds(query, "ended"))

    async def _numbers(self, query: Query) -> Any:
        servers = await self.documents.tools.read()
        return numbers(self.documents.gateway.meter.snapshot(), servers.values())

    async def _hosts(self, query: Query) -> Any:
        return connections(self._snapshot, self.documents.url)

    # Doing

    async def _write(self, write: Callable[[bytes], Awaitable[Any]], body: bytes) -> Any:
        """Do it, and have what it changed shown soon."""
        try:
            return await write(body)
        finally:
            self._events.news()

    async def _call(self, body: bytes) -> Any:
        trial = _decoded(body, Trial)
        tool = ToolIdentifier(trial.toolbox, trial.server, trial.tool)
        if not bytes(trial.arguments).lstrip().startswith(b"{"):
            raise InvalidCall("arguments must be an object")
        return await try_tool(self.documents.gateway.view, tool, trial.arguments)

    async def _restart(self, body: bytes) -> Any:
        address = _decoded(body, Address)
        restart(self.documents.gateway, ServerAddress(address.toolbox, address.server))
        return {"ok": True}

    async def _sign_in(self, body: bytes) -> Any:
        address = _decoded(body, Address)
        return await self.documents.sign_ins.begin(ServerAddress(address.toolbox, address.server))

    async def _start(self, body: bytes) -> Any:
        """Start all servers that nobody has used yet, so that one sees which of them can't be started."""
        boxes = self._snapshot.toolboxes.values()
        view = self.documents.gateway.view
        started = view.begun(
            spec
            for box in boxes
            for spec in box.servers.values()
            if spec.scope != "principal" and not spec.problem
        )
        return {"started": len(started)}

    async def _preview(self, body: bytes) -> Any:
        change = await self._planned(_decoded(body, page_edits.SwitchRequest))
        return await asyncio.to_thread(page_edits.preview, change)

    async def _apply(self, body: bytes) -> Any:
        request = _decoded(body, page_edits.SwitchRequest)
        change = await self._planned(request)
        return await asyncio.to_thread(page_edits.apply, change, request.digest)

    async def _planned(self, request: page_edits.SwitchRequest) -> page_edits.Change:
        servers = await self.documents.tools.read()
        listed = {address: tuple(one.source.catalogue.tools) for address, one in servers.items()}
        plan = page_edits.plan_switches
        return await asyncio.to_thread(plan, self._snapshot, request.switches, listed)

    async def _undo(self, body: bytes) -> Any:
        return await asyncio.to_thread(page_edits.undo_edit, _decoded(body, Undo).id)


def _cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()


async def _answer(work: Callable[[], Awaitable[Any]], response: ResponseWriter) -> None:
    response.plain(await _reply(work))


async def _reply(work: Callable[[], Awaitable[Any]]) -> Reply:
    try:
        return api_reply(200, msgspec.json.encode(await work()))
    except WorkbenchError as error:
        status = 404 if isinstance(error, NotFound) else 400
        document = {"error": error.message, "code": error.code, "hint": error.hint}
        return api_reply(status, msgspec.json.encode(document))
    except OSError as error:
        text = error.strerror or str(error)
        return api_reply(500, msgspec.json.encode({"error": text, "code": "system"}))


def _query(request: HttpRequest) -> Query:
    text = request.target.partition(b"?")[2].decode("latin-1")
    try:
        values = parse_qs(text, max_num_fields=FIELDS)
    except ValueError:
        return {}
    return {name: found[0] for name, found in values.items()}


def _address(query: Query) -> ServerAddress:
    return ServerAddress(query.get("toolbox", ""), query.get("server", ""))


def _number(query: Query, name: str, usual: int = 0, most: int = 1 << 50) -> int:
    text = query.get(name, "")
    return min(int(text), most) if text.isdecimal() and len(text) < 16 else usual


def _seconds(query: Query, name: str) -> float:
    try:
        return float(query.get(name, ""))
    except ValueError:
        return 0.0


def _decoded(body: bytes, kind: type[T]) -> T:
    if not is_utf8(body) or too_deep(body):  # parts of it are sent to servers as they are
        raise InvalidCall("this is not UTF-8, or nested too deep")
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidCall(f"this is not what was expected: {error}") from None
