"""Links to a server that has one process for all replicas: the process is here, or at another replica."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from mcp_workbench.cluster.link import DATA, END, MORE, AcceptedLink, ConnectingLink
from mcp_workbench.cluster.placed_process import NUMBERS, PlacedProcess
from mcp_workbench.transport import jsonrpc
from mcp_workbench.transport.stdio import Channel
from mcp_workbench.upstream.conversation import Conversation

ATTACH = b"placed "  # begins the request for a stream to such a server
PIECE = 1 << 18  # bytes of one frame
NO_LAST = 1 << 62  # above all numbers
MOST_KEPT = 256  # frames
HEAD = 64  # bytes of them, in which the number is
GONE = "the replica that ran the server has ended, or has lost it"


class AttachRequest(msgspec.Struct, frozen=True, array_like=True):
    """What a replica sends to reach a server at another one."""

    toolbox: str
    server: str
    is_handed_over: bool = False  # who sends it is ending: take the server if nobody has it


class StreamEnd(msgspec.Struct, frozen=True, array_like=True):
    """Why the process ended, and the requests that it never received: these, and all after the last one."""

    reason: str
    unpassed: tuple[int, ...] = ()
    last: int = NO_LAST


def read_attach(payload: bytes) -> AttachRequest | None:
    """Returns the request; None for everything that no replica sends."""
    try:
        return msgspec.msgpack.decode(payload[len(ATTACH) :], type=AttachRequest)
    except (msgspec.DecodeError, ValueError):
        return None


class PlacedLink:
    """What both kinds have in common: one stream of messages, as a pipe has."""

    initialize_first = True
    complaints: tuple[str, ...] = ()

    def __init__(self, conversation: Conversation, ended: Callable[[], None]) -> None:
        self._conversation = conversation
        conversation.on_waiting = self.wait
        self._ended = ended
        self._reason = ""
        self._unpassed: tuple[int, ...] = ()
        self._kept: list[bytes] = []  # frames of after the end, until that is noticed
        self.is_over = False

    def number(self, number: int) -> None:
        """This is the client's number: use those of its requests."""
        self._conversation.pending.number_after(number << NUMBERS)

    def deliver(self, line: bytes) -> None:
        self._conversation.receive(line)

    def closed(self, reason: str, unpassed: tuple[int, ...], last: int) -> None:
        if not self.is_over:
            self.is_over = True
            waiting = self._conversation.pending.waiting
            underway = [number for number in waiting if number > last]
            self._reason, self._unpassed = reason, (*unpassed, *underway)
            self._ended()

    async def opens_sessions(self) -> bool:
        return False

    def agreed(self, revision: str) -> None:
        """A pipe works the same in every revision."""

    def hold(self, *, held: bool) -> None:
        """Other replicas read from the same process: it goes on."""

    def wait(self, *, waits: bool) -> None:
        """Receive no more while what was received is not handled yet: a few steps of the loop."""
        raise NotImplementedError

    @property
    def channel(self) -> Channel:
        return self

    @property
    def backlog(self) -> int:
        raise NotImplementedError

    def send(self, frame: bytes, about: bytes = b"") -> None:
        if not self.is_over:
            self._send(frame)
        elif len(self._kept) < MOST_KEPT:
            self._kept.append(frame[:HEAD])

    def _send(self, frame: bytes) -> None:
        raise NotImplementedError

    def unsent(self) -> tuple[bytes, ...]:
        return (*map(jsonrpc.start_of, self._unpassed), *self._kept)

    async def exit_reason(self, what: str, *, ended: bool) -> str:
        return self._reason or what


class LocalLink(PlacedLink):
    """To a process of this replica."""

    def __init__(
        self, process: PlacedProcess, conversation: Conversation, ended: Callable[[], None]
    ) -> None:
        super().__init__(conversation, ended)
        self._process = process
        self._number = process.attach(self)
        self.number(self._number)

    @property
    def backlog(self) -> int:
        return self._process.backlog

    def wait(self, *, waits: bool) -> None:
        self._process.wait(self._number, waits=waits)

    def _send(self, frame: bytes) -> None:
        self._process.send(self._number, frame)

    def close(self) -> None:
        self.is_over = True
        self._process.detach(self._number)


class RemoteLink(PlacedLink):
    """To a process of another replica, over the connection between the two."""

    def __init__(
        self, link: ConnectingLink, conversation: Conversation, ended: Callable[[], None]
    ) -> None:
        super().__init__(conversation, ended)
        self._link = link
        self._stream = 0
        self.attached: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def open(self, request: AttachRequest) -> None:
        """Ask for the server. Raises LinkBroken."""
        self._stream = self._link.open(ATTACH + msgspec.msgpack.encode(request), self)

    @property
    def backlog(self) -> int:
        return self._link.backlog

    def wait(self, *, waits: bool) -> None:
        self._link.wait(self._stream, waits=waits)

    def _send(self, frame: bytes) -> None:
        self._link.frame(MORE, self._stream, frame)

    def close(self) -> None:
        self.is_over = True
        self._link.leave(self._stream)

    @property
    def reason(self) -> str:
        return self._reason

    def _decide(self, *, attached: bool) -> None:
        if not self.attached.done():
            self.attached.set_result(attached)

    # What the connection calls

    def data(self, payload: bytes) -> None:
        if self.attached.done():
            self.deliver(payload)
            return
        self.number(int.from_bytes(payload, "big"))
        self._decide(attached=True)

    def end(self, payload: bytes) -> None:
        try:
            end = msgspec.msgpack.decode(payload, type=StreamEnd)
        except (msgspec.DecodeError, ValueError):
            end = StreamEnd(GONE)
        self.closed(end.reason, end.unpassed, end.last)
        self._decide(attached=False)

    def aborted(self) -> None:
        self.lost()

    def refused(self, payload: bytes) -> None:
        self.is_over = True
        self._decide(attached=False)

    def lost(self) -> None:
        self.closed(GONE, (), NO_LAST)
        self._decide(attached=False)


class RemoteClient:
    """At the replica with the process: another replica that uses it."""

    def __init__(self, link: AcceptedLink, stream: int) -> None:
        self._link = link
        self._stream = stream

    def attached(self, number: int) -> None:
        self._link.frame(DATA, self._stream, number.to_bytes(4, "big"))

    def deliver(self, line: bytes) -> None:
        for at in range(0, len(line), PIECE):
            self._link.frame(DATA, self._stream, line[at : at + PIECE])

    def closed(self, reason: str, unpassed: tuple[int, ...], last: int) -> None:
        end = msgspec.msgpack.encode(StreamEnd(reason, unpassed, last))
        self._link.frame(END, self._stream, end)
