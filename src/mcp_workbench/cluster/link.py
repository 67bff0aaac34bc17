"""The connection from one replica to another: both prove the cluster's key, everything is encrypted.

Many requests share one connection. Who connects opens streams; the other side answers them with bytes.
`docs/internals/cluster-link.md` describes every byte.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import struct
from collections.abc import Callable
from typing import Protocol, cast

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from mcp_workbench.cluster.keys import NONCE, TAG, derive

log = logging.getLogger(__name__)

MAGIC = b"MCPWB1"
RANDOM = 16  # bytes that each side adds to the handshake
MAC = 32
ID = 12  # characters of a replica's id
HANDSHAKE_TIME = 1.0  # seconds
STRANGERS = 64  # connections at once that have not proved anything
MOST_STREAMS = 20_000  # on one connection
UNSENT = 8  # of the largest messages that the other side has not read
SLACK = 1 << 20  # bytes of a frame beyond the largest message
PIECE = 1 << 20  # bytes after which frames of one turn are sent apart
QUIET = 10.0  # seconds in which strangers are logged once

OPEN, DATA, END, ABORT, GONE, REFUSED, ASK, ANSWER, MORE = range(9)

NO_TURN, UNSENT_TURN, SENT_TURN = range(3)  # what was sent since the loop's last turn

_FRAME = struct.Struct(">BII")  # kind, stream, size
_SIZE = struct.Struct(">I")
_HELLO = len(MAGIC) + ID + ID + RANDOM


class LinkBroken(Exception):
    """The other side has gone, or is no replica of this cluster."""


class StreamHandler(Protocol):
    """Who waits for the answer to a stream that we opened."""

    def data(self, payload: bytes) -> None: ...
    def end(self, payload: bytes) -> None: ...
    def aborted(self) -> None: ...
    def refused(self, payload: bytes) -> None:
        """The other side has not handled it."""
        ...

    def lost(self) -> None:
        """The connection broke; the other side may have handled it."""
        ...


class LinkServer(Protocol):
    """What a replica does for the others."""

    def opened(self, link: AcceptedLink, stream: int, payload: bytes) -> None: ...
    def more(self, link: AcceptedLink, stream: int, payload: bytes) -> None: ...
    def gone(self, link: AcceptedLink, stream: int) -> None: ...
    def asked(self, link: AcceptedLink, stream: int, payload: bytes) -> None: ...
    def closed(self, link: AcceptedLink) -> None: ...


class _Link(asyncio.Protocol):
    """Frames in both directions, once both sides have proved themselves."""

    def __init__(self, key: bytes, most: int) -> None:
        self._key = derive(key, b"between replicas")
        self._most = most + SLACK
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._data = bytearray()
        self._out: list[bytes] = []
        self._turn = NO_TURN
        self._encrypt: AESGCM | None = None
        self._decrypt: AESGCM | None = None
        self._sent = self._received = 0
        self.is_closed = False
        self.is_late = False  # the handshake took too long
        self.timer = self._loop.call_later(HANDSHAKE_TIME, self._late)

    # Handshake

    def _mac(self, side: bytes, transcript: bytes) -> bytes:
        return hmac.digest(self._key, side + transcript, "sha256")

    def _agree(self, transcript: bytes, *, connects: bool) -> None:
        keys = [AESGCM(self._mac(side, transcript)) for side in (b"to acceptor", b"to connector")]
        self._encrypt, self._decrypt = keys if connects else keys[::-1]
        self.timer.cancel()

    def _late(self) -> None:
        if self._encrypt is None:
            self.is_late = True
            self.abort()

    def _take(self, size: int) -> bytes | None:
        if len(self._data) < size:
            return None
        taken = bytes(self._data[:size])
        del self._data[:size]
        return taken

    # Frames

    @property
    def backlog(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def frame(self, kind: int, stream: int, payload: bytes = b"") -> None:
        """Send a frame. The first of a turn of the loop leaves at once, and the others together at its end.

        A part of an answer waits for what follows it, usually its end.
        """
        if self.is_closed or self._transport is None:
            return
        self._out += (_FRAME.pack(kind, stream, len(payload)), payload)
        if self._turn == NO_TURN:
            self._turn = UNSENT_TURN
            self._loop.call_soon(self._end_turn)
        # With a backlog the flush could end the connection, which who sends does not expect now.
        if self._turn == UNSENT_TURN and kind != DATA and not self.backlog:
            self._turn = SENT_TURN
            self._flush()

    def _end_turn(self) -> None:
        self._turn = NO_TURN
        self._flush()

    def _flush(self) -> None:
        while self._out and not self.is_closed:
            if self._transport is None or self._encrypt is None:
                self._out.clear()
                return
            if self.backlog > UNSENT * self._most:
                self.abort()
                return
            self._sent += 1
            nonce = self._sent.to_bytes(NONCE, "big")
            sealed = self._encrypt.encrypt(nonce, b"".join(self._piece()), None)
            self._transport.write(_SIZE.pack(len(sealed)) + sealed)

    def _piece(self) -> list[bytes]:
        """The next frames to be sent together. Very many large ones would make a piece that nobody accepts."""
        size, end = 0, 0
        while end < len(self._out) and size <= PIECE:
            size += len(self._out[end]) + len(self._out[end + 1])
            end += 2
        piece, self._out = self._out[:end], self._out[end:]
        return piece

    def _read_frames(self) -> None:
        data, at = self._data, 0
        while len(data) - at >= _SIZE.size and not self.is_closed:
            (size,) = _SIZE.unpack_from(data, at)
            # Frames of one turn are joined: several messages may be in one piece.
            if not TAG < size <= 4 * self._most:
                raise LinkBroken("a piece of an impossible size")
            if len(data) - at - _SIZE.size < size:
                break
            at += _SIZE.size
            self._received += 1
            assert self._decrypt is not None  # noqa: S101 - agreed before frames are read
            nonce = self._received.to_bytes(NONCE, "big")
            try:
                plain = self._decrypt.decrypt(nonce, bytes(data[at : at + size]), None)
            except InvalidTag:
                raise LinkBroken("a piece that was changed on its way") from None
            at += size
            self._split(plain)
        del data[:at]

    def _split(self, plain: bytes) -> None:
        at = 0
        while at < len(plain):
            if len(plain) - at < _FRAME.size:
                raise LinkBroken("half a frame")
            kind, stream, size = _FRAME.unpack_from(plain, at)
            at += _FRAME.size
            if len(plain) - at < size:
                raise LinkBroken("half a frame")
            self._frame(kind, stream, plain[at : at + size])
            at += size

    def _frame(self, kind: int, stream: int, payload: bytes) -> None:
        raise NotImplementedError

    def _read_handshake(self) -> None:
        raise NotImplementedError

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self.is_closed:  # in the same turn in which it was accepted
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._data += data
        try:
            if self._decrypt is None:
                self._read_handshake()
            if self._decrypt is not None:
                self._read_frames()
        except LinkBroken as error:
            self._warn(error)
            self.abort()

    def _warn(self, error: LinkBroken) -> None:
        log.warning("a connection between replicas was closed: %s", error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._closed()

    def finish(self) -> None:
        """Close it when all that was written has been sent."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def _closed(self) -> None:
        self.timer.cancel()
        self.is_closed = True
        self._out.clear()


