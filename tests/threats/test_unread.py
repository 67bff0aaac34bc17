"""A server that asks and does not take the answers: what we keep for it has a limit."""

from __future__ import annotations

import asyncio
import logging

import pytest

from mcp_workbench.core.spec import ServerAddress
from mcp_workbench.upstream.conversation import Conversation
from mcp_workbench.upstream.http.link import MOST_REPLIES
from mcp_workbench.upstream.server_requests import ServerRequests
from tests.http_servers.scenes import bench, echo
from tests.kit.config import url_spec
from tests.kit.servers.bad_http import Hung, Request, bad_http, event, result

LIMIT = 10_000  # bytes of a message
PINGS = 4 * MOST_REPLIES


class Unread:
    """A pipe from which nobody reads."""

    def __init__(self) -> None:
        self.frames = 0
        self.backlog = 0

    def send(self, frame: bytes, about: bytes = b"") -> None:
        self.frames += 1
        self.backlog += len(frame)


@pytest.mark.parametrize("method", ["ping", "sampling/createMessage", "what/ever"])
def test_answers_that_a_server_does_not_read_are_kept_up_to_a_message(
    caplog: pytest.LogCaptureFixture, method: str
) -> None:
    questions = ServerRequests(ServerAddress("dev", "s"), None)
    talk = Conversation(LIMIT, lambda message: questions.received(talk, message))
    channel = talk.channel = Unread()

    with caplog.at_level(logging.WARNING):
        for n in range(1000):
            talk.receive(b'{"jsonrpc":"2.0","id":"%d","method":"%b"}\n' % (n, method.encode()))

    assert LIMIT < channel.backlog < LIMIT + 1000
    assert caplog.messages == ["dev/s does not read our responses: no more are sent"]

    channel.backlog = 0  # it has read
    talk.receive(b'{"jsonrpc":"2.0","id":7,"method":"ping"}\n')
    assert channel.backlog


async def test_few_answers_are_on_their_way_to_a_server_that_takes_none() -> None:
    async def act(request: Request, out: Hung) -> None:
        if not request.method:  # an answer to its question
            await asyncio.Event().wait()
        elif request.method != "tools/call":
            await server.good(request, out)
        else:
            ping = b'{"jsonrpc":"2.0","id":"p%d","method":"ping"}'
            await out.events(*(event(ping % n) for n in range(PINGS)), event(result(request)))

    async with bad_http() as server, bench(url_spec(server.on("/start/x", act))) as workbench:
        assert await echo(workbench, "hi") == "hi"
        under_way = [task for task in asyncio.all_tasks() if task.get_name() == "answer"]

    assert 0 < len(under_way) <= MOST_REPLIES
