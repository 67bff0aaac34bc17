"""Servers behind a URL are exchanged like processes."""

import asyncio

import pytest

from tests.http_servers.scenes import TOKEN, bench, echo
from tests.kit.config import snapshot, url_spec
from tests.kit.servers.bad_http import Hung, Request, bad_http, result


@pytest.mark.parametrize("era", ["", "/modern"])
async def test_a_call_to_a_url_finishes_where_it_began(era: str) -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def act(request: Request, out: Hung) -> None:
        asked.set()
        await go_on.wait()
        await out.reply(200, result(request))

    async with bad_http() as bad:
        first, second = url_spec(bad.on(f"{era}/slow", act)), url_spec(bad.url(f"{era}/ok"))
        async with bench(first) as workbench, asyncio.TaskGroup() as group:
            slow = group.create_task(echo(workbench, "slow"))
            await asked.wait()

            workbench.reload(snapshot(second))

            assert await echo(workbench, "new") == "new"
            go_on.set()
            assert await slow == "slow"
            assert [r.path for r in bad.calls()] == [f"{era}/slow", f"{era}/ok"]


async def test_another_header_is_another_connection_and_another_filter_is_none() -> None:
    async with bad_http() as bad:
        url = bad.url("/session")
        async with bench(url_spec(url)) as workbench:
            await echo(workbench)
            workbench.reload(snapshot(url_spec(url, timeout=5.0)))
            await echo(workbench)
            assert len(bad.calls("initialize")) == 1

            workbench.reload(snapshot(url_spec(url, headers=(("X-Token", "another-token"),))))
            await echo(workbench)

        tokens = [request.headers["x-token"] for request in bad.calls()]
        assert tokens == [TOKEN, TOKEN, "another-token"]
        assert [r.headers["mcp-session-id"] for r in bad.calls()] == [
            "session-0",
            "session-0",
            "session-1",
        ]
