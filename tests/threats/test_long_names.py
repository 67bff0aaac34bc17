"""Whatever a host names, however long the name is: to refuse it takes at most four times the message."""

from __future__ import annotations

import asyncio
import tracemalloc

import pytest

from mcp_workbench.server.session import HostSession, StdioFront
from mcp_workbench.server.session_tools import ToolView
from mcp_workbench.transport.tasks import task_scope
from tests.kit.clock import PATIENCE
from tests.kit.config import snapshot, spec
from tests.kit.inside import InsideWorkbench
from tests.kit.memory_host import MemoryHost
from tests.threats import worst

MESSAGE = 8 << 20  # bytes
SPARE = 1 << 20
TIMES = 4
# A single letter of four bytes makes Python keep four bytes for each of the others.
ONE_EMOJI = "\N{GRINNING FACE}".encode()
USE = b'{"id":1,"method":"tools/call","params":{"name":"use_tool","arguments":{"tool":{'
OPEN = b'{"id":1,"method":"tools/call","params":{"name":"open_toolbox","arguments":{'

PLACES: dict[str, tuple[bytes, bytes]] = {
    "a toolbox": (USE + b'"toolbox":"', b'","server":"s","tool":"t"}}}}'),
    "a server": (USE + b'"toolbox":"dev","server":"', b'","tool":"t"}}}}'),
    "a tool": (USE + b'"toolbox":"dev","server":"fixture","tool":"', b'"}}}}'),
    "a part of a tool": (USE + b'"', b'":1}}}}'),
    "a tool of ours": (b'{"id":1,"method":"tools/call","params":{"name":"', b'"}}'),
    "a toolbox to open": (OPEN + b'"toolbox_name":"', b'"}}}'),
    "a detail": (OPEN + b'"toolbox_name":"dev","detail":"', b'"}}}'),
    "a prompt": (b'{"id":1,"method":"prompts/get","params":{"name":"', b'"}}'),
    "a resource": (b'{"id":1,"method":"resources/unsubscribe","params":{"uri":"', b'"}}'),
    "a level": (b'{"id":1,"method":"logging/setLevel","params":{"level":"', b'"}}'),
    "a state": (
        b'{"id":1,"method":"tools/call","params":{"name":"use_tool","requestState":"',
        b'","arguments":{"tool":{"toolbox":"dev","server":"fixture","tool":"echo"}}}}',
    ),
}


async def peak_of_answer(line: bytes) -> int:
    """Bytes that it takes at most to read this line and to answer it, beside the line itself."""
    host = MemoryHost()
    async with (
        asyncio.timeout(PATIENCE),
        InsideWorkbench(snapshot(spec("fixture"))) as workbench,
        task_scope() as requests,
    ):
        session = HostSession(workbench.view, host, requests, ToolView(workbench.view, ()))
        session.era.revision = "2025-06-18"
        front = StdioFront(session, host, 2 * MESSAGE)
        tracemalloc.start()
        try:
            front.receive(line)
            await host.more.wait()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
            session.close()


@pytest.mark.parametrize("place", PLACES)
def test_a_name_as_long_as_a_message_takes_little_memory(place: str) -> None:
    start, end = PLACES[place]
    line = worst.filled(start + ONE_EMOJI, b"a", end + b"\n", MESSAGE)

    taken = asyncio.run(peak_of_answer(line))

    assert taken <= TIMES * MESSAGE + SPARE
