"""A Node server that crashes: the host reads why, as the installed version of Node prints it."""

import shutil
from pathlib import Path

import pytest

from tests.kit.config import config_file
from tests.kit.pipe_host import PipeHost
from tests.kit.results import text

CRASHES = {
    "throw new Error('DB_URL is required')": "Error: DB_URL is required",
    "Promise.reject(new TypeError('no token'))": "TypeError: no token",
    "console.error('Fatal:', new Error('no database')); process.exit(1)": "Fatal: Error: no database",
    "require('fs').readFileSync('/nonexistent')": (
        "Error: ENOENT: no such file or directory, open '/nonexistent'"
    ),
}


@pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")
@pytest.mark.parametrize("script", CRASHES)
def test_a_host_reads_why_a_node_server_did_not_start(script: str, tmp_path: Path) -> None:
    server = tmp_path / "server.cjs"
    server.write_text(script)
    with PipeHost(config_file(tmp_path, {"a": {"command": "node", "args": [str(server)]}})) as host:
        host.handshake()
        answer = host.use("a", "echo")

    assert text(answer).endswith(f"(exit status 1). stderr: {CRASHES[script]}")
