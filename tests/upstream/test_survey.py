"""A fresh survey asks a server again, whatever is known of it."""

from __future__ import annotations

import asyncio

from mcp_workbench.gateway.workbench import Gateway
from tests.kit.clock import PATIENCE
from tests.kit.config import snapshot, spec


async def test_a_fresh_survey_does_not_wait_for_the_next_attempt() -> None:
    server = spec("a")
    async with asyncio.timeout(PATIENCE), Gateway(snapshot(server)) as gateway:
        for _ in range(20):
            gateway.pool.context.backoff.ended(server, 0.0, 0, "it exited")

        waiting = await gateway.view.survey(server.address)
        fresh = await gateway.view.survey(server.address, fresh=True)

    assert "it failed 20 times in a row, next try in" in waiting.reason
    assert (fresh.reason, "echo" in [info.name for info in fresh.tools]) == ("", True)


async def test_a_fresh_survey_lists_the_tools_of_a_running_server_again() -> None:
    server = spec("a")
    async with asyncio.timeout(PATIENCE), Gateway(snapshot(server)) as gateway:
        await gateway.view.survey(server.address)
        [connection] = gateway.connected
        given = connection.conversation.pending.given

        await gateway.view.survey(server.address)
        assert connection.conversation.pending.given == given

        await gateway.view.survey(server.address, fresh=True)
        assert connection.conversation.pending.given == given + 1
        assert gateway.connected == [connection]
