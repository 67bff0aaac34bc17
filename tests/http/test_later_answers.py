"""A request whose task fails is answered, and its connection goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest

from mcp_workbench.server.http.later_answers import answer_later
from mcp_workbench.transport.http.messages import HttpRequest, Reply, ResponseWriter
from mcp_workbench.transport.http.server import listening
from mcp_workbench.transport.tasks import TaskScope, task_scope
from tests.kit.clock import PATIENCE, until
from tests.kit.http_host import Port


class FailingFront:
    """Answers `/fine`; fails at `/early`, and at `/late` after the response has begun."""

    def __init__(self, scope: TaskScope) -> None:
        self._scope = scope

    def admit(self, request: HttpRequest) -> Reply | None:
        return None

    def still_admits(self, request: HttpRequest) -> bool:
        return False

    def read_ahead(self, request: HttpRequest) -> Iterator[None]:
        return iter(())

    def handle(self, request: HttpRequest, response: ResponseWriter) -> None:
        answer_later(self._scope, self._answer(request.path(), response), response, "request")

    async def _answer(self, path: bytes, response: ResponseWriter) -> None:
        if path == b"/late":
            response.stream()
        if path != b"/fine":
            raise LookupError(path.decode())
        response.plain(Reply(200, b"fine"))

    def tick(self, now: float) -> None:
        """There is nothing to do."""


async def test_a_failed_request_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    async with (
        asyncio.timeout(PATIENCE),
        task_scope() as scope,
        listening(FailingFront(scope), "127.0.0.1", 0, 1000) as at,
    ):
        port = Port(at.port)
        peer = await port.connect()
        for path in ("/early", "/fine", "/late"):
            peer.send(port.request(method="GET", path=path))
        early, fine, (late, _) = await peer.answer(), await peer.answer(), await peer.head()
        ended = await peer.ended()
        port.close()
        await until(lambda: not at.connections)

    assert (early.status, fine.body, late, ended) == (500, b"fine", 200, True)
    assert b"see its log" in early.body
