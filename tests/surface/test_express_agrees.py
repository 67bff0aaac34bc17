"""Whatever a host writes, the short way of a call and the long one give the same answer."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from mcp_workbench.surface.menu import Menu
from mcp_workbench.surface.session import HostSession
from mcp_workbench.surface.stdio_front import StdioFront
from mcp_workbench.wire.tasks import task_scope
from mcp_workbench.workbench import Workbench
from tests.kit.config import snapshot, spec
from tests.kit.memory_host import MemoryHost
from tests.surface.test_session import INITIALIZE, LIMIT

CALL = (
    b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"use_tool","arguments":'
    b'{"tool":{"toolbox":"dev","server":"a","tool":"echo"},"arguments":{"x":[1.0,"y"]}}}}'
)
# What a mutation puts in the place of a few bytes, or between two.
PIECES = [
    b"", b" ", b"\r", b"\t", b"\x00", b"\xef\xbb\xbf", b"\xc3\xa9", b"\xff", b'"', b"{", b"}", b"[", b"]", b",", b":",
    b"null", b"true", b"0", b"-", b"1e400", b"1E+2", b"\\u0061", b"\\ud800", b'"tool":5,', b'"id":8,', b'"_meta":{},',
    b'"arguments":[],', b'"name":"use_tool",', b'"result":{},', b'"server":"a",', b'"more":1,', b'"echo"', b'"no"',
]  # fmt: skip
VALUES = [b"[]", b"null", b"5", b'"x"', b"{}", b' {"x":1e5}', b'{"x":1,"x":2}']
LINES = 1500


class Way:
    """A session with a server that is ready, and all that it answers."""

    def __init__(self, session: HostSession, host: MemoryHost, limit: int, *, short: bool) -> None:
        self._session = session
        self._host = host
        self.taken = 0
        take = session.express.take

        def counted(line: bytes) -> bool:
            taken = short and take(line)
            self.taken += taken
            return taken

        session.express.take = counted
        self._front = StdioFront(session, host, limit)

    async def answers(self, line: bytes) -> list[bytes]:
        """Every frame that this line brings."""
        self._host.frames.clear()
        self._front.receive(line + b"\n")
        while self._session.under_way:
            self._host.more.clear()
            await self._host.more.wait()
        return sorted(self._host.frames)


@asynccontextmanager
async def way(*, short: bool) -> AsyncGenerator[Way]:
    host = MemoryHost()
    async with Workbench(snapshot(spec("a"))) as workbench, task_scope() as requests:
        session = HostSession(workbench, host, requests, Menu(workbench, ()))
        one = Way(session, host, workbench.snapshot.limits.message_bytes, short=short)
        await one.answers(INITIALIZE.rstrip())
        await one.answers(CALL)
        yield one


def mutated(chance: random.Random) -> bytes:
    """A call with one to three places changed."""
    line = chance.choice((CALL, CALL, CALL.replace(b'{"x":[1.0,"y"]}', chance.choice(VALUES))))
    for _ in range(chance.randint(1, 3)):
        members = [at + 1 for at, sign in enumerate(line) if sign in b"{,"]
        anywhere = chance.randrange(len(line) + 1)
        start = chance.choice((anywhere, *members[:8])) if members else anywhere
        end = min(len(line), start + chance.choice((0, 0, 0, 1, 2, 6)))
        line = line[:start] + chance.choice(PIECES) + line[end:]
    return line.replace(b"\n", b" ")


async def test_both_ways_answer_alike() -> None:
    chance = random.Random(20261115)  # the same lines each time
    async with asyncio.timeout(2 * LIMIT), way(short=True) as short, way(short=False) as long:
        for _ in range(LINES):
            line = mutated(chance)
            assert await short.answers(line) == await long.answers(line), line
            assert await short.answers(CALL) == await long.answers(CALL)

    assert long.taken == 0
    assert short.taken > LINES  # the right ones, and some of the others
