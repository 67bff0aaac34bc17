"""Servers of 2024-11-05: one stream for all their messages, which can fail in ways of its own."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from mcp_workbench.core.spec import Limits, ServerSpec
from tests.http_servers.scenes import bench, echo, reason, trouble
from tests.kit.config import url_spec
from tests.kit.servers.bad_http import Act, BadHttp, Hung, Request, bad_http, event, result

SMALL = Limits(message_bytes=1 << 20)
ENDPOINT = b"event: endpoint\ndata: post\n\n"
ANSWERS: dict[str, Any] = {
    "initialize": {"protocolVersion": "2024-11-05", "capabilities": {}},
    "tools/list": {"tools": [{"name": "echo", "inputSchema": {}}]},
}


class OldServer:
    """A good one, but for what `act` does with calls whose text is `bad`."""

    def __init__(self, bad: BadHttp, act: Act | None = None, first: bytes = ENDPOINT) -> None:
        bad.acts |= {"/start/old": self.stream, "/start/post": self.post}
        self.spec: ServerSpec = url_spec(bad.url("/start/old"), transport="sse")
        self.streams: list[Hung] = []
        self._act = act
        self._first = first

    async def stream(self, request: Request, out: Hung) -> None:
        self.streams.append(out)
        await out.events(self._first, end=False)
        await asyncio.Event().wait()

    async def post(self, request: Request, out: Hung) -> None:
        arguments = request.body.get("params", {}).get("arguments", {})
        if self._act is not None and arguments.get("text") == "bad":
            await self._act(request, out)
            return
        await out.reply(202, b"Accepted", "text/plain")
        if request.method == "tools/call":
            await self.says(event(result(request)))
        elif request.method in ANSWERS:
            await self.says(event(result(request, json.dumps(ANSWERS[request.method]).encode())))

    async def says(self, chunk: bytes) -> None:
        await self.streams[-1].more(chunk)


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("end", "the server ended its event stream"),
        ("reset", "the connection was reset in the middle of the response"),
        ("large", "a message of it is larger than 1048576 bytes (limits.messageBytes)"),
    ],
)
async def test_a_stream_that_fails_takes_its_calls_with_it_and_is_opened_anew(
    way: str, words: str
) -> None:
    async def act(request: Request, out: Hung) -> None:
        await out.reply(202, b"Accepted", "text/plain")
        [stream] = server.streams
        if way == "end":
            await stream.raw(b"0\r\n\r\n")
        elif way == "reset":
            stream.reset()
        else:
            await stream.more(b"data: %b\n\n" % (b"x" * (1 << 21)))

    async with bad_http() as bad:
        server = OldServer(bad, act)
        async with bench(server.spec, limits=SMALL) as workbench:
            assert await echo(workbench, "fine") == "fine"
            error = await trouble(workbench, "bad")
            assert (error.code, error.may_have_run) == ("server_exited", True)
            assert words in error.message
            assert await echo(workbench, "again") == "again"
        assert len(server.streams) == 2


@pytest.mark.parametrize(
    ("status", "code", "words", "may_have_run"),
    [
        (500, "protocol_error", "the server answered HTTP 500 with text/plain", True),
        (404, "protocol_error", "the server answered HTTP 404 with text/plain", False),
        (403, "needs_login", "needs login", False),
        (429, "rate_limited", "the server takes no requests now (HTTP 429)", False),
    ],
)
async def test_a_call_that_is_not_accepted_fails_alone(
    status: int, code: str, words: str, may_have_run: bool
) -> None:
    async def act(request: Request, out: Hung) -> None:
        await out.reply(status, b"no", "text/plain")

    async with bad_http() as bad:
        server = OldServer(bad, act)
        async with bench(server.spec) as workbench:
            error = await trouble(workbench, "bad")
            assert (error.code, error.may_have_run) == (code, may_have_run)
            assert words in error.message
            assert await echo(workbench, "next") == "next"
        assert len(server.streams) == 1


async def test_a_stream_that_names_no_endpoint_in_time_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mcp_workbench.upstream.http.event_streams.ENDPOINT_PATIENCE", 0.1)
    async with bad_http() as bad:
        server = OldServer(bad, first=b": here\n\n")
        async with bench(server.spec) as workbench:
            told = await reason(workbench)

    assert told == "the server opened an event stream and named no endpoint to post to"


async def test_events_of_other_names_and_a_second_endpoint_change_nothing() -> None:
    first = ENDPOINT + b"event: ping\ndata: {}\n\nevent: endpoint\ndata: elsewhere\n\n"
    async with bad_http() as bad:
        server = OldServer(bad, first=first)
        async with bench(server.spec) as workbench:
            assert await echo(workbench, "fine") == "fine"
        assert {request.path for request in bad.seen} == {"/start/old", "/start/post"}
