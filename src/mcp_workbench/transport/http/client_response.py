"""The response to a request of ours: its head, then its body piece by piece, decompressed."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Callable, Mapping
from typing import Protocol, cast

from mcp_workbench.transport.http.messages import add_piece
from mcp_workbench.transport.json_text import HUGE, Pieces, joined, scanned

JSON = "application/json"
WHOLE = 4 << 20  # bytes of a JSON body that are collected without a reader
LONG = (
    1 << 17
)  # bytes of a body for which memory is reserved at once: joining its pieces would copy it
HIGH = 1 << 18  # unread bytes of a response before the connection stops reading
PIECE = 1 << 16  # bytes that are decompressed, or returned, at once
PACKED = 1 << 14  # bytes given to the decompressor at once: it copies what it leaves of them
EVENTS_AT_ONCE = 32  # of a stream, before other tasks run
STEP = 0.02  # seconds; of large events there are fewer at once
BOMB_BYTES = 8 << 20  # from here on BOMB_RATIO is enforced
BOMB_RATIO = 200  # text compresses to a tenth or a thirtieth
MEMBER = 0x1F  # the first byte of a gzip member: there may be more than one
MEMBERS = 64  # allowed, and one more for each MEMBER_BYTES
MEMBER_BYTES = 1024
PADDING = 1 << 16  # bytes that may follow the last of them
BARREN = 1 << 16  # bytes that may yield no output


class ExchangeFailed(Exception):
    """A request got no usable response. `sent`: the server may have received the request."""

    def __init__(self, message: str, *, sent: bool = True, heard: bool = False) -> None:
        super().__init__(message)
        self.sent = sent
        self.heard = heard  # some of the response had arrived


class ResponseTooLarge(ExchangeFailed):
    """The response exceeds our limit."""


class ResponseTimeout(ExchangeFailed):
    """Nothing arrived in time."""


_NO_HEADERS: Mapping[str, str] = {}  # of a response that has not begun; never changed


class Yielder:
    """Yields to other tasks after some events of a stream, or some time."""

    def __init__(self) -> None:
        self._count = 0
        self._since = time.perf_counter()

    async def next(self) -> None:
        self._count += 1
        if self._count % EVENTS_AT_ONCE == 0 or time.perf_counter() > self._since + STEP:
            await asyncio.sleep(0)
            self._since = time.perf_counter()


class SourceConnection(Protocol):
    """The connection that a response arrives on."""

    def flow(self, *, going: bool) -> None: ...
    def part(self, *, complete: bool) -> None: ...


class ClientResponse:
    """Status and headers first, then the body, piece by piece."""

    status = 0
    complete = False
    begun = False
    is_plain = False  # a successful JSON body, not compressed
    _size = 0
    _reserved: bytearray | None = (
        None  # for a JSON body of known size; `_size` bytes of it are filled
    )
    _rest = memoryview(b"")  # taken from the chunks and not returned yet
    _error: ExchangeFailed | None = None
    _waiter: asyncio.Future[None] | None = None
    _inflater: _Inflater | None = None
    _on_ready: Callable[[], None] | None = None

    def __init__(self, connection: SourceConnection) -> None:
        self.headers: Mapping[str, str] = _NO_HEADERS
        self._connection: SourceConnection | None = connection
        self._chunks: Pieces = []

    def when_ready(self, act: Callable[[], None]) -> None:
        """Call `act` once: when a JSON body is complete, or as soon as there is anything else to handle."""
        self._on_ready = act

    def whole_now(self) -> bytes | None:
        """The body of a successful JSON response that is complete; None if it has to be read."""
        if not self.complete or not self.is_plain:
            return None
        if self._reserved is not None:
            return cast("bytes", self._reserved)  # it has every method that a reader needs
        if len(self._chunks) != 1:
            self._chunks = [b"".join(self._chunks)]
        return bytes(self._chunks[0])

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def head(self, patience: float | None) -> None:
        """Wait for status and headers."""
        while not self.begun:
            await self._more(patience)
        coding = self.headers.get("content-encoding", "").strip().lower()
        if coding in ("gzip", "x-gzip", "deflate"):
            self._inflater = _Inflater()
        elif coding not in ("", "identity"):
            raise ExchangeFailed(
                f"the response is encoded as {coding[:40]!r}, which was not requested"
            )

    async def read(self, patience: float | None = None) -> bytes:
        """Return the next piece of the body, decoded; empty at its end.

        It is small enough to be processed in one step, and other tasks run before the next.
        """
        if self._inflater is not None:
            return await self._read_inflated(self._inflater, patience)
        if self._rest:
            await asyncio.sleep(0)
        else:
            data = await self._read_raw(patience)
            if len(data) <= PIECE:
                return data
            self._rest = memoryview(data)
        piece, self._rest = bytes(self._rest[:PIECE]), self._rest[PIECE:]
        return piece

    async def whole(self, limit: int, patience: float | None = None) -> bytes:
        """Return the rest of the body. Raises ResponseTooLarge above `limit` bytes."""
        pieces: Pieces = []
        size, scan = 0, None
        while piece := await self._read_any(patience):
            add_piece(pieces, piece)
            size += len(piece)
            if size > HUGE:
                scan = scanned(scan, pieces, piece)
            if size > limit:
                raise ResponseTooLarge(f"larger than {limit} bytes", heard=True)
            if self._inflater is not None and self._inflater.taken > limit + PIECE:
                raise ResponseTooLarge("its compressed form is larger than the limit", heard=True)
        return joined(pieces, scan)

    async def _read_any(self, patience: float | None) -> bytes:
        if self._inflater is not None:
            return await self._read_inflated(self._inflater, patience)
        return await self._read_raw(patience)

    def close(self) -> None:
        """Release the connection: it is kept if the response is complete, and closed otherwise."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.part(complete=self.complete)

    async def _read_raw(self, patience: float | None) -> bytes:
        if self._reserved is not None:
            self._chunks = [bytes(memoryview(self._reserved)[: self._size])]
            self._reserved = None
        while not self._chunks:
            if self.complete:
                return b""
            await self._more(patience)
        data = b"".join(self._chunks)  # one alone is not copied
        self._chunks.clear()
        if self._size > HIGH and self._connection is not None:
            self._connection.flow(going=True)
        self._size = 0
        return data

    async def _read_inflated(self, inflater: _Inflater, patience: float | None) -> bytes:
        while True:
            if inflater.waiting:
                await asyncio.sleep(0)
                piece = inflater.more()
            else:
                raw = await self._read_raw(patience)
                if not raw:
                    return inflater.end()
                piece = inflater.feed(raw)
            if piece:
                return piece

    async def _more(self, patience: float | None) -> None:
        if self._error is not None:
            raise self._error
        loop = asyncio.get_running_loop()
        self._waiter = waiter = loop.create_future()
        late = loop.call_later(patience, self._late, patience) if patience else None
        try:
            await waiter
        finally:
            self._waiter = None
            if late is not None:
                late.cancel()

    def _late(self, patience: float) -> None:
        self.fail(ResponseTimeout(f"no response for {patience:g} s", heard=self.begun))

    # Called by the connection

    def begin(self, status: int, headers: dict[str, str]) -> None:
        self.status, self.headers, self.begun = status, headers, True
        is_encoded = "content-encoding" in headers
        self.is_plain = status == 200 and self.content_type == JSON and not is_encoded
        if self._on_ready is not None:
            if self.is_plain:
                self._reserve(headers.get("content-length", ""))
            else:
                self._ready()
        self._wake()

    def _reserve(self, length: str) -> None:
        if len(length) < 9 and length.isdecimal() and LONG < int(length) <= WHOLE:
            self._reserved = bytearray(int(length))

    def push(self, data: bytes) -> None:
        if self._reserved is not None:  # the parser passes on no more than was announced
            self._reserved[self._size : self._size + len(data)] = data
        elif self._chunks:
            add_piece(self._chunks, data)
        else:
            self._chunks.append(data)
        self._size += len(data)
        if self._on_ready is not None:
            if self._size > WHOLE:
                self._ready()
        elif self._size > HIGH and self._connection is not None:
            self._connection.flow(going=False)
        self._wake()

    def finish(self) -> None:
        self.complete = True
        if self._on_ready is not None:
            self._ready()
        elif self._waiter is not None:
            self._wake()

    def arrived(self, headers: Mapping[str, str], body: bytes, *, is_plain: bool) -> None:
        """All of it at once, with status 200."""
        self.status, self.headers, self.begun = 200, headers, True
        self.is_plain = is_plain
        self._chunks.append(body)
        self._size = len(body)
        self.finish()

    def _ready(self) -> None:
        act, self._on_ready = self._on_ready, None
        if act is not None:
            act()

    def fail(self, error: ExchangeFailed) -> None:
        if not self.complete and self._error is None:
            self._error = error
            self._ready()
            waiter = self._waiter
            if waiter is not None and not waiter.done():
                waiter.set_exception(error)

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


