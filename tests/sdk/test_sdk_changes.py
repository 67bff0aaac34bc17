"""Servers of the official SDK that change, crash or refuse to leave while hosts look on."""

from __future__ import annotations

import json
import time
from pathlib import Path

import anyio
import pytest
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError

from mcp_workbench.transport.process import FIRM, POLITE
from tests.kit.clock import PATIENCE
from tests.kit.config import entry
from tests.kit.processes import marked
from tests.kit.results import MODERN, Json
from tests.kit.sdk_host import (
    ERA,
    LEGACY_MODE,
    NEW,
    OLD,
    Notices,
    both_eras,
    by_flat_name,
    by_identifier,
    forked,
    plain,
    sdk_entry,
    sdk_host,
    text,
)

pytestmark = pytest.mark.usefixtures("forked_commands")

both = pytest.mark.parametrize("server", [OLD, NEW])
hosts = pytest.mark.parametrize("mode", [LEGACY_MODE, MODERN])
CHANGED = "notifications/tools/list_changed"

# Hosts of both SDKs close our input, wait 2 s, send SIGTERM, wait 2 s more, and kill us: then nobody
# is left to end our servers. Half a second is kept for a busy machine.
SIGTERM_AFTER = 2.0
FORCE = 3.5

STUBBORN = {"stubborn": sdk_entry("stubborn.py", era="legacy")}


async def open_lab(host: Client) -> list[str]:
    opened = await host.call_tool("open_toolbox", {"toolbox_name": "lab"})
    return [tool["name"] for tool in json.loads(text(opened))["tools"]]


@pytest.mark.parametrize("server", [OLD, NEW])
async def test_a_legacy_host_hears_of_a_tool_that_its_server_has_learned(
    tmp_path: Path, server: str
) -> None:
    notices = Notices()
    servers = {server: both_eras()[server]}
    bench = sdk_host(tmp_path, servers, mode=LEGACY_MODE, tools="dynamic", heard=notices.hear)
    async with bench as host:
        await open_lab(host)
        await notices.next(CHANGED)
        await host.call_tool(*by_flat_name(server, "learn", {"name": "dance"}))

        await notices.next(CHANGED)

        assert f"lab__{server}__dance" in [tool.name for tool in (await host.list_tools()).tools]
        answer = await host.call_tool(*by_flat_name(server, "dance"))
        assert text(answer) == "newly learned"


@hosts
async def test_a_tool_announced_by_its_server_can_be_called_at_once(
    tmp_path: Path, mode: str
) -> None:
    async with sdk_host(tmp_path, {OLD: both_eras()[OLD]}, mode=mode) as host:
        await open_lab(host)
        await host.call_tool(*by_identifier(OLD, "learn", {"name": "dance"}))

        assert text(await host.call_tool(*by_identifier(OLD, "dance"))) == "newly learned"
        assert "dance" in await open_lab(host)


@hosts
async def test_a_tool_that_nobody_announced_is_found_a_moment_later(
    tmp_path: Path, mode: str
) -> None:
    """A list older than FRESH is read again before a tool is called unknown."""
    async with sdk_host(tmp_path, {NEW: both_eras()[NEW]}, mode=mode) as host:
        await open_lab(host)
        await host.call_tool(*by_identifier(NEW, "learn", {"name": "dance"}))

        with anyio.fail_after(PATIENCE):
            while (answer := await host.call_tool(*by_identifier(NEW, "dance"))).is_error:
                assert text(answer).startswith("Tool 'dance' not found in server 'new'")
                await anyio.sleep(0.02)
        assert text(answer) == "newly learned"


