"""Programs that fetch us for one run: what `install` then writes into a host starts us again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mcp_workbench import __version__

pytestmark = [pytest.mark.peers, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
SECONDS = 180  # for one run; the first one builds, and fetches what we depend on
WAYS = {"uvx": ["uvx", "--from", str(ROOT)], "pipx": ["pipx", "run", "--spec", str(ROOT)]}
HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "x", "version": "1"},
}


@pytest.mark.parametrize("runner", list(WAYS))
def test_what_is_installed_from_a_passing_environment_lasts(runner: str, tmp_path: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    assert shutil.which(runner, path=path), f"{runner} is missing: `make peers` installs it"
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    env = {
        **kept,
        "PATH": path,
        "HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path / ".cache"),
        "PYTHONUTF8": "1",
    }
    config = tmp_path / "workbench-config.json"
    server = {"command": sys.executable, "args": ["-m", "mcp_workbench.demo", "basics"]}
    config.write_text(json.dumps({"mcpServers": {"basics": server}}))
    config.chmod(0o600)

    def run(*argv: str, told: str = "") -> str:
        done = subprocess.run(
            argv, cwd=tmp_path, env=env, input=told, capture_output=True, text=True, timeout=SECONDS
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    way = [*WAYS[runner], "mcp-workbench"]
    assert run(*way, "--version") == f"mcp-workbench {__version__}\n"
    run(*way, "install", "cursor", "--yes")
    entry = json.loads((tmp_path / ".cursor" / "mcp.json").read_text())["mcpServers"]["workbench"]
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
    answer = json.loads(run(entry["command"], *entry["args"], told=json.dumps(message) + "\n"))
    looked_at = json.loads(run(*way, "doctor", "--json"))["lines"]

    assert Path(entry["command"]).name == runner
    assert Path(entry["command"]).is_absolute()
    assert entry["args"][-3:] == ["serve", "--config", str(config)]
    assert answer["result"]["serverInfo"]["name"] == "mcp-workbench"
    assert [line["state"] for line in looked_at if line["subject"] == "cursor"] == ["good"]