class _Inflater:
    """Decompresses piece by piece, so that a small input can't cause much memory use or work."""

    def __init__(self) -> None:
        self._engine = _engine()
        self._raw = memoryview(b"")  # received
        self._rest = b""  # taken from it and not decompressed yet
        self._padding = 0  # bytes after the end, which are ignored
        self._members = 1
        self._barren = 0
        self.taken = self._out = 0

    @property
    def waiting(self) -> bool:
        return bool(self._rest or self._raw)

    def feed(self, raw: bytes) -> bytes:
        self.taken += len(raw)
        self._raw = memoryview(raw)
        return self.more()

    def more(self) -> bytes:
        raw, self._rest = self._rest, b""
        if not raw:
            raw, self._raw = bytes(self._raw[:PACKED]), self._raw[PACKED:]
        if self._engine.eof and not self._next_member(raw):
            return b""
        try:
            piece = self._engine.decompress(raw, PIECE)
        except zlib.error:
            raise ExchangeFailed("the compressed response is corrupt", heard=True) from None
        self._rest = self._engine.unconsumed_tail or self._engine.unused_data
        self._out += len(piece)
        self._barren = 0 if piece else self._barren + len(raw) - len(self._rest)
        if self._barren > BARREN:
            raise ExchangeFailed("the compressed response has no content", heard=True)
        if self._out > BOMB_BYTES and self._out > BOMB_RATIO * self.taken:
            raise ResponseTooLarge("its compression ratio is too high", heard=True)
        return piece

    def _next_member(self, raw: bytes) -> bool:
        """Whether another member follows. Anything else after the end is ignored."""
        if self._padding or raw[0] != MEMBER:
            self._padding += len(raw)
            if self._padding > PADDING:
                raise ExchangeFailed("unexpected data follows the compressed response", heard=True)
            return False
        self._members += 1
        if self._members > MEMBERS + self.taken // MEMBER_BYTES:
            raise ExchangeFailed("the response is compressed in too many parts", heard=True)
        self._engine = _engine()
        return True

    def end(self) -> bytes:
        """Return the rest of the output; empty the second time."""
        rest = self._engine.flush()
        if self.taken and not rest and not self._engine.eof:
            raise ExchangeFailed("the compressed response was cut off", heard=True)
        return rest


def _engine() -> zlib._Decompress:  # pyright: ignore[reportPrivateUsage] - it has no other name
    return zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)  # gzip or zlib, by its start
