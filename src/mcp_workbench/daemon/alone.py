"""A host goes on without the shared workbench: what was under way is answered, the rest begins anew."""

from __future__ import annotations

import os
from itertools import count

from mcp_workbench.app import AnyWriter
from mcp_workbench.daemon.basin import drained, on_its_way
from mcp_workbench.daemon.handing import Takeover
from mcp_workbench.daemon.note import read_note
from mcp_workbench.era.ourselves import STAMPS
from mcp_workbench.era.revision import MODERN
from mcp_workbench.era.translate import complete
from mcp_workbench.surface import parse, texts
from mcp_workbench.surface.menu import Menu
from mcp_workbench.surface.parse import Message
from mcp_workbench.surface.session import HostSession
from mcp_workbench.surface.stdio_front import StdioFront
from mcp_workbench.wire import envelope
from mcp_workbench.wire.envelope import Malformed
from mcp_workbench.wire.stdio import Channel

CODE = "server_exited"
WHY = "Error: the shared workbench has ended while this was under way; it may have run"
QUESTIONS_FROM = 1_000_000  # ids of our questions: answers to older ones are then nobody's
LISTEN = "subscriptions/listen"

_CALL = texts.error_texts(CODE, WHY)
_OTHER = envelope.error_object(envelope.SERVER_ERROR, WHY, {texts.CODE_KEY: CODE})


class Muffled:
    """The way to the host, on which answers that it had before are left out."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.had: set[bytes] = set()

    @property
    def backlog(self) -> int:
        return self._channel.backlog

    def send(self, frame: bytes, about: bytes = b"") -> None:
        if about in self.had and envelope.answers(frame, about):
            self.had.discard(about)
        else:
            self._channel.send(frame, about)


class Resumed:
    """Brings a new session to where the old one was."""

    def __init__(self, takeover: Takeover) -> None:
        self._takeover = takeover
        self._left = read_note(takeover.note)
        os.close(takeover.note)
        self._begun = frozenset(self._left.under_way)  # one may not be counted as looked at yet
        self._on_its_way = self._drained(takeover.outlet)
        self._muffled: Muffled | None = None

    def _drained(self, outlet: int) -> bytes:
        """What the host has not got yet. The answers in it are given."""
        data = b""
        if outlet >= 0:
            data = drained(outlet)
            os.close(outlet)
        passed_on, whole = on_its_way(data, self._left)
        under_way = self._left.under_way
        under_way.pop(whole or b"", None)
        for line in passed_on.split(b"\n"):
            under_way.pop(_answered_in(line), None)
        return passed_on

    def channel(self, channel: AnyWriter) -> Channel:
        if self._on_its_way:
            channel.send(self._on_its_way)
        self._muffled = Muffled(channel)
        return self._muffled

    def resume(self, session: HostSession, front: StdioFront, menu: Menu) -> None:
        had = self._muffled.had if self._muffled is not None else set[bytes]()
        session.elicitation.input_requests.numbers = count(QUESTIONS_FROM)
        for line in self._takeover.kept:
            self._say_again(line, session, had)
        for toolbox in self._takeover.opened:
            menu.opened(toolbox)
        if self._takeover.is_modern:
            session.era.revision = MODERN
        self._settle(session)
        for line in self._left.lines:
            if not _is_one_of(self._begun, line):
                front.receive(line + b"\n")
        front.receive(self._left.rest)

    def _settle(self, session: HostSession) -> None:
        """What was under way is performed anew where it may be; otherwise it may have run."""
        for id, request in self._left.under_way.items():
            message = _read(request.line)
            if message is not None:
                session.receive(message)
            else:
                _answer(session, id, is_call=request.is_call)

    def _say_again(self, line: bytes, session: HostSession, had: set[bytes]) -> None:
        """What was answered is said without its answer; a listening that goes on is begun anew."""
        message = parse.read(line)  # as it was before
        id = bytes(message.id)
        under_way = self._left.under_way
        if id in under_way:
            del under_way[id]  # it is answered now, for the first time
        elif message.method == LISTEN:
            return  # it has ended
        else:
            had.add(id)
        session.receive(message)


def _read(line: bytes) -> Message | None:
    try:
        return parse.read(line)
    except Malformed:
        return None


def _is_one_of(ids: frozenset[bytes], line: bytes) -> bool:
    message = _read(line)
    return message is not None and bool(message.method) and bytes(message.id) in ids


def _answered_in(line: bytes) -> bytes:
    """Whose answer this is; nobody's, if it is none."""
    message = _read(line)
    return b"" if message is None or message.method else bytes(message.id)


def _answer(session: HostSession, id: bytes, *, is_call: bool) -> None:
    if is_call:
        result = complete(_CALL, STAMPS) if session.era.modern else _CALL
        session.put(envelope.answer(id, result), id)
    else:
        session.put(envelope.refusal(id, _OTHER), id)


def resumption(takeover: Takeover | None) -> Resumed | None:
    """How a host is served that may have been left behind."""
    return None if takeover is None else Resumed(takeover)
