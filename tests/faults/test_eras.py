"""Every kind of host with every kind of server, on every road; and servers that the question upsets."""

from pathlib import Path
from typing import Any

import pytest

from tests.faults.scene import faulty
from tests.faults.web import box_call, served
from tests.kit.clock import takes_at_most
from tests.kit.config import entry, url_entry
from tests.kit.processes import pids_in
from tests.kit.results import ENVELOPE, MODERN, json_text, texts
from tests.kit.servers.bad_http import BadHttp, bad_http_in_a_thread

pytestmark = pytest.mark.usefixtures("forked_commands")

HOSTS = ("legacy", "modern", "dual")
SERVERS = ("legacy", "modern", "dual")


def of_all_kinds(bad: BadHttp) -> dict[str, Any]:
    """A server of each era on each road; none says in the file which it is."""
    pipes = {f"pipe-{era}": entry(era, era="auto") for era in SERVERS}
    roads = {"legacy": "/ok", "modern": "/modern/ok", "dual": "/dual/ok"}
    return pipes | {f"url-{era}": url_entry(bad.url(path)) for era, path in roads.items()}


@pytest.mark.fault("F40")
@pytest.mark.parametrize("host_era", HOSTS)
def test_a_host_on_a_pipe_lists_and_calls_servers_of_every_era(
    tmp_path: Path, host_era: str
) -> None:
    with bad_http_in_a_thread() as bad:
        servers = of_all_kinds(bad)
        with faulty(tmp_path, servers, modern=host_era != "legacy") as host:
            if host_era == "dual":  # it asks first, and then speaks as it was told
                assert MODERN in host.result("server/discover")["supportedVersions"]
            value = host.open()
            assert "unavailable" not in value
            for server in servers:
                owned = [tool for tool in value["tools"] if tool["source_server"] == server]
                assert "echo" in [tool["name"] for tool in owned]
                heard = texts(host.use(server, "echo", {"text": server}))[0]
                assert server in heard


@pytest.mark.fault("F40")
@pytest.mark.parametrize("host_era", HOSTS)
async def test_a_host_over_http_does_the_same(tmp_path: Path, host_era: str) -> None:
    with bad_http_in_a_thread() as bad:
        servers = of_all_kinds(bad)
        async with served(tmp_path, servers) as road:
            session = await road.port.open() if host_era == "legacy" else None
            if host_era == "dual":
                found = await road.port.ask_modern("server/discover", {"_meta": ENVELOPE})
                assert MODERN in found.result["supportedVersions"]
            for server in servers:
                params = box_call(server, "echo", {"text": server})
                if session is not None:
                    result = await session.result("tools/call", params)
                else:
                    result = (await road.port.ask_modern("tools/call", params)).result
                assert server in texts(result)[0]


@pytest.mark.fault("F40")
@pytest.mark.usefixtures("short_deadlines")  # it never answers the question for its era
def test_a_server_that_is_silent_about_its_era_is_usable_soon(tmp_path: Path) -> None:
    server = {"silent": entry("quiet_probe", era="auto")}
    with faulty(tmp_path, server, modern=True) as host, takes_at_most(0.8):
        assert json_text(host.use("silent", "echo"))["name"] == "echo"


@pytest.mark.fault("F47")
def test_a_server_that_the_question_ends_is_started_once_more_and_that_is_remembered(
    tmp_path: Path,
) -> None:
    pids = tmp_path / "pids"
    server = entry("die_on_probe", era="auto", env={"PIDFILE": str(pids)})
    with faulty(tmp_path, {"shy": server}, modern=True) as host:
        assert json_text(host.use("shy", "echo"))["name"] == "echo"
        assert len(pids_in(pids)) == 2
        for starts in (3, 4):
            for _ in range(10):  # it works, so that its end is no failure to start
                host.use("shy", "stats")
            host.use("shy", "die")
            assert json_text(host.use("shy", "echo"))["name"] == "echo"
            assert len(pids_in(pids)) == starts
