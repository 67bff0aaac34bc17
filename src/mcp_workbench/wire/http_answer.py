"""An answer over HTTP, read as it comes: its head, then its body piece by piece, decompressed."""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from typing import Protocol

HIGH = 1 << 18  # bytes of an answer that wait for us before the server has to
PIECE = 1 << 16  # bytes that are decompressed at once
BOMB_BYTES = 8 << 20  # from here on an answer may not have been compressed beyond belief
MEMBER = 0x1F  # the first byte of a member of gzip: there may be more than one
BOMB_RATIO = 200  # text comes down to a tenth or a thirtieth of itself


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
        self._chunks: deque[bytes] = deque()
        self._size = 0
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
        """The next piece of the body, decoded; empty at its end."""
        if self._inflater is not None:
            return await self._read_inflated(self._inflater, patience)
        return await self._read_raw(patience)

    async def whole(self, limit: int, patience: float | None = None) -> bytes:
        """The rest of the body, unless it is larger than `limit`."""
        pieces: list[bytes] = []
        size = 0
        while piece := await self.read(patience):
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                raise Oversized(f"larger than {limit} bytes", heard=True)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

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
        data = self._chunks.popleft() if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        if self._size > HIGH and self._wire is not None:
            self._wire.flow(going=True)
        self._size = 0
        return data

    async def _read_inflated(self, inflater: _Inflater, patience: float | None) -> bytes:
        while True:
            if inflater.waiting:
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
    """Decompresses piece by piece, so that little data can't become much memory."""

    def __init__(self) -> None:
        self._engine = _engine()
        self._rest = b""  # has arrived and is not decompressed yet
        self._padded = False  # what follows the end means nothing
        self._in = self._out = 0

    @property
    def waiting(self) -> bool:
        return bool(self._rest)

    def feed(self, raw: bytes) -> bytes:
        self._in += len(raw)
        return self._inflated(raw)

    def more(self) -> bytes:
        return self._inflated(self._rest)

    def end(self) -> bytes:
        """What was still inside; empty the second time."""
        rest = self._engine.flush()
        if self._in and not rest and not self._engine.eof:
            raise Broken("the compressed answer was cut off", heard=True)
        return rest

    def _inflated(self, raw: bytes) -> bytes:
        self._rest = b""
        if self._engine.eof:
            self._padded = self._padded or raw[0] != MEMBER
            if self._padded:
                return b""
            self._engine = _engine()
        try:
            piece = self._engine.decompress(raw, PIECE)
        except zlib.error:
            raise Broken("the answer's compression is broken", heard=True) from None
        self._rest = self._engine.unconsumed_tail or self._engine.unused_data
        self._out += len(piece)
        if self._out > BOMB_BYTES and self._out > BOMB_RATIO * self._in:
            raise Oversized("compressed beyond belief", heard=True)
        return piece


def _engine() -> zlib._Decompress:  # pyright: ignore[reportPrivateUsage] - it has no other name
    return zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)  # gzip or zlib, by its start
