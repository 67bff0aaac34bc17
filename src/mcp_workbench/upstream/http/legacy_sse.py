"""The transport of 2024-11-05: one stream of events for everything, and an address to post to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mcp_workbench.upstream.conversation import Conversation
from mcp_workbench.upstream.http.errors import Failed, leads_away, loss_for
from mcp_workbench.upstream.http.exchange import EVENTS, Asked
from mcp_workbench.upstream.http.requests import Road
from mcp_workbench.wire.addresses import Address, BadAddress
from mcp_workbench.wire.envelope import one_line
from mcp_workbench.wire.http_answer import Broken, Turns
from mcp_workbench.wire.sse import EventReader, EventTooLarge

ENDPOINT_PATIENCE = 5.0  # seconds for the first event, which says where to post
ENDPOINT_BYTES = 8 << 10  # of that address; web servers take request lines of about this length


class OldStream:
    """One connection of the old transport: it is over when its stream is."""

    def __init__(
        self,
        road: Road,
        talk: Conversation,
        flowing: asyncio.Event,
        broke_off: Callable[[str], None],
    ) -> None:
        self.there: Address | None = None
        self.why = "the server has no stream of events there"
        self._road = road
        self._talk = talk
        self._flowing = flowing
        self._broke_off = broke_off
        self._decided = asyncio.Event()

    async def ready(self) -> bool:
        """Did the server say where to post?"""
        try:
            async with asyncio.timeout(ENDPOINT_PATIENCE):
                await self._decided.wait()
        except TimeoutError:
            self.why = "the server opened a stream of events and did not say where to post"
            self._decided.set()
        return self.there is not None

    async def post(self, asked: Asked) -> None:
        """Send a request; its answer comes on the stream."""
        answer = await self._road.post(
            asked.frame, there=self.there, repeatable=asked.method != "tools/call"
        )
        try:
            body = await answer.whole(self._road.keeping.limit)
            if not 200 <= answer.status < 300:
                raise Failed(loss_for(answer, body, self._road.keeping))
            asked.answered = True
        finally:
            answer.close()

    async def run(self) -> None:
        """Read the stream to its end."""
        try:
            await self._read()
            self.why = "the server ended its stream of events"
        except (Broken, Failed) as error:
            self.why = str(error)
        except EventTooLarge:
            limit = self._road.keeping.limit
            self.why = f"a message of it is larger than {limit} bytes (limits.messageBytes)"
        finally:
            self._decided.set()
        if self.there is not None:
            self._broke_off(self.why)

    async def _read(self) -> None:
        answer = await self._road.get()
        try:
            if answer.status != 200 or answer.content_type != EVENTS:
                body = await answer.whole(self._road.keeping.limit)
                raise Failed(loss_for(answer, body, self._road.keeping))
            reader, turns = EventReader(self._road.keeping.limit), Turns()
            while chunk := await answer.read():
                for event in reader.feed(chunk):
                    await turns.next()
                    if event.name == "endpoint" and not self._decided.is_set():
                        self._take_endpoint(event.data)
                    elif event.name == "message":
                        await self._flowing.wait()
                        self._talk.receive(one_line(event.data) + b"\n")
                if self._decided.is_set() and self.there is None:
                    return  # nobody waits any more
        finally:
            answer.close()

    def _take_endpoint(self, data: bytes) -> None:
        if len(data) > ENDPOINT_BYTES:
            raise Broken(
                f"the server named an address to post to of {len(data)} bytes; "
                f"{ENDPOINT_BYTES} are allowed"
            )
        try:
            there = self._road.here.joined(data.decode("utf-8", "replace").strip())
        except BadAddress:
            raise Broken("the server named no usable address to post to") from None
        if not there.same_origin(self._road.here):
            raise leads_away(there.origin)
        self.there = there
        self._decided.set()
