"""What the tests of servers over HTTP share: a workbench in front of a URL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from mcp_workbench.core.errors import WorkbenchError
from mcp_workbench.core.spec import Limits, ServerAddress, ServerSpec
from tests.kit.clock import PATIENCE
from tests.kit.config import snapshot, tool
from tests.kit.inside import InsideWorkbench

TOKEN = "hush-hush-token"


@asynccontextmanager
async def bench(
    *specs: ServerSpec, limits: Limits | None = None, **environ: str
) -> AsyncGenerator[InsideWorkbench]:
    async with (
        asyncio.timeout(PATIENCE),
        InsideWorkbench(
            snapshot(*specs, limits=limits), environ={"TOKEN": TOKEN, **environ}
        ) as opened,
    ):
        yield opened


async def echo(workbench: InsideWorkbench, text: str = "hi", server: str = "s") -> str:
    found = await workbench.use_tool(tool(server, "echo"), {"text": text})
    return found["content"][0]["text"]


async def trouble(
    workbench: InsideWorkbench, text: str = "hi", server: str = "s"
) -> WorkbenchError:
    """What goes wrong with a call."""
    try:
        said = await echo(workbench, text, server)
    except WorkbenchError as error:
        return error
    raise AssertionError(f"nothing went wrong: {said[:100]}")


async def reason(workbench: InsideWorkbench, server: str = "s") -> str:
    """Why a server can't be reached."""
    return (await workbench.survey(ServerAddress("dev", server))).reason
