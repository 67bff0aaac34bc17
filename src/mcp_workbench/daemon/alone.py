"""A host goes on without the shared workbench: what was under way is answered, the rest begins anew."""

from __future__ import annotations

import os
from itertools import count

from mcp_workbench.app import AnyWriter
from mcp_workbench.daemon.handing import Takeover
from mcp_workbench.daemon.note import read_note
from mcp_workbench.era.ourselves import STAMPS
from mcp_workbench.era.revision import MODERN
from mcp_workbench.era.translate import complete
from mcp_workbench.surface import texts
from mcp_workbench.surface.menu import Menu
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
        self._muffled: Muffled | None = None

    def channel(self, channel: AnyWriter) -> Channel:
        if self._left.is_mid_line:
            channel.send(b"\n")  # what was cut off is no message, and must not spoil the next
        self._muffled = Muffled(channel)
        return self._muffled

    def resume(self, session: HostSession, front: StdioFront, menu: Menu) -> None:
        had = self._muffled.had if self._muffled is not None else set[bytes]()
        session.questions.asking.numbers = count(QUESTIONS_FROM)
        for line in self._takeover.kept:
            self._say_again(line, session, had)
        for toolbox in self._takeover.opened:
            menu.opened(toolbox)
        if self._takeover.is_modern:
            session.era.revision = MODERN
        for id, is_call in self._left.under_way.items():
            _answer(session, id, is_call=is_call)
        for line in self._left.lines:
            if _id_of(line) not in self._left.under_way:  # else it was just begun
                front.receive(line + b"\n")
        front.receive(self._left.rest)

    def _say_again(self, line: bytes, session: HostSession, had: set[bytes]) -> None:
        """What was answered is said without its answer; a listening that goes on is begun anew."""
        message = envelope.decode_text(line)  # as it was before
        id = bytes(message.id)
        under_way = self._left.under_way
        if id in under_way:
            del under_way[id]  # it is answered now, for the first time
        elif message.method == LISTEN:
            return  # it has ended
        else:
            had.add(id)
        session.receive(message)


def _id_of(line: bytes) -> bytes:
    try:
        return bytes(envelope.decode_text(line).id)
    except Malformed:  # which is told by who receives it
        return b""


def _answer(session: HostSession, id: bytes, *, is_call: bool) -> None:
    if is_call:
        result = complete(_CALL, STAMPS) if session.era.modern else _CALL
        session.put(envelope.answer(id, result), id)
    else:
        session.put(envelope.refusal(id, _OTHER), id)


def resumption(takeover: Takeover | None) -> Resumed | None:
    """How a host is served that may have been left behind."""
    return None if takeover is None else Resumed(takeover)
