"""Limits that the system enforces on a server: each holds, and without it the same is possible."""

from __future__ import annotations

import asyncio
import os
import resource
from pathlib import Path

import pytest

from mcp_workbench import Workbench
from mcp_workbench.config.load import load_config
from mcp_workbench.core.errors import ServerUnavailable
from tests.kit.config import config_file, tool
from tests.kit.root import needs_root
from tests.sandbox.scenes import attempts, denied, files, needs_bubblewrap, spy

MEGABYTE = 1 << 20
BOXES = [
    pytest.param("off", id="no sandbox"),
    pytest.param("process", marks=needs_bubblewrap),
    pytest.param(files(), marks=needs_bubblewrap, id="files"),
]


@pytest.mark.parametrize("box", BOXES)
def test_memory_and_open_files(tmp_path: Path, box: object) -> None:
    limits = {"memoryBytes": 128 * MEGABYTE, "openFiles": 32}
    servers = {"free": spy(), "limited": spy(sandbox=box, resourceLimits=limits)}

    found = attempts(
        tmp_path, servers, [["memory", 200 * MEGABYTE], ["memory", MEGABYTE], ["opens", 40]]
    )

    assert found["free"] == [str(200 * MEGABYTE), str(MEGABYTE), "opened"]
    assert denied(found["limited"][0])
    assert "MemoryError" in found["limited"][0]
    assert found["limited"][1:] == [str(MEGABYTE), "refused"]


@needs_bubblewrap
@pytest.mark.skipif(os.geteuid() == 0, reason="the system does not limit the processes of root")
def test_processes_are_counted_per_sandbox(tmp_path: Path) -> None:
    """However many this user has otherwise, and the other server at the same time."""
    limited = spy(sandbox="process", resourceLimits={"processes": 10})
    servers = {"free": spy(), "one": limited, "other": {**limited, "sandbox": files()}}

    found = attempts(tmp_path, servers, [["forks", 20]])

    assert found["free"] == ["20"]
    assert 5 <= int(found["one"][0]) < 10
    assert 5 <= int(found["other"][0]) < 10


def reason(folder: Path, **entry: object) -> str:
    config = config_file(folder, {"a": spy(**entry)})

    async def ask() -> str:
        async with asyncio.timeout(30), Workbench(load_config(config)) as bench:
            with pytest.raises(ServerUnavailable) as caught:
                await bench.use_tool(tool("a", "attempt"), {"attempts": []})
            return caught.value.reason

    return asyncio.run(ask())


@needs_bubblewrap
@needs_root("the processes of others can be limited")
def test_a_limit_without_an_effect_is_not_pretended(tmp_path: Path) -> None:
    text = reason(tmp_path, sandbox="process", resourceLimits={"processes": 10})

    assert "does not limit the processes of root (WB-BOX-703; fix: " in text


def test_more_than_the_user_may_have_is_refused(tmp_path: Path) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most == resource.RLIM_INFINITY:
        pytest.skip("this user may open any number of files")

    text = reason(tmp_path, resourceLimits={"openFiles": most + 1})

    assert f"(WB-BOX-703; fix: write {most} or less)" in text


def test_processes_of_the_user_are_not_counted_for_a_server(tmp_path: Path) -> None:
    text = reason(tmp_path, resourceLimits={"processes": 10})

    assert 'WB-BOX-703; fix: write "sandbox": "process", or remove that limit)' in text
