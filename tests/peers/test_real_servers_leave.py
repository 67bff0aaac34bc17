"""How the workbench finds the era of each server, and how it leaves them all."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from crew import REVISIONS, crew, make_world
from rawpeer import LEAVING, peers_config, running, workbench

from mcp_workbench import Workbench, load_config
from mcp_workbench.core.spec import ServerAddress
from tests.kit.processes import MARK, assert_all_gone, marked

pytestmark = pytest.mark.peers


async def test_every_server_is_met_in_the_revision_that_it_speaks(
    tmp_path: Path, workplace: Path
) -> None:
    mark = f"{tmp_path} revisions"
    servers = crew(workplace, make_world(tmp_path))
    config = peers_config(tmp_path, servers, tools="proxy", mark=mark)
    async with asyncio.timeout(40), Workbench(load_config(config)) as bench:
        await bench.open_toolbox("peers")
        reports = [await bench.survey(ServerAddress("peers", name)) for name in servers]

    assert {report.address.server: report.revision for report in reports} == REVISIONS
    assert [report.complaints for report in reports] == [()] * len(servers)
    assert_all_gone(mark)


async def test_a_server_that_ignores_the_end_of_its_input_is_ended_all_the_same(
    tmp_path: Path, workplace: Path
) -> None:
    mark = f"{tmp_path} ignores"
    older = {"older": crew(workplace, make_world(tmp_path))["older"]}
    async with workbench(tmp_path, older, modern=False, tools="proxy", mark=mark) as host:
        await host.call("open_toolbox", {"toolbox_name": "peers"})
        assert len(marked(mark)) == 2

        assert await host.leave() < LEAVING

        assert_all_gone(mark)


async def test_a_terminated_workbench_takes_its_servers_along(
    tmp_path: Path, workplace: Path
) -> None:
    mark = f"{tmp_path} terminated"
    servers = crew(workplace, make_world(tmp_path))
    config = peers_config(tmp_path, servers, tools="proxy", mark=mark)
    command = [sys.executable, "-m", "mcp_workbench", "serve", "--config", config]
    async with running(command, tmp_path, modern=False, env={MARK: mark}) as host:
        await host.call("open_toolbox", {"toolbox_name": "peers"})
        assert len(marked(mark)) == len(servers) + 1

        os.kill(host.process.pid, signal.SIGTERM)

        async with asyncio.timeout(LEAVING):
            await host.process.wait()
        assert_all_gone(mark)
