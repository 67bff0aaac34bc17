"""Commands that use the daemon's servers while they run: `call`, `tools`, `search` and the like.

Each is a host of its own: shared servers are shared with it, others are started for it and end with it.
When it disconnects, its calls are cancelled at their servers.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec

from mcp_workbench.app import FLUSH
from mcp_workbench.core.catalogue import read_object
from mcp_workbench.core.errors import WorkbenchError
from mcp_workbench.daemon.command_messages import (
    Answer,
    BadMessage,
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
    WithdrawQuestion,
    error_fields,
    error_of,
    read_message,
    read_request,
    write_message,
)
from mcp_workbench.gateway.interactive import InteractiveSession, interactive_session
from mcp_workbench.gateway.tool_search import Reading, find
from mcp_workbench.transport.tasks import TaskScope, task_scope

if TYPE_CHECKING:
    from mcp_workbench.gateway.views import View
    from mcp_workbench.protocol.elicitation import Question

log = logging.getLogger(__name__)

Json = dict[str, Any]

ENVELOPE = 1 << 16  # bytes of a message besides the arguments in it
BACKLOG = (
    2  # messages of the largest size wait for a command that does not read; then it is disconnected
)


class CommandClient:
    """A command while it runs."""

    revision = ""  # it speaks no MCP
    toolboxes: tuple[str, ...] = ()  # sees all

    def __init__(self, pid: int, name: str, folder: str, capabilities: Json) -> None:
        self.pid = pid
        self.name = name  # such as `mcp-workbench call`
        self.folder = folder  # in which it runs, if that is not ours
        self.since = time.monotonic()
        self.under_way = 0  # requests
        self._idle = asyncio.Event()
        self._idle.set()
        self._person = RemotePerson(capabilities, self._send)
        self._writer: asyncio.StreamWriter | None = None
        self._most = 0  # bytes of a message

    async def serve(self, view: View, connection: socket.socket) -> None:
        """Answer its requests until it disconnects, then close the connection."""
        reader, self._writer = await asyncio.open_unix_connection(sock=connection)
        try:
            async with interactive_session(
                view, self._person, sole=False, folder=self.folder
            ) as session:
                try:
                    async with task_scope() as requests:
                        await self._read(reader, session, requests)
                finally:
                    session.view.release()
        except BadMessage as error:
            log.warning("%s (process %d) was disconnected: %s", self.name, self.pid, error)
        finally:
            self._writer.close()
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(FLUSH):
                    await self._writer.wait_closed()

    async def finished(self, seconds: float) -> None:
        """Wait, at most so long, until nothing is under way, then disconnect."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        self.disconnect()

    def disconnect(self) -> None:
        if self._writer is not None:
            self._writer.close()

    async def _read(
        self, reader: asyncio.StreamReader, session: InteractiveSession, requests: TaskScope
    ) -> None:
        self._most = session.view.snapshot.limits.message_bytes + ENVELOPE
        while data := await read_message(reader, self._most):
            try:
                self._received(read_request(data), session, requests)
            except (ValueError, RecursionError) as error:
                raise BadMessage(str(error)) from None

    def _received(self, request: Request, session: InteractiveSession, requests: TaskScope) -> None:
        if isinstance(request, Answer):
            self._person.answered(request)
        else:
            work = self._work(request, session)
            requests.start(self._respond(request.id, work), f"{self.name} {request.id}")

    def _work(
        self, request: Survey | Find | CallTool | RefuseCall, session: InteractiveSession
    ) -> Coroutine[Any, Any, Any]:
        if isinstance(request, Survey):
            return session.view.survey(request.address, fresh=request.fresh)
        if isinstance(request, Find):
            limits, report = session.view.snapshot.limits, partial(self._reading, request.id)
            reading = Reading(report, lazy=True, wait=limits.open_wait)
            return find(session.view, request.query, reading)
        arguments = read_object(request.arguments)
        if isinstance(request, RefuseCall):
            return session.refuse(request.tool, arguments, error_of(request.error))
        progressed = partial(self._progressed, request.id) if request.progress else None
        return session.use_tool(request.tool, arguments, progressed, request.parent)

    async def _respond(self, id: int, work: Coroutine[Any, Any, Any]) -> None:
        self.under_way += 1
        self._idle.clear()
        try:
            self._send(Result(id, msgspec.Raw(msgspec.json.encode(await work))))
        except WorkbenchError as error:
            self._send(CommandFailed(id, error_fields(error)))
        finally:
            self.under_way -= 1
            if not self.under_way:
                self._idle.set()

    def _progressed(self, id: int, params: Json) -> None:
        self._send(Progress(id, msgspec.Raw(msgspec.json.encode(params))))

    def _reading(self, id: int, _done: int, _total: int, text: str) -> None:
        self._progressed(id, {"message": text})

    def _send(self, message: Response) -> None:
        if self._writer is None:
            return
        if self._writer.transport.get_write_buffer_size() > BACKLOG * self._most:
            log.warning("%s (process %d) does not read: disconnected", self.name, self.pid)
            self._writer.transport.abort()
        write_message(self._writer, message)


class RemotePerson:
    """The user of a command, who is asked over its connection."""

    def __init__(self, capabilities: Json, send: Callable[[Response], None]) -> None:
        self.capabilities = capabilities
        self._send = send
        self._numbers = count(1)
        self._open: dict[int, asyncio.Future[Json | None]] = {}

    async def answer(self, question: Question) -> Json | None:
        id = next(self._numbers)
        self._open[id] = asyncio.get_running_loop().create_future()
        self._send(PutQuestion(id, question))
        try:
            return await self._open[id]
        except asyncio.CancelledError:
            self._send(WithdrawQuestion(id))
            raise
        finally:
            del self._open[id]

    def answered(self, answer: Answer) -> None:
        future = self._open.get(answer.id)
        if future is not None and not future.done():
            future.set_result(msgspec.json.decode(answer.answer, type=Json | None))
