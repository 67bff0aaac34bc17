"""A sandbox that can't be made costs its server, and is never left out without a word."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench import Workbench
from mcp_workbench.config.load import load_config
from mcp_workbench.core.errors import ServerUnavailable
from tests.kit.config import config_file, entry, tool
from tests.kit.processes import unmeasured
from tests.sandbox.scenes import attempted, denied, files, needs_bubblewrap, spy


def reason(folder: Path, server: dict[str, Any], path: str = "") -> str:
    """Why this server is not available, while another one is."""
    config = config_file(folder, {"a": server, "plain": entry()})
    env = {**os.environ, **({"PATH": path} if path else {})}

    async def ask() -> str:
        async with asyncio.timeout(30), Workbench(load_config(config, env), environ=env) as bench:
            with pytest.raises(ServerUnavailable) as caught:
                await bench.use_tool(tool("a", "attempt"), {"attempts": []})
            await bench.use_tool(tool("plain", "echo"))
            assert [health.box for health in bench.health()] == ["", "none"]
            return caught.value.reason

    return asyncio.run(ask())


@pytest.mark.parametrize("box", ["process", "required", {}], ids=str)
def test_without_bubblewrap_the_server_is_not_started(tmp_path: Path, box: Any) -> None:
    mark = tmp_path / "started"
    server = spy("on_term", str(mark), sandbox=box)

    text = reason(tmp_path, server, path=str(tmp_path))

    assert text.startswith("sandbox: bubblewrap (bwrap) is not installed")
    assert "(WB-BOX-701; fix: install bubblewrap" in text


def test_a_bubblewrap_in_a_relative_folder_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that may write to such a folder could make its own."""
    mark = tmp_path / "started"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "bwrap").write_text(f"#!/bin/sh\n/usr/bin/touch {mark}\n")
    (tmp_path / "bin" / "bwrap").chmod(0o755)
    monkeypatch.chdir(tmp_path)

    text = reason(tmp_path, spy("on_term", str(mark), sandbox="process"), path="bin")

    assert text.startswith("sandbox: bubblewrap (bwrap) is not installed")
    assert not mark.exists()


def test_auto_goes_without_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from mcp_workbench.upstream.sandbox import _MENTIONED  # pyright: ignore[reportPrivateUsage]

    _MENTIONED.clear()
    env = {**os.environ, "PATH": str(tmp_path)}
    config = config_file(tmp_path, {"a": entry(sandbox="auto"), "b": entry(sandbox="auto")})

    async def boxes() -> list[str]:
        async with asyncio.timeout(30), Workbench(load_config(config, env), environ=env) as bench:
            await bench.open_toolbox("dev")
            return [health.box for health in bench.health()]

    with caplog.at_level(logging.WARNING):
        assert asyncio.run(boxes()) == ["none", "none"]

    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("servers run without a sandbox: bubblewrap (bwrap) is not installed")


@needs_bubblewrap
def test_auto_is_a_sandbox_where_that_is_possible(tmp_path: Path) -> None:
    config = config_file(tmp_path, {"a": entry(sandbox="auto")})

    async def boxes() -> list[str]:
        async with asyncio.timeout(30), Workbench(load_config(config)) as bench:
            await bench.open_toolbox("dev")
            return [health.box for health in bench.health()]

    assert asyncio.run(boxes()) == ["process"]


@needs_bubblewrap
def test_where_it_is_forbidden_the_reason_is_that_of_bubblewrap(tmp_path: Path) -> None:
    """Inside of a sandbox that allows no others, as in many containers."""
    servers = {"must": entry(sandbox="process"), "may": entry(sandbox="auto")}
    config = config_file(tmp_path, servers)
    forbidding = ["bwrap", "--unshare-user", "--uid", "1234", "--gid", "1234", "--disable-userns"]
    around = ["--dev-bind", "/", "/", "--proc", "/proc", "--die-with-parent"]
    command = [sys.executable, "-m", "mcp_workbench", "check", "--connect", "--json"]
    if subprocess.run([*forbidding, *around, "true"], capture_output=True).returncode:
        pytest.skip("this bubblewrap can't forbid sandboxes inside of its own")

    done = subprocess.run(
        [*forbidding, *around, "--", *command, "--config", str(config)],
        env={**unmeasured(), "MCP_WORKBENCH_HOME": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        timeout=60,
    )

    document = json.loads(done.stdout)
    must, may = document["servers"]
    assert done.returncode == 4
    assert must["reason"].startswith("sandbox: bubblewrap can't make one here: ")
    assert "(WB-BOX-701; fix: allow user namespaces" in must["reason"]
    assert (may["available"], may["box"]) == (True, "none")
    assert [box["box"] for box in document["sandboxes"]] == ["", "none"]


@needs_bubblewrap
def test_a_program_outside_of_the_sandbox_is_named(tmp_path: Path) -> None:
    script = tmp_path / "server"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)

    text = reason(tmp_path, {"command": str(script), "sandbox": {}})

    assert f"its program {script} is not in it (WB-BOX-702; fix: add {tmp_path} to" in text


@needs_bubblewrap
def test_a_path_in_proc_is_refused_behind_a_link_as_well(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/proc")

    text = reason(tmp_path, spy(sandbox=files(["./link"])))

    assert "'./link' is in /proc (WB-BOX-702; fix: " in text


@needs_bubblewrap
def test_a_missing_path_is_left_out(tmp_path: Path) -> None:
    config = config_file(tmp_path, {"a": spy(sandbox=files(["./not there"]))})

    async def ask() -> str:
        async with asyncio.timeout(30), Workbench(load_config(config)) as bench:
            await bench.use_tool(tool("a", "attempt"), {"attempts": []})
            return bench.health()[0].box

    assert asyncio.run(ask()) == "files"


@needs_bubblewrap
def test_our_folder_is_hidden_even_if_it_is_made_later(tmp_path: Path) -> None:
    """Whoever grants a whole home does not grant what we put there after the server has started."""
    home = tmp_path / "home"
    home.mkdir()
    env = {**os.environ, "HOME": str(home)}
    env.pop("MCP_WORKBENCH_HOME", None)
    config = config_file(tmp_path, {"a": spy(sandbox=files(write=[str(home)]))})

    async def ask() -> list[str]:
        async with asyncio.timeout(30), Workbench(load_config(config, env), environ=env) as bench:
            await attempted(bench, "a", [])
            secret = home / ".mcp-workbench" / "secret"
            secret.parent.mkdir(exist_ok=True)
            secret.write_text("not for servers")
            (home / "shown").write_text("for everybody")
            return await attempted(
                bench, "a", [["read", str(secret)], ["read", str(home / "shown")]]
            )

    hidden, shown = asyncio.run(ask())
    assert denied(hidden)
    assert shown == "for everybody"
