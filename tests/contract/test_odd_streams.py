"""`serve` on streams that are no pipes: a terminal, a file, a full disk."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.clock import PATIENCE
from tests.kit.config import config_file, entry

INITIALIZE = (
    json.dumps(
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {"protocolVersion": "2025-11-25", "capabilities": {}},
        }
    ).encode()
    + b"\n"
)


def command(folder: Path) -> list[str]:
    config = config_file(folder, {"a": entry()})
    return [sys.executable, "-m", "mcp_workbench", "serve", "--config", str(config)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_person_at_a_terminal_can_leave(tmp_path: Path, number: signal.Signals) -> None:
    ours, theirs = pty.openpty()
    serving = subprocess.Popen(
        command(tmp_path), stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    os.close(theirs)
    try:
        os.write(ours, INITIALIZE)
        assert serving.stdout is not None
        assert b"protocolVersion" in serving.stdout.readline()  # it is listening

        serving.send_signal(number)

        _, complaints = serving.communicate(timeout=PATIENCE)
        assert serving.returncode == (130 if number == signal.SIGINT else 0)
        notice, *others = complaints.decode().splitlines(keepends=True)
        assert notice.startswith("waiting for messages of an MCP host")
        assert [line for line in others if not line.startswith("mcp-workbench install HOST")] == []
    finally:
        serving.kill()
        os.close(ours)


def test_requests_may_lie_in_a_file(tmp_path: Path) -> None:
    requests = tmp_path / "requests"
    requests.write_bytes(INITIALIZE)
    with requests.open("rb") as stdin:
        told = subprocess.run(command(tmp_path), stdin=stdin, capture_output=True, timeout=PATIENCE)

    assert json.loads(told.stdout)["id"] == 1
    assert told.returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a disk that is always full")
def test_a_full_disk_is_one_line_and_a_status(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as stdout:
        told = subprocess.run(
            command(tmp_path),
            input=INITIALIZE,
            stdout=stdout,
            stderr=subprocess.PIPE,
            timeout=PATIENCE,
        )

    assert told.returncode == 1
    assert told.stderr.count(b"\n") == 1
    assert b"No space left" in told.stderr
