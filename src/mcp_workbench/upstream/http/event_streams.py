"""Event streams: how often they are reopened, and the HTTP+SSE transport of 2024-11-05.

That transport has one event stream for all messages of the server, and an endpoint to post ours to.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable

from mcp_workbench.timing import pause
from mcp_workbench.transport.http.client_response import ExchangeFailed, Yielder
from mcp_workbench.transport.http.sse import EventReader, EventTooLarge
from mcp_workbench.transport.http.urls import BadUrl, Url
from mcp_workbench.transport.json_text import one_line
from mcp_workbench.upstream.conversation import Conversation, RequestFailed
from mcp_workbench.upstream.http.requests import (
    EVENTS,
    OutgoingRequest,
    Requester,
    foreign_redirect,
)
from mcp_workbench.upstream.http.responses import failure_for
from mcp_workbench.upstream.subscriptions import LASTED, LONGEST, SHORTEST

CONNECTS = 6  # streams opened per minute, whatever the server asks for
MINUTE = 60.0
SOONEST = pause(0.25)  # seconds before the rest of a response is requested
ENDPOINT_PATIENCE = 5.0  # seconds for the `endpoint` event of the HTTP+SSE transport
ENDPOINT_BYTES = 8 << 10  # of the endpoint's URL; web servers limit request lines to about this


class Pace:
    """How often streams to one server may be opened."""

    def __init__(self) -> None:
        self.retry: int | None = None  # milliseconds that the server asked for
        self._opened: deque[float] = deque(maxlen=CONNECTS)

    def delay(self, failures: int, now: float) -> float:
        """Seconds until a stream may be reopened."""
        requested = (self.retry or 0) / 1000
        usual = min(max(requested, SHORTEST * 2 ** min(failures, 6)), LONGEST)
        return max(usual, self._rate_limit(now))

    def resumption(self, retry: int | None, now: float) -> float:
        """The same for the rest of a response: a call waits for it, so the server may ask for less."""
        requested = SHORTEST if retry is None else retry / 1000
        return max(min(max(requested, SOONEST), LONGEST), self._rate_limit(now))

    def _rate_limit(self, now: float) -> float:
        return self._opened[0] + MINUTE - now if len(self._opened) == CONNECTS else 0.0

    def opened(self, now: float) -> None:
        self._opened.append(now)

    async def wait_turn(self) -> None:
        """Wait until a stream may be opened, and count it."""
        while (left := self._rate_limit(time.monotonic())) > 0:  # noqa: ASYNC110 - a clock, no event
            await asyncio.sleep(left)
        self.opened(time.monotonic())


async def follow_stream(once: Callable[[], Awaitable[bool]], pace: Pace) -> AsyncGenerator[bool]:
    """Reopen a stream until `once` returns False. Yields before each attempt but the first."""
    failures = 0
    while True:
        await pace.wait_turn()
        opened_at = time.monotonic()
        try:
            if not await once():
                return
        except RequestFailed as failed:
            if not failed.failure.may_have_run and failed.failure.code != "rate_limited":
                return  # refused permanently
        except ExchangeFailed:
            pass
        now = time.monotonic()
        failures = 0 if now - opened_at > LASTED else failures + 1
        await asyncio.sleep(pace.delay(failures - 1, now))
        yield True


class LegacySse:
    """One connection of this transport: it ends with its stream."""

    def __init__(
        self,
        requester: Requester,
        conversation: Conversation,
        flowing: asyncio.Event,
        on_end: Callable[[str], None],
    ) -> None:
        self.endpoint: Url | None = None
        self.reason = "the server has no event stream at this URL"
        self._requester = requester
        self._conversation = conversation
        self._flowing = flowing
        self._on_end = on_end
        self._decided = asyncio.Event()

    async def ready(self) -> bool:
        """Wait for the endpoint; False where the server named none in time."""
        try:
            async with asyncio.timeout(ENDPOINT_PATIENCE):
                await self._decided.wait()
        except TimeoutError:
            self.reason = "the server opened an event stream and named no endpoint to post to"
            self._decided.set()
        return self.endpoint is not None

    async def post(self, request: OutgoingRequest) -> None:
        """Send a request; its response comes on the stream."""
        response = await self._requester.post(
            request.frame, endpoint=self.endpoint, repeatable=request.method != "tools/call"
        )
        try:
            body = await response.whole(self._requester.error_context.limit)
            if not 200 <= response.status < 300:
                raise RequestFailed(failure_for(response, body, self._requester.error_context))
            request.answered = True
        finally:
            response.close()

    async def run(self) -> None:
        """Read the stream to its end."""
        try:
            await self._read()
            self.reason = "the server ended its event stream"
        except (ExchangeFailed, RequestFailed) as error:
            self.reason = str(error)
        except EventTooLarge:
            limit = self._requester.error_context.limit
            self.reason = f"a message of it is larger than {limit} bytes (limits.messageBytes)"
        finally:
            self._decided.set()
        if self.endpoint is not None:
            self._on_end(self.reason)

    async def _read(self) -> None:
        response = await self._requester.get()
        try:
            if response.status != 200 or response.content_type != EVENTS:
                body = await response.whole(self._requester.error_context.limit)
                raise RequestFailed(failure_for(response, body, self._requester.error_context))
            reader, turns = EventReader(self._requester.error_context.limit), Yielder()
            while chunk := await response.read():
                for event in reader.feed(chunk):
                    await turns.next()
                    if event.name == "endpoint" and not self._decided.is_set():
                        self._take_endpoint(event.data)
                    elif event.name == "message":
                        await self._flowing.wait()
                        self._conversation.receive(one_line(event.data) + b"\n")
                        await self._conversation.all_read()  # little waits behind a huge one
                if self._decided.is_set() and self.endpoint is None:
                    return  # `ready` has timed out
        finally:
            response.close()

    def _take_endpoint(self, data: bytes) -> None:
        if len(data) > ENDPOINT_BYTES:
            raise ExchangeFailed(
                f"the server named an address to post to of {len(data)} bytes; "
                f"{ENDPOINT_BYTES} are allowed"
            )
        try:
            endpoint = self._requester.url.joined(data.decode("utf-8", "replace").strip())
        except BadUrl:
            raise ExchangeFailed("the server named no usable address to post to") from None
        if not endpoint.same_origin(self._requester.url):
            raise foreign_redirect(endpoint.origin)
        self.endpoint = endpoint
        self._decided.set()
