"""The one process of a server for all replicas: many clients on one pair of pipes.

Each replica is a client, this one among them, and speaks to the server as if it were alone. Nothing in a
message is changed: client K uses numbers above K << NUMBERS for its requests, so a response, progress and
the notifications of a subscription say themselves whose they are. What a server has once, all clients share:
the handshake is performed by the first of them and its result repeated for the others, a resource stays
subscribed while one client wants it, and the most verbose log level counts.

`may_answer` is asked for every message in both directions. Once it is false nothing passes any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec

from mcp_workbench.protocol.primitive_messages import LEVELS, most_verbose
from mcp_workbench.transport import jsonrpc
from mcp_workbench.transport.json_text import LineFramer
from mcp_workbench.transport.jsonrpc import Envelope, Malformed
from mcp_workbench.transport.stdio import Channel
from mcp_workbench.upstream.conversation import Waiting, valid_text

NUMBERS = 32  # bits of a request's number that its client counts with
MOST_CLIENTS = 1 << 20  # of one process, one after the other: numbers stay below 2 ** 53
MOST_QUEUED = 1000  # messages of one client that wait for the handshake of another one
DONE = b"{}"

_PROGRESS = "notifications/progress"
_INITIALIZED = "notifications/initialized"
_CANCELLED = "notifications/cancelled"


class ProcessClient(Protocol):
    """Where the messages for one replica go."""

    def deliver(self, line: bytes) -> None:
        """Take a message of the server, with its line end."""
        ...

    def closed(self, reason: str, unpassed: tuple[int, ...], last: int) -> None:
        """The process has ended, and never received these requests, nor any after the last one that came here."""
        ...


class _Attached:
    """One client, and what it wants of the server."""

    def __init__(self, number: int, client: ProcessClient) -> None:
        self.number = number
        self.client = client
        self.in_flight: set[int] = set()
        self.listening: set[int] = set()  # requests that stay open
        self.unpassed: list[int] = []
        self.last = number << NUMBERS  # request that came here
        self.queued: list[bytes] = []  # until the handshake is done
        self.uris: set[str] = set()
        self.level = ""


class _Progress(msgspec.Struct, frozen=True):
    progressToken: int | str = ""  # noqa: N815 - the protocol's name


class _Cancelled(msgspec.Struct, frozen=True):
    requestId: int = 0  # noqa: N815 - the protocol's name


class _Resource(msgspec.Struct, frozen=True):
    uri: str = ""


class _Level(msgspec.Struct, frozen=True):
    level: str = ""


class PlacedProcess:
    """Passes messages between the pipes of a process and its clients."""

    def __init__(self, message_bytes: int, may_answer: Callable[[], bool]) -> None:
        self._may_answer = may_answer
        self._framer = LineFramer(message_bytes)
        self._channel: Channel | None = None
        self._pause: Waiting | None = None  # of reading what the server writes
        self._waiting: set[int] = set()  # clients that are not done with what was delivered
        self._clients: dict[int, _Attached] = {}
        self._count = 0
        self._own = 0  # requests of our own
        self._opener: _Attached | None = None  # performs the handshake
        self._is_agreed = False
        self._initialize = b""  # the server's result
        self._initialize_number = self._discover_number = 0
        self._level = ""
        self.over = asyncio.Event()  # it has to end
        self.idle = asyncio.Event()  # set while nothing is in flight
        self.idle.set()
        self.reason = "the server exited"
        self.is_draining = False

    def started(self, channel: Channel, pause: Waiting) -> None:
        self._channel = channel
        self._pause = pause

    # Clients

    def attach(self, client: ProcessClient) -> int:
        """Returns the client's number, which is part of those of its requests."""
        self._count += 1
        attached = _Attached(self._count, client)
        self._clients[self._count] = attached
        if self._opener is None:
            self._opener = attached
        if self._count >= MOST_CLIENTS:
            self.end("it has had too many clients")
        return self._count

    def wait(self, number: int, *, waits: bool) -> None:
        """Read nothing from the server while one of its clients is not done with what was read."""
        before = bool(self._waiting)
        if waits:
            self._waiting.add(number)
        else:
            self._waiting.discard(number)
        if self._pause is not None and before != bool(self._waiting):
            self._pause(waits=not before)

    def detach(self, number: int) -> None:
        self.wait(number, waits=False)
        client = self._clients.pop(number, None)
        if client is None:
            return
        if client is self._opener and not self._is_agreed:
            # Amid the handshake: for another attempt the server has to be started again.
            self.end("its handshake was interrupted")
            return
        for request in client.in_flight | client.listening:
            params = jsonrpc.encode({"requestId": request, "reason": "the caller has gone"})
            self._write(jsonrpc.notification(_CANCELLED, params))
        for uri in client.uris:
            if not self._wants(uri):
                self._send_own("resources/unsubscribe", jsonrpc.encode({"uri": uri}))
        self._look_idle()

    @property
    def has_clients(self) -> bool:
        return bool(self._clients)

    @property
    def backlog(self) -> int:
        """Bytes that the server has not read yet."""
        return 0 if self._channel is None else self._channel.backlog

    def end(self, reason: str) -> None:
        """Ask for the end of the process."""
        if not self.over.is_set():
            self.reason = reason
            self.over.set()

    def drain(self) -> None:
        """Pass no new requests: their clients send them to the next process."""
        self.is_draining = True

    def close_clients(self, reason: str) -> None:
        """The process has ended, or is about to: nothing passes any more."""
        self._channel = None
        clients, self._clients = self._clients, {}
        for attached in clients.values():
            queued = [_number(jsonrpc.decode(frame).id) for frame in attached.queued]
            unpassed = (*attached.unpassed, *filter(None, queued))
            attached.client.closed(reason, unpassed, attached.last)

    def _wants(self, uri: str) -> bool:
        return any(uri in client.uris for client in self._clients.values())

    # From clients

    def send(self, number: int, frame: bytes) -> None:
        """Take a message of this client."""
        client = self._clients.get(number)
        if client is None:
            return
        try:
            message = jsonrpc.decode(frame)
        except Malformed:
            return
        if message.id and message.method:
            self._request(client, message, frame)
        elif not self._is_agreed and client is not self._opener:
            self._queue(client, frame)
        elif message.method != _INITIALIZED:
            if message.method == _CANCELLED:
                client.in_flight.discard(_read(message.params, _Cancelled).requestId)
                self._look_idle()
            self._write(frame)
        elif not self._is_agreed:
            self._write(frame)
            self._agreed()

    def _request(self, client: _Attached, message: Envelope, frame: bytes) -> None:
        request = _number(message.id)
        client.last = max(client.last, request)
        if self.is_draining or not self._may_answer():
            client.unpassed.append(request)
        elif not self._is_agreed and client is not self._opener:
            self._queue(client, frame)
        elif not self._answered_here(client, request, message):
            if message.method == "subscriptions/listen":
                client.listening.add(request)
            else:
                client.in_flight.add(request)
                self.idle.clear()
            self._write(frame)

    def _queue(self, client: _Attached, frame: bytes) -> None:
        if len(client.queued) < MOST_QUEUED:
            client.queued.append(frame)

    def _answered_here(self, client: _Attached, request: int, message: Envelope) -> bool:
        """Answer what the server need not, or must not, be asked again."""
        match message.method:
            case "initialize" | "server/discover":
                return self._repeats_handshake(client, request, message.method)
            case "resources/subscribe":
                client.uris.add(_read(message.params, _Resource).uri)
            case "resources/unsubscribe":
                uri = _read(message.params, _Resource).uri
                client.uris.discard(uri)
                if self._wants(uri):
                    self._reply(client, request, DONE)
                    return True
            case "logging/setLevel":
                return self._has_level(client, request, _read(message.params, _Level).level)
            case _:
                pass
        return False

    def _repeats_handshake(self, client: _Attached, request: int, method: str) -> bool:
        """Answer for a server that has answered `initialize`: it could end at a second one, or at a probe."""
        if not self._initialize:
            if method == "initialize":
                self._initialize_number = request
            else:
                self._discover_number = request
            return False
        if method == "initialize":
            self._reply(client, request, self._initialize)
        else:
            error = jsonrpc.error_object(jsonrpc.METHOD_NOT_FOUND, "Method not found")
            self._deliver_soon(client, jsonrpc.refusal(b"%d" % request, error))
        return True

    def _has_level(self, client: _Attached, request: int, level: str) -> bool:
        """Whether the server has this level already, because another client wants as much or more."""
        client.level = level if level in LEVELS else ""
        wanted = most_verbose([one.level for one in self._clients.values() if one.level])
        if client.level and wanted == self._level:
            self._reply(client, request, DONE)
            return True
        if (
            client.level and wanted != client.level
        ):  # it wanted more before, and another one still less
            self._send_own("logging/setLevel", jsonrpc.encode({"level": wanted}))
            self._reply(client, request, DONE)
            self._level = wanted
            return True
        self._level = wanted
        return False

    def _reply(self, client: _Attached, request: int, result: bytes) -> None:
        self._deliver_soon(client, jsonrpc.answer(b"%d" % request, result))

    def _deliver_soon(self, client: _Attached, line: bytes) -> None:
        """Who has just sent a request does not expect the response before it returns."""
        asyncio.get_running_loop().call_soon(client.client.deliver, line)

    def _send_own(self, method: str, params: bytes) -> None:
        """Send a request of our own, whose response nobody waits for."""
        self._own += 1
        self._write(jsonrpc.request(self._own, method, params))

    def _write(self, frame: bytes) -> None:
        if self._channel is not None and self._may_answer():
            self._channel.send(frame)

    def _agreed(self) -> None:
        """The handshake is done: the others may begin."""
        self._is_agreed = True
        if self._opener is not None:  # a server may leave one of them without an answer
            self._opener.in_flight -= {self._initialize_number, self._discover_number}
        for client in tuple(self._clients.values()):
            queued, client.queued = client.queued, []
            for frame in queued:
                self.send(client.number, frame)

    # From the server

    def receive(self, data: bytes) -> None:
        """Take bytes of the server."""
        for line in self._framer.feed(data):
            if not self._may_answer():
                return
            self._receive_line(line)
        if self._framer.overflow is not None:
            self._framer.take_overflow()
            self.end("a message of it is too large (limits.messageBytes)")

    def _receive_line(self, line: bytes) -> None:
        try:
            message = jsonrpc.decode(line if line.isascii() else valid_text(line))
        except Malformed as error:
            self._receive_malformed(line, error)
            return
        if not message.method:
            self._receive_response(_number(message.id), message, line)
        elif message.id:
            self._receive_question(line)
        elif message.method == _PROGRESS:
            self._deliver_to(_read(message.params, _Progress).progressToken, line)
        else:
            self._broadcast(line)

    def _receive_response(self, number: int, message: Envelope, line: bytes) -> None:
        client = self._clients.get(number >> NUMBERS)
        if client is None:
            return  # it has left, or the request was our own
        client.in_flight.discard(number)
        client.listening.discard(number)
        client.client.deliver(line + b"\n")
        if message.result and number == self._initialize_number:
            self._initialize = bytes(message.result)
        elif message.result and number == self._discover_number and not self._is_agreed:
            self._agreed()
        self._look_idle()

    def _receive_malformed(self, line: bytes, error: Malformed) -> None:
        if jsonrpc.is_batch(line):
            try:
                members = jsonrpc.read_batch(line)
            except Malformed:
                members = []
            for member in members:
                if not jsonrpc.is_batch(member):
                    self._receive_line(member)
            return
        number = _number(msgspec.Raw(error.id))
        client = self._clients.get(number >> NUMBERS) or (None if self._is_agreed else self._opener)
        if client is not None:  # which says what is wrong with it
            client.in_flight.discard(number)
            client.client.deliver(line + b"\n")
            self._look_idle()

    def _receive_question(self, line: bytes) -> None:
        """A request of the server goes to who has asked it something last."""
        busy = [client for client in self._clients.values() if client.in_flight]
        latest = max(busy, key=lambda client: max(client.in_flight), default=None)
        client = latest or next(iter(self._clients.values()), None)
        if client is not None:
            client.client.deliver(line + b"\n")

    def _deliver_to(self, token: int | str, line: bytes) -> None:
        client = self._clients.get(token >> NUMBERS) if isinstance(token, int) else None
        if client is not None:
            client.client.deliver(line + b"\n")

    def _broadcast(self, line: bytes) -> None:
        for client in tuple(self._clients.values()):
            client.client.deliver(line + b"\n")

    def _look_idle(self) -> None:
        if not any(client.in_flight for client in self._clients.values()):
            self.idle.set()


Part = TypeVar("Part", bound=msgspec.Struct)


def _number(id: msgspec.Raw) -> int:
    raw = bytes(id)
    return int(raw) if raw.isdigit() and len(raw) < 19 else 0


def _read(params: msgspec.Raw, kind: type[Part]) -> Part:
    try:
        return msgspec.json.decode(params or b"{}", type=kind)
    except (msgspec.DecodeError, RecursionError):
        return kind()
