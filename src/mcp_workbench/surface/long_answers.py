"""Answers that may be long, made in parts: everybody else has a turn in between."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from time import perf_counter

import msgspec

from mcp_workbench.era.ourselves import STAMPS
from mcp_workbench.era.translate import complete

AT_ONCE = 0.02  # seconds of work before others have a turn
PIECE = 64 << 10  # bytes of a text that are quoted at once


class Turns:
    """For work that has many parts: `next` after each of them."""

    def __init__(self) -> None:
        self._since = perf_counter()

    async def next(self) -> None:
        """Let others have a turn, if it is time."""
        if perf_counter() - self._since > AT_ONCE:
            from asyncio import sleep  # `cost` makes the same answers and needs no loop

            await sleep(0)
            self._since = perf_counter()


async def in_turns(parts: Iterable[bytes]) -> list[bytes]:
    """All of these, which are made one by one."""
    turns = Turns()
    made: list[bytes] = []
    for part in parts:
        made.append(part)
        await turns.next()
    return made


def listed(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The same with commas in between."""
    comma = False
    for part in parts:
        if comma:
            yield b","
        yield part
        comma = True


def quoted(texts: Iterable[bytes]) -> Iterator[bytes]:
    """The inside of the JSON string that says all of these."""
    for text in texts:
        start = 0
        while start < len(text):
            is_last = start + PIECE >= len(text)
            piece, read = codecs.utf_8_decode(text[start : start + PIECE], "strict", is_last)
            yield msgspec.json.encode(piece)[1:-1]
            start += read


async def whole_result(about: bytes, members: Iterable[bytes], *, modern: bool) -> bytes:
    """A result of ours: `about` is an object with its few other members, which are never long."""
    head = complete(about, STAMPS) if modern else about
    comma = b"" if head == b"{}" else b","
    turns = Turns()
    result = b"".join((head[:-1], comma, *members, b"}"))
    await turns.next()  # to send it takes about as long
    return result
