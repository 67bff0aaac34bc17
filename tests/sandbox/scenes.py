"""Servers in sandboxes, and what they could do there."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench import Workbench
from mcp_workbench.config.load import load_config
from mcp_workbench.core.spec import Sandbox
from mcp_workbench.upstream.sandbox import SandboxUnavailable, working_program
from tests.kit.config import config_file, tool
from tests.kit.results import json_text
from tests.kit.servers import SPY

PATIENCE = 30.0  # seconds for all servers of a scene


def unavailable() -> str:
    """Why no sandbox can be made here; empty if one can."""
    for sandbox in (Sandbox("process"), Sandbox("files")):
        try:
            working_program(sandbox, os.environ)
        except SandboxUnavailable as error:
            return error.message
    return ""


needs_bubblewrap = pytest.mark.skipif(bool(unavailable()), reason=f"no sandbox: {unavailable()}")


def python_files() -> list[str]:
    """What Python needs to start, and the spy."""
    real = os.path.realpath(sys.executable)
    places = {sys.prefix, sys.base_prefix, str(Path(real).parents[1]), str(Path(SPY).parent)}
    return sorted(place for place in places if not place.startswith("/usr"))


def spy(*words: str, **more: Any) -> dict[str, Any]:
    """The entry of a server that tries things."""
    args = ["-E", "-S", SPY, *words]
    return {"command": sys.executable, "args": args, "era": "legacy", **more}


def files(read: list[str] | None = None, **more: Any) -> dict[str, Any]:
    """A sandbox in which Python can start, with this granted on top."""
    return {"read": [*python_files(), *(read or [])], **more}


def attempts(
    folder: Path,
    servers: dict[str, Any],
    tries: list[list[Any]],
    environ: Mapping[str, str] | None = None,
) -> dict[str, list[str]]:
    """What came of these attempts at each server."""
    config = config_file(folder, servers)

    async def ask() -> dict[str, list[str]]:
        env = {**os.environ, **(environ or {})}
        async with (
            asyncio.timeout(PATIENCE),
            Workbench(load_config(config, env), environ=env) as bench,
        ):
            return {name: await attempted(bench, name, tries) for name in servers}

    return asyncio.run(ask())


async def attempted(bench: Workbench, server: str, tries: list[list[Any]]) -> list[str]:
    return json_text(await bench.use_tool(tool(server, "attempt"), {"attempts": tries}))


def denied(outcome: str) -> bool:
    return outcome.startswith("denied: ")