class ConnectingLink(_Link):
    """Our connection to another replica: requests go out, answers come in."""

    def __init__(self, key: bytes, most: int, own_id: str, other_id: str) -> None:
        super().__init__(key, most)
        self.other_id = other_id
        self.ready: asyncio.Future[None] = self._loop.create_future()
        self._hello = MAGIC + own_id.encode() + other_id.encode() + os.urandom(RANDOM)
        self._handlers: dict[int, StreamHandler] = {}
        self._answers: dict[int, asyncio.Future[bytes]] = {}
        self._waiting: set[int] = set()  # streams that are not done with what has arrived
        self._count = 0

    @property
    def is_ready(self) -> bool:
        return self._encrypt is not None and not self.is_closed

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        cast("asyncio.Transport", transport).write(self._hello)

    def _read_handshake(self) -> None:
        answer = self._take(RANDOM + MAC)
        if answer is None:
            return
        transcript = self._hello + answer[:RANDOM]
        if not hmac.compare_digest(answer[RANDOM:], self._mac(b"acceptor", transcript)):
            raise LinkBroken("the other side has another key")
        if self._transport is not None:
            self._transport.write(self._mac(b"connector", transcript))
        self._agree(transcript, connects=True)
        if not self.ready.done():
            self.ready.set_result(None)

    def open(self, payload: bytes, handler: StreamHandler) -> int:
        """Send a request. Raises LinkBroken if that is not possible."""
        if not self.is_ready or len(self._handlers) >= MOST_STREAMS:
            raise LinkBroken("there is no connection, or too much waits for it")
        self._count = (self._count + 1) & 0xFFFFFFFF
        self._handlers[self._count] = handler
        self.frame(OPEN, self._count, payload)
        return self._count

    def wait(self, stream: int, *, waits: bool) -> None:
        """Receive nothing while one of the streams is not done with what has arrived."""
        before = bool(self._waiting)
        if waits:
            self._waiting.add(stream)
        else:
            self._waiting.discard(stream)
        if self._transport is None or self.is_closed or before == bool(self._waiting):
            return
        if before:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def leave(self, stream: int) -> None:
        """Nobody waits for this answer any more."""
        self.wait(stream, waits=False)
        if self._handlers.pop(stream, None) is not None:
            self.frame(GONE, stream)

    async def ask(self, payload: bytes, seconds: float) -> bytes:
        """Ask something short. Raises LinkBroken if no answer comes in time."""
        if not self.is_ready:
            raise LinkBroken("there is no connection")
        self._count = (self._count + 1) & 0xFFFFFFFF
        number, future = self._count, self._loop.create_future()
        self._answers[number] = future
        self.frame(ASK, number, payload)
        try:
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError:
            raise LinkBroken("no answer in time") from None
        finally:
            self._answers.pop(number, None)

    def _frame(self, kind: int, stream: int, payload: bytes) -> None:
        if kind == ANSWER:
            future = self._answers.pop(stream, None)
            if future is not None and not future.done():
                future.set_result(payload)
            return
        handler = self._handlers.get(stream)
        if handler is None:
            return  # we have left it
        if kind == DATA:
            handler.data(payload)
            return
        del self._handlers[stream]
        if kind == END:
            handler.end(payload)
        elif kind == REFUSED:
            handler.refused(payload)
        else:
            handler.aborted()

    def _closed(self) -> None:
        super()._closed()
        if not self.ready.done():
            self.ready.set_exception(LinkBroken("it did not prove to be the replica"))
            self.ready.exception()
        handlers, self._handlers = self._handlers, {}
        for handler in handlers.values():
            handler.lost()
        for future in self._answers.values():
            if not future.done():
                future.set_exception(LinkBroken("the connection broke"))


