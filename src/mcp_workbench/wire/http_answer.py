"""An answer over HTTP, read as it comes: its head, then its body piece by piece, decompressed."""

from __future__ import annotations

import asyncio
import time
import zlib
from typing import Protocol

from mcp_workbench.wire.http_message import Pieces, add_piece

HIGH = 1 << 18  # bytes of an answer that wait for us before the server has to
PIECE = 1 << 16  # bytes that are decompressed, or handed on, at once
PACKED = 1 << 14  # bytes of which that is tried: what is left of them is copied each time
EVENTS_AT_ONCE = 32  # of a stream, between two turns of others
STEP = 0.02  # seconds; of large events there are fewer at once
BOMB_BYTES = 8 << 20  # from here on an answer may not have been compressed beyond belief
BOMB_RATIO = 200  # text comes down to a tenth or a thirtieth of itself
MEMBER = 0x1F  # the first byte of a member of gzip: there may be more than one
MEMBERS = 64  # of them, and one more for each
MEMBER_BYTES = 1024
PADDING = 1 << 16  # bytes that may follow the last of them
BARREN = 1 << 16  # bytes from which nothing comes out


class Broken(Exception):
    """An exchange failed. `sent`: the server may have seen the request."""

    def __init__(self, message: str, *, sent: bool = True, heard: bool = False) -> None:
        super().__init__(message)
        self.sent = sent
        self.heard = heard  # some of the answer had arrived


class Oversized(Broken):
    """The answer is larger than we take."""


class Slow(Broken):
    """Nothing came for longer than we wait."""


class Turns:
    """Counts events of a stream: after some of them, or some time, others have their turn."""

    def __init__(self) -> None:
        self._count = 0
        self._since = time.perf_counter()

    async def next(self) -> None:
        self._count += 1
        if self._count % EVENTS_AT_ONCE == 0 or time.perf_counter() > self._since + STEP:
            await asyncio.sleep(0)
            self._since = time.perf_counter()


class Holder(Protocol):
    """The connection that an answer comes on."""

    def flow(self, *, going: bool) -> None: ...
    def part(self, *, complete: bool) -> None: ...


class Answer:
    """What comes back: status and headers first, then the body, piece by piece."""

    def __init__(self, wire: Holder) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.complete = False
        self.begun = False
        self._wire: Holder | None = wire
        self._chunks: Pieces = []
        self._size = 0
        self._rest = memoryview(b"")  # was taken from them and is not handed on yet
        self._error: Broken | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._inflater: _Inflater | None = None

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
            raise Broken(f"the answer is encoded as {coding[:40]!r}, which was not asked for")

    async def read(self, patience: float | None = None) -> bytes:
        """The next piece of the body, decoded; empty at its end.

        It is small enough to be looked at in one step, and others have theirs before the next.
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
        """The rest of the body, unless it is larger than `limit`."""
        pieces: Pieces = []
        size = 0
        while piece := await self._read_any(patience):
            add_piece(pieces, piece)
            size += len(piece)
            if size > limit:
                raise Oversized(f"larger than {limit} bytes", heard=True)
            if self._inflater is not None and self._inflater.taken > limit + PIECE:
                raise Oversized("compressed into more than it is", heard=True)
        return b"".join(pieces)

    async def _read_any(self, patience: float | None) -> bytes:
        if self._inflater is not None:
            return await self._read_inflated(self._inflater, patience)
        return await self._read_raw(patience)

    def close(self) -> None:
        """Done with it: a complete one leaves its connection to the next, others end it."""
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.part(complete=self.complete)

    async def _read_raw(self, patience: float | None) -> bytes:
        while not self._chunks:
            if self.complete:
                return b""
            await self._more(patience)
        data = b"".join(self._chunks)  # one alone is not copied
        self._chunks.clear()
        if self._size > HIGH and self._wire is not None:
            self._wire.flow(going=True)
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
        self.fail(Slow(f"nothing came for {patience:g} s", heard=self.begun))

    # What the wire tells

    def begin(self, status: int, headers: dict[str, str]) -> None:
        self.status, self.headers, self.begun = status, headers, True
        self._wake()

    def push(self, data: bytes) -> None:
        if self._chunks:
            add_piece(self._chunks, data)
        else:
            self._chunks.append(data)
        self._size += len(data)
        if self._size > HIGH and self._wire is not None:
            self._wire.flow(going=False)
        self._wake()

    def finish(self) -> None:
        self.complete = True
        self._wake()

    def fail(self, error: Broken) -> None:
        if not self.complete and self._error is None:
            self._error = error
            waiter = self._waiter
            if waiter is not None and not waiter.done():
                waiter.set_exception(error)

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


class _Inflater:
    """Decompresses piece by piece, so that little data can't become much memory or much work."""

    def __init__(self) -> None:
        self._engine = _engine()
        self._raw = memoryview(b"")  # has arrived
        self._rest = b""  # was taken from it and is not decompressed yet
        self._padding = 0  # bytes behind the end, which mean nothing
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
            raise Broken("the answer's compression is broken", heard=True) from None
        self._rest = self._engine.unconsumed_tail or self._engine.unused_data
        self._out += len(piece)
        self._barren = 0 if piece else self._barren + len(raw) - len(self._rest)
        if self._barren > BARREN:
            raise Broken("nothing comes out of the compressed answer", heard=True)
        if self._out > BOMB_BYTES and self._out > BOMB_RATIO * self.taken:
            raise Oversized("compressed beyond belief", heard=True)
        return piece

    def _next_member(self, raw: bytes) -> bool:
        """Does this go on with another member? What else follows the end is left alone."""
        if self._padding or raw[0] != MEMBER:
            self._padding += len(raw)
            if self._padding > PADDING:
                raise Broken("something else follows the compressed answer", heard=True)
            return False
        self._members += 1
        if self._members > MEMBERS + self.taken // MEMBER_BYTES:
            raise Broken("the answer is compressed in too many parts", heard=True)
        self._engine = _engine()
        return True

    def end(self) -> bytes:
        """What was still inside; empty the second time."""
        rest = self._engine.flush()
        if self.taken and not rest and not self._engine.eof:
            raise Broken("the compressed answer was cut off", heard=True)
        return rest


def _engine() -> zlib._Decompress:  # pyright: ignore[reportPrivateUsage] - it has no other name
    return zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)  # gzip or zlib, by its start
