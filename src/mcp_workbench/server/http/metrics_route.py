"""The route `/metrics`: who may read it, and its two formats."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from mcp_workbench.server.figures import FiguresReader
from mcp_workbench.server.http.access import NO_TOKEN, Principals
from mcp_workbench.server.metrics import CONTENT_TYPE, metrics_text
from mcp_workbench.transport.http.messages import JSON, HttpRequest, Reply, ResponseWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp_workbench.core.figures import Hosts
    from mcp_workbench.gateway.workbench import Gateway

PATH = b"/metrics"
AT_ONCE = 4  # readers; each takes a thread for a moment
_BUSY = Reply(503, b"too many read the metrics now", b"Retry-After: 5\r\n")
_GET_ONLY = Reply(405, b"GET only", b"Allow: GET\r\n")


class MetricsRoute:
    """Serves the figures to those who bring its token, or to everybody on this machine without one.

    Calls are measured from here on: a counter that began with the first scrape would miss the calls before.
    """

    def __init__(self, gateway: Gateway, token: str, hosts: Callable[[], Hosts]) -> None:
        self._principals = Principals(token)
        self._reader = FiguresReader(gateway, hosts)
        self._reading = 0
        gateway.meter.look()

    def admit(self, request: HttpRequest) -> Reply | None:
        """Check the sender, whose host name and origin were checked before."""
        if len(self._principals) and (
            self._principals.bearer(request.headers.get(b"authorization", b"")) is None
        ):
            return NO_TOKEN
        if request.method != b"GET":
            return _GET_ONLY
        if self._reading >= AT_ONCE:
            return _BUSY
        request.admitted = self
        return None

    async def respond(self, accept: bytes, response: ResponseWriter) -> None:
        reply = _BUSY  # others have come at the same moment
        if self._reading < AT_ONCE:
            self._reading += 1
            try:
                reply = await self._read(accept)
            finally:
                self._reading -= 1
        if not response.over:
            response.plain(reply)

    async def _read(self, accept: bytes) -> Reply:
        figures = await self._reader.read()
        if accept == JSON:  # as `top` asks
            return Reply(200, msgspec.json.encode(figures), kind=JSON)
        # Of many servers the text is long: others go on while it is made.
        return Reply(200, await asyncio.to_thread(metrics_text, figures), kind=CONTENT_TYPE)
