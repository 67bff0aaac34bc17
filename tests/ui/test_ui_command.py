"""`mcp-workbench ui`: starts the workbench in the background if none runs, and gives addresses of its page."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.kit.config import config_file, demo_server
from tests.kit.http_host import Port
from tests.kit.shared import Shared

ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)(/ui/open/[\w.-]+)")


@contextmanager
def stopped_bench(folder: Path) -> Generator[Shared]:
    """A configuration for which nothing runs yet; whatever was started has ended afterwards."""
    bench = Shared(config_file(folder, {"basics": demo_server()}))
    try:
        yield bench
    finally:
        bench.run("down")


def parts(address: str) -> tuple[int, str]:
    match = ADDRESS.fullmatch(address)
    assert match is not None, address
    return int(match[1]), match[2]


def status_of(address: str, path: str = "") -> int:
    """The status of a visit to this address, or to another path there."""
    number, own = parts(address)

    async def visit() -> int:
        return (await Port(number).ask(method="GET", path=path or own)).status

    return asyncio.run(visit())


def test_the_page_of_the_shared_workbench_has_a_port_of_its_own(tmp_path: Path) -> None:
    with stopped_bench(tmp_path) as bench:
        first = bench.json("ui")
        second = bench.json("ui")
        text = bench.run("ui", "--no-open").stdout.strip()

        assert (first["started"], second["started"]) == (True, False)
        assert first["pid"] == second["pid"] == bench.status()["pid"]
        assert [status_of(first["url"]), status_of(first["url"])] == [200, 403]
        assert status_of(second["url"]) == status_of(text) == 200
        assert status_of(text, "/mcp") == 404  # hosts have no port here


def test_with_a_port_for_hosts_the_page_is_on_it(tmp_path: Path) -> None:
    with stopped_bench(tmp_path) as bench:
        up = bench.json("up", "--http", "0")
        before = status_of(up["url"].replace("mcp", "ui/open/x"))
        address = bench.json("ui")["url"]

        assert before == 404
        assert address.startswith(up["url"].removesuffix("mcp") + "ui/open/")
        assert status_of(address) == 200


def test_an_address_does_not_outlive_a_restart_and_the_port_does(tmp_path: Path) -> None:
    with stopped_bench(tmp_path) as bench:
        before = bench.json("ui")["url"]
        bench.done("down")
        after = bench.json("ui")["url"]

        assert parts(before)[0] == parts(after)[0]
        assert status_of(before) == 403
        assert status_of(after) == 200
