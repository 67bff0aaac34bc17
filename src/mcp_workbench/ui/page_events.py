"""Live events: what an open page follows. Nothing runs while no page is open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
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

# A turn finds the processor's caches full of something else, so there are few of them: with many calls two a second,
# with none one. Something that happens after a silence does not wait for the next one.
EVERY = pause(0.5)  # seconds between two turns, at least
SOON = pause(0.1)  # seconds until something new is sent after a silence
LOOK = pause(
    1.0
)  # seconds until states are looked at again if nothing is new; between two first views
REST = 5  # turns without anything new until the first view is made nevertheless: it has a clock
QUIET = 15  # turns until a comment keeps a silent stream alive
STREAMS = 16  # open pages
RETRY = 1000  # milliseconds until a browser connects again
_HEADERS = b"Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"

HOME, SERVER, CALLS = "home", "server", "calls"


def _wake(waking: asyncio.Future[None]) -> None:
    if not waking.done():
        waking.set_result(None)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


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
        self._loop: asyncio.AbstractEventLoop | None = None
        self._has_news = False
        self._waking: asyncio.Future[None] | None = None  # ends the pause between two turns
        self._timer: asyncio.TimerHandle | None = None  # that does
        self._earliest = 0.0  # when it may
        self._home_due = 0.0  # when the first view may be made again
        self._home_calls: int = -1  # that were measured when it was made last
        self._shown: object = None  # what it showed without calls
        self._rested = 0  # turns since then
        self._is_whole = True  # this turn sends figures that always change
        self.on_first: Callable[[], None] = lambda: None  # a page is open
        self.on_last: Callable[[], None] = lambda: None  # none is open any more

    @property
    def is_running(self) -> bool:
        return self._running

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
        self._earliest = 0.0  # it has nothing yet
        self.news()
        if not self._running:
            self._running = True
            self._scope.start(self._follow(), "page events")
        return True

    def _remove(self, stream: PageStream) -> None:
        if stream in self._streams:
            self._streams.remove(stream)
            if not self._streams:
                self.on_last()
                if self._waking is not None:
                    _wake(self._waking)

    def close(self) -> None:
        """End all streams, and take no new ones; browsers try again until somebody does."""
        self._is_closed = True
        self._end_streams()

    def _end_streams(self) -> None:
        for stream in tuple(self._streams):
            self._remove(stream)
            stream.response.end()

    async def _follow(self) -> None:
        unlisten = self._documents.gateway.meter.on_news(self.news)
        self._loop = asyncio.get_running_loop()
        self._log.on_line = self._line_written
        try:
            while self._streams:
                self._has_news = False
                await self._send()
                await self._pause(self._loop)
        finally:
            unlisten()
            self._running = False
            self._end_streams()  # if something has failed: browsers come back

    # When

    def news(self) -> None:
        """Something has happened: the next turn comes soon."""
        if self._has_news:
            return
        self._has_news = True
        if self._waking is not None and self._timer is not None and self._loop is not None:
            self._timer.cancel()
            at = max(self._earliest, self._loop.time() + SOON)
            self._timer = self._loop.call_at(at, _wake, self._waking)

    def _line_written(self) -> None:
        if not self._has_news and self._streams and _running_loop() is self._loop:
            self.news()

    async def _pause(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._streams:
            return
        self._waking = waking = loop.create_future()
        now = loop.time()
        self._earliest = now + EVERY
        self._timer = loop.call_at(now + (EVERY if self._has_news else LOOK), _wake, waking)
        try:
            await waking
        finally:
            self._timer.cancel()
            self._waking = self._timer = None

    # What

    async def _send(self) -> None:
        home = await self._new_home()
        for stream in tuple(self._streams):
            if home and HOME in stream.topics and home != stream.home:
                stream.home = home
                stream.send(HOME, msgspec.Raw(home))
            if stream.address is not None:
                await self._send_server(stream, stream.address, whole=self._is_whole)
            if CALLS in stream.topics:
                self._send_calls(stream)
            stream.silent += 1
            if stream.silent > QUIET:
                stream.silent = 0
                stream.response.send(COMMENT)

    async def _new_home(self) -> bytes:
        """The first view, if it is time for it and something has changed; otherwise nothing."""
        calls, now = self._documents.gateway.meter.calls, monotonic()
        new = any(HOME in stream.topics and not stream.home for stream in self._streams)
        self._is_whole = whole = now >= self._home_due
        if not new and not (
            whole and calls != self._home_calls
        ):  # otherwise it is made, and observes
            changed, shown = self._documents.observe()
            self._rested += 1
            if not changed and not (whole and (shown != self._shown or self._rested >= REST)):
                return b""
            self._shown = shown
            self._is_whole = True
        self._home_due, self._home_calls, self._rested = now + 0.9 * LOOK, calls, 0
        return msgspec.json.encode(await self._documents.home())

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
