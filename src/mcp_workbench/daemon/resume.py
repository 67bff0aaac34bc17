"""Resume: a host continues without the daemon that served it.

Requests in flight get their response, or are performed again if that is safe; the requests that set up the
session are repeated to a new session, and their responses dropped.
"""

from __future__ import annotations

import os
from itertools import count

from mcp_workbench.app import AnyWriter
from mcp_workbench.daemon.attached import Takeover
from mcp_workbench.daemon.crash_journal import read_journal
from mcp_workbench.daemon.outbox import drain_outbox, undelivered
from mcp_workbench.protocol.handshake import STAMPS
from mcp_workbench.protocol.revisions import MODERN
from mcp_workbench.protocol.translation import complete
from mcp_workbench.server import parse, text
from mcp_workbench.server.parse import Message
from mcp_workbench.server.session import HostSession
from mcp_workbench.server.stdio import StdioFront
from mcp_workbench.server.tools import ToolView
from mcp_workbench.transport import jsonrpc
from mcp_workbench.transport.jsonrpc import Malformed
from mcp_workbench.transport.stdio import Channel

CODE = "server_exited"
WHY = "Error: the shared workbench has ended while this was under way; it may have run"
QUESTIONS_FROM = 1_000_000  # first id of our questions: responses to the daemon's match none
LISTEN = "subscriptions/listen"

_CALL = text.error_texts(CODE, WHY)
_OTHER = jsonrpc.error_object(jsonrpc.SERVER_ERROR, WHY, {text.CODE_KEY: CODE})


class DuplicateFilter:
    """A channel to the host that drops responses the host already has."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.answered: set[bytes] = set()

    @property
    def backlog(self) -> int:
        return self._channel.backlog

    def send(self, frame: bytes, about: bytes = b"") -> None:
        if about in self.answered and jsonrpc.answers(frame, about):
            self.answered.discard(about)
        else:
            self._channel.send(frame, about)


class Resumed:
    """Brings a new session to the state of the old one."""

    def __init__(self, takeover: Takeover) -> None:
        self._takeover = takeover
        self._contents = read_journal(takeover.journal)
        os.close(takeover.journal)
        self._started = frozenset(self._contents.under_way)  # one may still be among the lines
        self._undelivered = self._drain(takeover.outlet)
        self._filter: DuplicateFilter | None = None

    def _drain(self, outlet: int) -> bytes:
        """The bytes that the host has not received; the requests answered by them are finished."""
        data = b""
        if outlet >= 0:
            data = drain_outbox(outlet)
            os.close(outlet)
        passed_on, completed = undelivered(data, self._contents)
        under_way = self._contents.under_way
        under_way.pop(completed or b"", None)
        for line in passed_on.split(b"\n"):
            under_way.pop(_answered_by(line), None)
        return passed_on

    def channel(self, channel: AnyWriter) -> Channel:
        if self._undelivered:
            channel.send(self._undelivered)
        self._filter = DuplicateFilter(channel)
        return self._filter

    def resume(self, session: HostSession, front: StdioFront, menu: ToolView) -> None:
        answered = self._filter.answered if self._filter is not None else set[bytes]()
        session.elicitation.input_requests.numbers = count(QUESTIONS_FROM)
        for line in self._takeover.kept:
            self._repeat(line, session, answered)
        for toolbox in self._takeover.opened:
            menu.opened(toolbox)
        if self._takeover.is_modern:
            session.era.revision = MODERN
        self._perform_pending(session)
        for line in self._contents.lines:
            if not _is_one_of(self._started, line):
                front.receive(line + b"\n")
        front.receive(self._contents.rest)

    def _perform_pending(self, session: HostSession) -> None:
        """Perform requests in flight again if that is safe; fail the others, which may have run."""
        for id, request in self._contents.under_way.items():
            message = _read(request.line)
            if message is not None:
                session.receive(message)
            else:
                _fail(session, id, is_call=request.is_call)

    def _repeat(self, line: bytes, session: HostSession, answered: set[bytes]) -> None:
        """Repeat a request that set up the session. A response that the host has is dropped."""
        message = parse.read(line)  # it was valid before
        id = bytes(message.id)
        under_way = self._contents.under_way
        if id in under_way:
            del under_way[id]  # this is its first response
        elif message.method == LISTEN:
            return  # it has ended
        else:
            answered.add(id)
        session.receive(message)


def _read(line: bytes) -> Message | None:
    try:
        return parse.read(line)
    except Malformed:
        return None


def _is_one_of(ids: frozenset[bytes], line: bytes) -> bool:
    message = _read(line)
    return message is not None and bool(message.method) and bytes(message.id) in ids


def _answered_by(line: bytes) -> bytes:
    """The id of the request whose response this is; empty if it is none."""
    message = _read(line)
    return b"" if message is None or message.method else bytes(message.id)


def _fail(session: HostSession, id: bytes, *, is_call: bool) -> None:
    if is_call:
        result = complete(_CALL, STAMPS) if session.era.modern else _CALL
        session.put(jsonrpc.answer(id, result), id)
    else:
        session.put(jsonrpc.refusal(id, _OTHER), id)


def resumption(takeover: Takeover | None) -> Resumed | None:
    """How to continue a host's session; None if it is a new one."""
    return None if takeover is None else Resumed(takeover)
