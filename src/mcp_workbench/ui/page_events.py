"""Live events: what an open page follows. Nothing runs while no page is open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from mcp_workbench.core.errors import WorkbenchError
from mcp_workbench.core.spec import ServerAddress
from mcp_workbench.timing import pause
from mcp_workbench.transport.http.messages import ResponseWriter
from mcp_workbench.transport.http.sse import COMMENT, event
from mcp_workbench.transport.tasks import TaskScope
from mcp_workbench.ui.page_documents import Documents
from mcp_workbench.ui.page_log import ServerLog
from mcp_workbench.ui.page_numbers import BATCH, RUN, call_rows

EVERY = pause(0.25)  # seconds between two messages of one topic
WHOLE = 4  # of these until figures that always change are sent again
QUIET = 60  # of these until a comment keeps a silent stream alive
STREAMS = 16  # open pages
RETRY = 1000  # milliseconds until a browser connects again
_HEADERS = b"Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"

HOME, SERVER, CALLS = "home", "server", "calls"


def number_of(last: str) -> int:
    """The number of the last call that a page has got; 0 if that was of another process."""
    run, _, number = last.partition(".")
    return int(number) if run == str(RUN) and number.isdecimal() and len(number) < 16 else 0


class PageStream:
    """One open page: what it follows, and what it has got."""

    def __init__(self, response: ResponseWriter, topics: set[str], address: ServerAddress | None):
        self.response = response
        self.topics = topics
        self.address = address if SERVER in topics else None
        self.home = b""
        self.server = b""
        self.line = 0  # of stderr
        self.call = 0
        self.silent = 0

    def send(self, topic: str, document: Any) -> None:
        self.silent = 0
        data = msgspec.json.encode({"topic": topic, "data": document})
        self.response.send(event(data, b"%d.%d" % (RUN, self.call)))


class PageEvents:
    """All open pages of one port."""

    def __init__(self, documents: Documents, log: ServerLog, scope: TaskScope) -> None:
        self._documents = documents
        self._log = log
        self._scope = scope
        self._streams: list[PageStream] = []
        self._running = False
        self._is_closed = False
        self.on_first: Callable[[], None] = lambda: None  # a page is open
        self.on_last: Callable[[], None] = lambda: None  # none is open any more

    def add(self, stream: PageStream) -> bool:
        """Start to follow. Whether there is room."""
        if self._is_closed or len(self._streams) >= STREAMS:
            return False
        if not self._streams:
            self.on_first()
        self._streams.append(stream)
        stream.response.on_gone(lambda: self._remove(stream))
        stream.response.stream(_HEADERS)
        stream.response.send(b"retry: %d\n\n" % RETRY)
        if not self._running:
            self._running = True
            self._scope.start(self._follow(), "page events")
        return True

    def _remove(self, stream: PageStream) -> None:
        if stream in self._streams:
            self._streams.remove(stream)
            if not self._streams:
                self.on_last()

    def close(self) -> None:
        """End all streams, and take no new ones; browsers try again until somebody does."""
        self._is_closed = True
        self._end_streams()

    def _end_streams(self) -> None:
        for stream in tuple(self._streams):
            self._remove(stream)
            stream.response.end()

    async def _follow(self) -> None:
        turn = 0
        try:
            while self._streams:
                await self._send(turn)
                turn += 1
                await asyncio.sleep(EVERY)
        finally:
            self._running = False
            self._end_streams()  # if something has failed: browsers come back

    async def _send(self, turn: int) -> None:
        whole = turn % WHOLE == 0 or self._documents.observe_now()  # what is whole has observed
        new = any(HOME in stream.topics and not stream.home for stream in self._streams)
        home = b""
        if whole or new:
            home = msgspec.json.encode(await self._documents.home())
        for stream in tuple(self._streams):
            if home and HOME in stream.topics and home != stream.home:
                stream.home = home
                stream.send(HOME, msgspec.Raw(home))
            if stream.address is not None:
                await self._send_server(stream, stream.address, whole=whole)
            if CALLS in stream.topics:
                self._send_calls(stream)
            stream.silent += 1
            if stream.silent > QUIET:
                stream.silent = 0
                stream.response.send(COMMENT)

    def _send_calls(self, stream: PageStream) -> None:
        """Send the calls since the last message; of very many, the newest."""
        meter = self._documents.gateway.meter
        if meter.calls == stream.call:
            return
        before, stream.call = stream.call, meter.calls
        stream.send(CALLS, call_rows(meter.since(before, BATCH), meter.calls))

    async def _send_server(
        self, stream: PageStream, address: ServerAddress, *, whole: bool
    ) -> None:
        has_lines = self._log.number != stream.line
        if not (whole or has_lines or not stream.server):
            return
        try:
            page = await self._documents.server(address)
        except WorkbenchError:  # it was removed from the configuration
            return
        stream.line = self._log.number
        data = msgspec.json.encode(page)
        if data != stream.server:
            stream.server = data
            stream.send(SERVER, msgspec.Raw(data))
