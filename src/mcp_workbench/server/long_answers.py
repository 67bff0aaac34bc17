"""Long results, built in parts: the event loop runs other tasks in between."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from time import perf_counter

import msgspec

from mcp_workbench.protocol.handshake import STAMPS
from mcp_workbench.protocol.translation import complete

SLICE = 0.02  # seconds of work before other tasks run
PIECE = 64 << 10  # bytes of a text that are quoted at once


class TimeSlice:
    """Splits work that has many parts: call `yield_if_over` after each part."""

    def __init__(self) -> None:
        self._since = perf_counter()

    async def yield_if_over(self) -> None:
        """Let other tasks run if this one has worked for `SLICE` seconds."""
        if perf_counter() - self._since > SLICE:
            from asyncio import sleep  # `cost` builds the same results and needs no loop

            await sleep(0)
            self._since = perf_counter()


async def collect(parts: Iterable[bytes]) -> list[bytes]:
    """Return all parts, which are built one by one, in time slices."""
    time_slice = TimeSlice()
    collected: list[bytes] = []
    for part in parts:
        collected.append(part)
        await time_slice.yield_if_over()
    return collected


def comma_separated(parts: Iterable[bytes]) -> Iterator[bytes]:
    comma = False
    for part in parts:
        if comma:
            yield b","
        yield part
        comma = True


def quoted(texts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the inside of the JSON string that is made of these texts."""
    for text in texts:
        start = 0
        while start < len(text):
            is_last = start + PIECE >= len(text)
            piece, read = codecs.utf_8_decode(text[start : start + PIECE], "strict", is_last)
            yield msgspec.json.encode(piece)[1:-1]
            start += read


async def whole_result(rest: bytes, members: Iterable[bytes], *, modern: bool) -> bytes:
    """Return a result of ours. `rest` is an object with its other members, which are never long."""
    head = complete(rest, STAMPS) if modern else rest
    comma = b"" if head == b"{}" else b","
    time_slice = TimeSlice()
    result = b"".join((head[:-1], comma, *members, b"}"))
    await time_slice.yield_if_over()  # sending it takes about as long
    return result
