"""`mcp-workbench ui`: starts the workbench in the background if none runs, and gives addresses of its page."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from tests.kit.config import config_file, demo_server
from tests.kit.http_host import Port
from tests.kit.shared import nothing_left, shared

ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)(/ui/open/[\w.-]+)")


def opened(address: str) -> int:
    """The status of a visit to this address."""
    match = ADDRESS.fullmatch(address)
    assert match is not None, address

    async def visit() -> int:
        port = Port(int(match[1]))
        return (await port.ask(method="GET", path=match[2])).status

    return asyncio.run(visit())


def of_mcp(address: str) -> int:
    match = ADDRESS.fullmatch(address)
    assert match is not None

    async def visit() -> int:
        return (await Port(int(match[1])).ask(b"{}", path="/mcp")).status

    return asyncio.run(visit())


def test_the_page_of_the_shared_workbench_has_a_port_of_its_own(tmp_path: Path) -> None:
    config = config_file(tmp_path, {"basics": demo_server()})
    with shared(config, start=False) as bench:
        first = bench.json("ui")
        second = bench.json("ui")
        text = bench.run("ui", "--no-open").stdout.strip()

        assert (first["started"], second["started"]) == (True, False)
        assert first["pid"] == second["pid"]
        assert [opened(first["url"]), opened(first["url"])] == [200, 403]
        assert opened(second["url"]) == opened(text) == 200
        assert of_mcp(text) == 404  # hosts have no port here
        bench.done("down")
    nothing_left(tmp_path)


def test_with_a_port_for_hosts_the_page_is_on_it(tmp_path: Path) -> None:
    config = config_file(tmp_path, {"basics": demo_server()})
    with shared(config, start=False) as bench:
        up = bench.json("up", "--http", "0")
        address = bench.json("ui")["url"]

        assert address.startswith(up["url"].removesuffix("mcp") + "ui/open/")
        assert opened(address) == 200
        bench.done("down")
    nothing_left(tmp_path)


def test_an_address_outlives_no_restart_and_the_port_stays(tmp_path: Path) -> None:
    config = config_file(tmp_path, {"basics": demo_server()})
    with shared(config, start=False) as bench:
        before = bench.json("ui")["url"]
        bench.done("down")
        after = bench.json("ui")["url"]

        assert ADDRESS.fullmatch(before)[1] == ADDRESS.fullmatch(after)[1]  # type: ignore[index]
        assert opened(before.replace("x", "x")) == 403
        assert opened(after) == 200
        bench.done("down")
