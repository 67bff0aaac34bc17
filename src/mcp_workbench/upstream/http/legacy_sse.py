"""The HTTP+SSE transport of 2024-11-05: one event stream for all messages, and an endpoint to post to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mcp_workbench.transport.http.client_response import ExchangeFailed, Yielder
from mcp_workbench.transport.http.sse import EventReader, EventTooLarge
from mcp_workbench.transport.http.urls import BadUrl, Url
from mcp_workbench.transport.json_text import one_line
from mcp_workbench.upstream.conversation import Conversation
from mcp_workbench.upstream.http.errors import failure_for, foreign_redirect
from mcp_workbench.upstream.http.exchange import EVENTS, OutgoingRequest
from mcp_workbench.upstream.http.requests import Requester
from mcp_workbench.upstream.responses import RequestFailed

ENDPOINT_PATIENCE = 5.0  # seconds for the `endpoint` event
ENDPOINT_BYTES = 8 << 10  # of the endpoint's URL; web servers limit request lines to about this


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
        self.reason = "the server has no stream of events there"
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
            self.reason = "the server opened a stream of events and did not say where to post"
            self._decided.set()
        return self.endpoint is not None

    async def post(self, request: OutgoingRequest) -> None:
        """Send a request; its response comes on the stream."""
        answer = await self._requester.post(
            request.frame, there=self.endpoint, repeatable=request.method != "tools/call"
        )
        try:
            body = await answer.whole(self._requester.error_context.limit)
            if not 200 <= answer.status < 300:
                raise RequestFailed(failure_for(answer, body, self._requester.error_context))
            request.answered = True
        finally:
            answer.close()

    async def run(self) -> None:
        """Read the stream to its end."""
        try:
            await self._read()
            self.reason = "the server ended its stream of events"
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
        answer = await self._requester.get()
        try:
            if answer.status != 200 or answer.content_type != EVENTS:
                body = await answer.whole(self._requester.error_context.limit)
                raise RequestFailed(failure_for(answer, body, self._requester.error_context))
            reader, turns = EventReader(self._requester.error_context.limit), Yielder()
            while chunk := await answer.read():
                for event in reader.feed(chunk):
                    await turns.next()
                    if event.name == "endpoint" and not self._decided.is_set():
                        self._take_endpoint(event.data)
                    elif event.name == "message":
                        await self._flowing.wait()
                        self._conversation.receive(one_line(event.data) + b"\n")
                if self._decided.is_set() and self.endpoint is None:
                    return  # `ready` has timed out
        finally:
            answer.close()

    def _take_endpoint(self, data: bytes) -> None:
        if len(data) > ENDPOINT_BYTES:
            raise ExchangeFailed(
                f"the server named an address to post to of {len(data)} bytes; "
                f"{ENDPOINT_BYTES} are allowed"
            )
        try:
            endpoint = self._requester.here.joined(data.decode("utf-8", "replace").strip())
        except BadUrl:
            raise ExchangeFailed("the server named no usable address to post to") from None
        if not endpoint.same_origin(self._requester.here):
            raise foreign_redirect(endpoint.origin)
        self.endpoint = endpoint
        self._decided.set()
