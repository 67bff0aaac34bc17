"""What the tests of servers over HTTP share: a workbench in front of a URL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from mcp_workbench.core.errors import WorkbenchError
from mcp_workbench.core.names import ServerAddress
from mcp_workbench.core.spec import Limits, ServerSpec
from mcp_workbench.workbench import Workbench
from tests.kit.clock import PATIENCE
from tests.kit.config import snapshot, tool

TOKEN = "hush-hush-token"


@asynccontextmanager
async def bench(
    *specs: ServerSpec, limits: Limits | None = None, **environ: str
) -> AsyncGenerator[Workbench]:
    async with (
        asyncio.timeout(PATIENCE),
        Workbench(snapshot(*specs, limits=limits), environ={"TOKEN": TOKEN, **environ}) as opened,
    ):
        yield opened


async def echo(workbench: Workbench, text: str = "hi", server: str = "s") -> str:
    found = await workbench.use_tool(tool(server, "echo"), {"text": text})
    return found["content"][0]["text"]


async def trouble(workbench: Workbench, text: str = "hi", server: str = "s") -> WorkbenchError:
    """What goes wrong with a call."""
    try:
        said = await echo(workbench, text, server)
    except WorkbenchError as error:
        return error
    raise AssertionError(f"nothing went wrong: {said[:100]}")


async def reason(workbench: Workbench, server: str = "s") -> str:
    """Why a server can't be reached."""
    return (await workbench.survey(ServerAddress("dev", server))).reason
