"""What is said to a visitor of the socket: all of it, in its own time, and nobody waits meanwhile."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any

from mcp_workbench.daemon import words
from mcp_workbench.daemon.gate import MOST_UNSENT, Visitor
from tests.kit.clock import PATIENCE

LONG = b"x" * (1 << 20)


class Nobody:
    """A keeper that is asked for nothing."""

    def wished(self, visitor: Any, wish: bytes, fields: list[bytes]) -> None: ...
    def handed(self, visitor: Any, fds: list[int]) -> None: ...
    def reload(self) -> None: ...


def visit() -> tuple[Visitor, socket.socket]:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    return Visitor(ours, Nobody(), os.getpid()), theirs


async def test_a_long_report_arrives_whole_at_a_visitor_that_reads_slowly() -> None:
    visitor, theirs = visit()
    frames, came = words.Frames(), list[list[bytes]]()
    visitor.tell(words.REPORT, LONG)
    visitor.tell(words.PONG)

    async with asyncio.timeout(PATIENCE):
        while len(came) < 2:
            came += frames.feed(await asyncio.get_running_loop().sock_recv(theirs, 1 << 14))

    assert came == [[words.REPORT, LONG], [words.PONG]]
    visitor.close()
    theirs.close()


async def test_a_visitor_that_never_reads_is_left() -> None:
    visitor, theirs = visit()
    for _ in range(2 * MOST_UNSENT // len(LONG)):
        visitor.tell(words.REPORT, LONG)

    assert visitor.is_closed
    theirs.close()
