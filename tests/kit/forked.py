"""The workbench as a fork of a process that has imported it already: a tenth of a second less.

    python -m tests.kit.forked SOCKET

For hosts that care for what is said on their pipe, not for the process at its other end.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import pytest

from tests.kit import pipe_host
from tests.kit.fork_server import serve

ROOT = Path(__file__).parents[2]
RELAY = (sys.executable, "-E", "-S", str(Path(__file__).with_name("fork_relay.py")))
LOADED = (  # what a host's first requests load
    "hashlib",
    "uvloop",
    "mcp_workbench.app",
    "mcp_workbench.cli.commands",
    "mcp_workbench.cli.main",
    "mcp_workbench.config.chosen",
    "mcp_workbench.config.likeness",
    "mcp_workbench.daemon.joining",
    "mcp_workbench.downstream.catalogue_files",
    "mcp_workbench.gateway.primitives",
    "mcp_workbench.surface.primitives",
    "mcp_workbench.surface.owners",
    "mcp_workbench.surface.subscriptions",
    "mcp_workbench.wire.guard",
)
DEADLINES = "MCP_WORKBENCH_TEST_DEADLINES"  # it is read while the program is imported


@contextmanager
def forking(folder: Path, *argv: str) -> Generator[tuple[str, ...]]:
    """A program that calls `serve`, while this is open; a command that asks it for a fork."""
    path = str(folder / "socket")
    command = [sys.executable, *argv, path]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield (*RELAY, path)
        finally:
            process.kill()


@pytest.fixture(scope="package", autouse=True)
def forked_hosts(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    """A folder that imports this into its conftest has hosts on a pipe whose command is a fork."""
    with (
        pytest.MonkeyPatch.context() as patch,
        forking(tmp_path_factory.mktemp("forked"), "-m", "tests.kit.forked") as command,
    ):
        patch.setattr(pipe_host, "COMMAND", (*command, "workbench"))
        yield


def workbench() -> None:
    """What `python -m mcp_workbench` does."""
    if DEADLINES in os.environ or any(name.startswith("COV") for name in os.environ):
        os.execv(sys.executable, [sys.executable, "-m", "mcp_workbench", *sys.argv[1:]])
    from mcp_workbench.cli.main import main

    main()


if __name__ == "__main__":
    for module in LOADED:
        import_module(module)
    serve(sys.argv[1], {"workbench": workbench})