class AcceptedLink(_Link):
    """Another replica's connection to us. Until it has proved the key, it may send a few bytes, no more."""

    warned_at = float("-inf")  # when a stranger was logged last, for all connections

    def __init__(self, key: bytes, most: int, own_id: str, server: LinkServer) -> None:
        super().__init__(key, most)
        self.other_id = ""
        self._own_id = own_id.encode()
        self._server = server
        self._transcript = b""
        self.on_named: Callable[[], None] = lambda: None  # it knows our id
        self.on_known: Callable[[], None] = lambda: None

    def _read_handshake(self) -> None:
        if not self._transcript:
            hello = self._take(_HELLO)
            if hello is None:
                if not (MAGIC + b" " * _HELLO).startswith(self._data[: len(MAGIC)]):
                    raise LinkBroken("no replica")
                return
            named = hello[len(MAGIC) + ID : len(MAGIC) + 2 * ID]
            if not hello.startswith(MAGIC) or named != self._own_id:
                raise LinkBroken("no replica, or one that looks for another one")
            self._transcript = hello + os.urandom(RANDOM)
            self.on_named()
            if self._transport is not None:
                mac = self._mac(b"acceptor", self._transcript)
                self._transport.write(self._transcript[_HELLO:] + mac)
        proof = self._take(MAC)
        if proof is None:
            return
        if not hmac.compare_digest(proof, self._mac(b"connector", self._transcript)):
            raise LinkBroken("the other side has another key")
        self.other_id = self._transcript[len(MAGIC) : len(MAGIC) + ID].decode("latin-1")
        self._agree(self._transcript, connects=False)
        self.on_known()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)  # the first frames may come with the proof
        if self._decrypt is None and len(self._data) > _HELLO + MAC:
            self.abort()

    def _warn(self, error: LinkBroken) -> None:
        """Strangers could fill the log: of those who come shortly after another one, nothing is said."""
        if self._decrypt is None:
            now = self._loop.time()
            if now - AcceptedLink.warned_at < QUIET:
                return
            AcceptedLink.warned_at = now
        super()._warn(error)

    def _frame(self, kind: int, stream: int, payload: bytes) -> None:
        if kind == OPEN:
            self._server.opened(self, stream, payload)
        elif kind == MORE:
            self._server.more(self, stream, payload)
        elif kind == GONE:
            self._server.gone(self, stream)
        elif kind == ASK:
            self._server.asked(self, stream, payload)
        else:
            raise LinkBroken("a frame of an unknown kind")

    def _closed(self) -> None:
        was_open = not self.is_closed
        super()._closed()
        if was_open:
            self._server.closed(self)