@hosts
@both
async def test_a_call_that_kills_its_server_is_answered_and_the_next_one_works(
    tmp_path: Path, mode: str, server: str
) -> None:
    logged = f"mcp-workbench: lab/{server}: the server exited (exit status 3)\n"
    async with sdk_host(tmp_path, both_eras(), mode=mode, logged=logged) as host:
        await open_lab(host)

        answer = await host.call_tool(*by_identifier(server, "crash"))

        assert answer.is_error
        told = plain(answer)["content"][0]["text"]
        assert told.startswith(f"[lab/{server}/crash] Error: ")
        assert "3" in told  # the exit status
        about = await host.call_tool(*by_identifier(server, "about_the_call"))
        assert (about.structured_content or {})["era"] == ERA[server]


async def test_an_entry_pinned_to_an_era_does_not_speak_for_another_with_the_same_command(
    tmp_path: Path,
) -> None:
    servers = {OLD: forked("workshop.py", era="legacy"), NEW: forked("workshop.py")}
    async with sdk_host(tmp_path, servers, mode=MODERN) as host:
        for server in (OLD, NEW):
            about = await host.call_tool(*by_identifier(server, "about_the_call"))
            assert (about.structured_content or {})["era"] == ERA[server]


async def abandon(host: Client, wish: tuple[str, Json], begun: anyio.Event) -> None:
    """Call, and wait for an answer that will not come before the host leaves."""

    async def note(progress: float, total: float | None, message: str | None) -> None:
        begun.set()

    name, arguments = wish
    with pytest.raises(MCPError, match="Connection closed"):
        await host.call_tool(name, arguments, progress_callback=note)


def test_the_most_that_servers_get_ends_before_a_host_uses_force() -> None:
    assert SIGTERM_AFTER + POLITE + FIRM < FORCE


@pytest.mark.usefixtures("short_deadlines")
@hosts
async def test_a_host_may_leave_in_the_middle_of_a_call(tmp_path: Path, mode: str) -> None:
    async with anyio.create_task_group() as calls:
        async with sdk_host(tmp_path, both_eras(), mode=mode) as host:
            begun = anyio.Event()
            calls.start_soon(abandon, host, by_identifier(NEW, "wait", {"key": "never"}), begun)
            with anyio.fail_after(PATIENCE):
                await begun.wait()
            since = time.monotonic()

        assert time.monotonic() - since < FORCE


async def settled(mark: str, processes: int) -> None:
    """A process that is just being started has its parent's mark for a moment."""
    with anyio.fail_after(PATIENCE):
        while len(marked(mark)) != processes:  # noqa: ASYNC110 - processes send no event
            await anyio.sleep(0.02)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found in /proc")
@hosts
@pytest.mark.usefixtures("real_commands")
async def test_servers_live_as_long_as_the_host_and_no_longer(tmp_path: Path, mode: str) -> None:
    mark = f"{tmp_path} {mode}"
    servers = {OLD: entry(), NEW: entry("modern", era="modern")}
    async with sdk_host(tmp_path, servers, mode=mode, mark=mark) as host:
        await settled(mark, 1)  # nothing has been asked for yet
        await open_lab(host)
        await settled(mark, 3)

    assert marked(mark) == {}


@pytest.mark.usefixtures("short_deadlines")
async def test_a_server_that_refuses_to_leave_is_gone_before_the_host_uses_force(
    tmp_path: Path,
) -> None:
    async with sdk_host(tmp_path, STUBBORN, mode=LEGACY_MODE) as host:
        assert await open_lab(host) == ["stay"]
        since = time.monotonic()

    assert time.monotonic() - since < FORCE


@pytest.mark.usefixtures("short_deadlines")
async def test_a_server_that_refuses_to_leave_is_gone_even_if_a_call_was_under_way(
    tmp_path: Path,
) -> None:
    async with anyio.create_task_group() as calls:
        async with sdk_host(tmp_path, STUBBORN, mode=LEGACY_MODE) as host:
            begun = anyio.Event()
            calls.start_soon(abandon, host, by_identifier("stubborn", "stay"), begun)
            with anyio.fail_after(PATIENCE):
                await begun.wait()
            since = time.monotonic()

        assert time.monotonic() - since < FORCE
