"""Servers with limits, of a workbench that is alone in a delegated control group.

    python -m tests.sandbox.group_scene FOLDER RESULT

Run in that group. RESULT is a file with JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from mcp_workbench import Workbench
from mcp_workbench.config.load import load_config
from mcp_workbench.core.errors import WorkbenchError
from tests.kit.config import config_file
from tests.kit.servers import SPY
from tests.sandbox.scenes import attempted, spy

MEGABYTE = 1 << 20
PATIENCE = 60.0


async def scene(folder: Path) -> dict[str, Any]:
    mark = folder / "escaped"
    servers = {
        "free": spy(),
        "few": spy(resourceLimits={"processes": 10}),
        "small": spy(resourceLimits={"memoryBytes": 96 * MEGABYTE}),
    }
    asked: dict[str, list[list[Any]]] = {
        "free": [["forks", 20], ["used_by", 3, 50 * MEGABYTE]],
        "few": [["forks", 20], ["escape", str(mark)]],
        "small": [["used_by", 1, 50 * MEGABYTE]],
    }
    found: dict[str, Any] = {}
    async with (
        asyncio.timeout(PATIENCE),
        Workbench(load_config(config_file(folder, servers))) as bench,
    ):
        for name, tries in asked.items():
            found[name] = await attempted(bench, name, tries)
        while not mark.exists():  # noqa: ASYNC110 - a file tells nobody
            await asyncio.sleep(0.01)
        found["groups"] = sorted(path.name for path in own_group().glob("*/"))
        try:
            found["together"] = await attempted(bench, "small", [["used_by", 3, 50 * MEGABYTE]])
        except WorkbenchError as error:
            found["together"] = error.code
    found["left"] = [path.name for path in own_group().glob("mcp-workbench-server-*/")]
    found["running"] = are_running()
    return found


def own_group() -> Path:
    """The delegated one: ours is in it now."""
    path = Path("/proc/self/cgroup").read_text().rpartition("0::")[2].strip()
    return Path(f"/mnt/groups{path}").parent


def are_running() -> bool:
    """Whether any process of these servers is left, wherever it went."""
    files = (path / "cmdline" for path in Path("/proc").iterdir() if path.name.isdigit())
    return any(SPY.encode() in file.read_bytes() for file in files)


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(asyncio.run(scene(Path(sys.argv[1])))))
