"""Out of file descriptors: who runs goes on, who can't be started is told why, and it passes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.config import config_file, entry
from tests.kit.pipe_host import PipeHost
from tests.kit.results import json_text, texts

if sys.platform != "linux":
    pytest.skip("limits of another process are set by prlimit", allow_module_level=True)

import resource


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


FREE = (0, 1, 3, 5, 6, 7)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PipeHost]:
    servers = {"runs": entry(), **{f"late{free}": entry() for free in FREE}}
    file = config_file(tmp_path_factory.mktemp("descriptors"), servers)
    # It keeps nothing on disk: no file is open while we count.
    with PipeHost(file, env={"MCP_WORKBENCH_CACHE": "off"}) as host:
        host.initialize()
        yield host


@pytest.mark.parametrize("free", FREE)
@pytest.mark.fault("F45")
def test_a_server_that_can_not_be_started_names_the_limit(host: PipeHost, free: int) -> None:
    """However many are left: before its pipes, between them, or before it is watched."""
    host.use("runs", "echo")
    _, most = resource.prlimit(host.process.pid, resource.RLIMIT_NOFILE)
    few = open_files(host.process.pid) + free
    resource.prlimit(host.process.pid, resource.RLIMIT_NOFILE, (few, most))

    late = host.use(f"late{free}", "echo")

    assert late["_meta"]["mcp-workbench/code"] == "connect_failed"
    assert f"no more than {few} at once (ulimit -n)" in texts(late)[0]
    assert json_text(host.use("runs", "echo"))["name"] == "echo"

    resource.prlimit(host.process.pid, resource.RLIMIT_NOFILE, (most, most))

    assert json_text(host.use(f"late{free}", "echo"))["name"] == "echo"
