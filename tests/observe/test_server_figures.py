"""Figures of servers: state, connections, starts, calls under way and waiting."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import msgspec
import pytest

from mcp_workbench import WorkbenchError
from mcp_workbench.core.figures import ServerFigures
from mcp_workbench.gateway.server_figures import listed_servers, server_figures
from mcp_workbench.transport.tasks import task_scope
from tests.kit.clock import PATIENCE, until
from tests.kit.config import snapshot, spec, tool
from tests.kit.inside import InsideWorkbench
from tests.kit.processes import let_through


async def test_each_server_has_its_own(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    servers = (
        spec("used"),
        spec("unused"),
        spec("slow", f"gate={gate}"),
        spec("gone", "exit_start"),
    )

    async with asyncio.timeout(PATIENCE), InsideWorkbench(snapshot(*servers)) as workbench:

        def figures() -> dict[str, ServerFigures]:
            """Without process groups, which are numbers of the system."""
            return {
                one.server: msgspec.structs.replace(one, groups=())
                for one in server_figures(workbench.gateway)
            }

        async with task_scope() as calls:
            await workbench.use_tool(tool("used", "echo"))
            calls.start(workbench.use_tool(tool("used", "hang")), "call that hangs")
            calls.start(workbench.use_tool(tool("slow", "echo")), "call that waits")
            with pytest.raises(WorkbenchError):
                await workbench.use_tool(tool("gone", "echo"))
            await until(lambda: figures()["used"].in_flight == figures()["slow"].waiting == 1)

            assert figures() == {
                "used": ServerFigures("dev", "used", "ready", 1, starts=1, in_flight=1),
                "unused": ServerFigures("dev", "unused", "idle"),
                "slow": ServerFigures("dev", "slow", "starting", starts=1, waiting=1),
                "gone": ServerFigures("dev", "gone", "failed", starts=1, failures=1),
            }
            assert [one.address.server for one in listed_servers(workbench.gateway)] == ["used"]
            (used,) = (one for one in server_figures(workbench.gateway) if one.server == "used")
            assert len(used.groups) == 1

            await until(lambda: let_through(gate))
            await until(lambda: figures()["slow"].state == "ready")
