"""What HTTP needs is loaded when a server behind a URL is first used, and not before."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.kit.processes import unmeasured

SCRIPT = """
import asyncio, sys
from mcp_workbench import Workbench, load_config
from mcp_workbench.core.spec import ServerAddress
HEAVY = {"httptools", "ssl", "urllib.request", "http.client", "mcp_workbench.transport.http.client"}
async def main():
    async with Workbench(load_config(sys.argv[1])) as workbench:
        print(sorted(HEAVY & set(sys.modules)))
        await workbench.survey(ServerAddress("default", "far"))
        print(sorted(HEAVY & set(sys.modules)))
asyncio.run(main())
"""


def test_http_is_loaded_when_it_is_used(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"mcpServers": {"far": {"url": "http://127.0.0.1:9/mcp"}}}))

    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(config)],
        capture_output=True,
        text=True,
        timeout=30,
        env=unmeasured(),
    )

    before, after = done.stdout.splitlines()
    assert "httptools" not in before
    assert "transport.http.client" not in before
    assert "transport.http.client" in after
    assert "urllib.request" not in after
