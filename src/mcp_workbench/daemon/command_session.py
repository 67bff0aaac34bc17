"""A command's side of its connection to the daemon: it joins, and makes its requests there."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec

from mcp_workbench.core.catalogue import ServerReport, read_object
from mcp_workbench.core.errors import WorkbenchError
from mcp_workbench.core.spec import ServerAddress, ToolIdentifier
from mcp_workbench.daemon import control
from mcp_workbench.daemon.attach import ANSWER, host_fields
from mcp_workbench.daemon.command_messages import (
    Answer,
    CallTool,
    CommandFailed,
    Find,
    Progress,
    PutQuestion,
    RefuseCall,
    Request,
    Response,
    Result,
    Survey,
    error_fields,
    error_of,
    read_message,
    write_message,
)
from mcp_workbench.daemon.paths import DaemonPaths
from mcp_workbench.search.queries import Query, SearchResult
from mcp_workbench.transport.tasks import TaskScope, task_scope

if TYPE_CHECKING:
    from mcp_workbench.gateway.interactive import Person

Json = dict[str, Any]
OnProgress = Callable[[Json], None]

NOBODY: Json = {}  # the capabilities of a command whose user can't be asked


class NotJoined(Exception):
    """Why the daemon does not admit this command."""


class WorkbenchEnded(WorkbenchError):
    """The daemon has ended before it answered."""

    code = "server_exited"


def join(paths: DaemonPaths, name: str, capabilities: Json) -> socket.socket | None:
    """Return a connection for requests; None if no daemon is running. Raises NotJoined."""
    try:
        connection = control.connect(paths)
        if connection is None:
            return None
        fields = host_fields(paths, name.encode(), msgspec.json.encode(capabilities))
        response = control.request(connection, ANSWER, control.COMMAND, *fields)
    except control.NoAnswer as error:
        raise NotJoined(str(error)) from None
    if response and response[0] == control.WELCOME:
        connection.settimeout(None)
        return connection
    connection.close()
    if not response:
        return None  # it has just ended
    raise NotJoined(response[-1].decode("utf-8", "replace"))


@asynccontextmanager
async def command_session(
    connection: socket.socket, person: Person
) -> AsyncGenerator[CommandSession]:
    """While this is open, requests are made, and the person answers questions of servers."""
    reader, writer = await asyncio.open_unix_connection(sock=connection)
    try:
        async with task_scope() as scope:
            session = CommandSession(writer, person, scope)
            scope.start(session.read(reader), "read")
            yield session
    finally:
        writer.close()


class CommandSession:
    """Requests to the daemon, by number."""

    def __init__(self, writer: asyncio.StreamWriter, person: Person, scope: TaskScope) -> None:
        self._writer = writer
        self._person = person
        self._scope = scope
        self._numbers = count(1)
        self._pending: dict[int, asyncio.Future[msgspec.Raw]] = {}
        self._progress: dict[int, OnProgress] = {}
        self._questions: dict[int, asyncio.Task[Any]] = {}
        self._has_ended = False

    # Requests; each raises the WorkbenchError with which it fails

    async def survey(self, address: ServerAddress, *, fresh: bool = False) -> ServerReport:
        raw = await self._request(Survey(next(self._numbers), address, fresh))
        return msgspec.json.decode(raw, type=ServerReport)

    async def search(self, query: Query, on_progress: OnProgress) -> SearchResult:
        raw = await self._request(Find(next(self._numbers), query), on_progress)
        return msgspec.json.decode(raw, type=SearchResult)

    async def use_tool(
        self,
        tool: ToolIdentifier,
        arguments: Mapping[str, Any],
        on_progress: OnProgress | None,
        parent: str = "",
    ) -> Json:
        encoded = msgspec.Raw(msgspec.json.encode(arguments))
        progress = on_progress is not None
        request = CallTool(next(self._numbers), tool, encoded, progress, parent)
        return read_object(await self._request(request, on_progress))

    async def refuse(
        self, tool: ToolIdentifier, arguments: Mapping[str, Any], error: WorkbenchError
    ) -> None:
        """Let a call be recorded that is not made. Raises the error."""
        encoded = msgspec.Raw(msgspec.json.encode(arguments))
        with suppress(WorkbenchError):
            await self._request(RefuseCall(next(self._numbers), tool, encoded, error_fields(error)))
        raise error

    async def _request(
        self, request: Survey | Find | CallTool | RefuseCall, on_progress: OnProgress | None = None
    ) -> msgspec.Raw:
        if self._has_ended:
            raise _ended(request)
        self._pending[request.id] = asyncio.get_running_loop().create_future()
        if on_progress is not None:
            self._progress[request.id] = on_progress
        self._send(request)
        try:
            return await self._pending[request.id]
        except ConnectionError:
            raise _ended(request) from None
        finally:
            del self._pending[request.id]
            self._progress.pop(request.id, None)

    def _send(self, request: Request) -> None:
        write_message(self._writer, request)

    # Responses

    async def read(self, reader: asyncio.StreamReader) -> None:
        """Take messages until the daemon disconnects; then every request fails."""
        while data := await read_message(reader):
            self._received(msgspec.json.decode(data, type=Response))
        self._has_ended = True
        for future in self._pending.values():
            if not future.done():
                future.set_exception(ConnectionError())

    def _received(self, message: Response) -> None:
        match message:
            case Result():
                self._settle(message.id, lambda future: future.set_result(message.value))
            case CommandFailed():
                error = error_of(message.error)
                self._settle(message.id, lambda future: future.set_exception(error))
            case Progress():
                if (on_progress := self._progress.get(message.id)) is not None:
                    on_progress(msgspec.json.decode(message.params))
            case PutQuestion():
                asking = self._scope.start(self._ask(message), "answer")
                self._questions[message.id] = asking
            case _:
                if (asked := self._questions.get(message.id)) is not None:
                    asked.cancel()

    def _settle(self, id: int, act: Callable[[asyncio.Future[msgspec.Raw]], None]) -> None:
        future = self._pending.get(id)
        if future is not None and not future.done():
            act(future)

    async def _ask(self, message: PutQuestion) -> None:
        try:
            answer = await self._person.answer(message.question)
            self._send(Answer(message.id, msgspec.Raw(msgspec.json.encode(answer))))
        finally:
            self._questions.pop(message.id, None)


def _ended(request: Survey | Find | CallTool | RefuseCall) -> WorkbenchEnded:
    if isinstance(request, CallTool):
        text = f"[{request.tool}] Error: the shared workbench has ended; the call may have run"
        return WorkbenchEnded(text, may_have_run=True)
    return WorkbenchEnded("the shared workbench has ended")
