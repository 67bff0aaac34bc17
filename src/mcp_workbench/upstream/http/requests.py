"""Requests to one server over HTTP: its headers, its session, redirects within its origin."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from mcp_workbench.config.expand import secrets_of
from mcp_workbench.core.spec import HttpEndpoint, ServerSpec
from mcp_workbench.era.revision import LEGACY, is_modern
from mcp_workbench.upstream.http.errors import (
    LONGEST_WAIT,
    Failed,
    Keeping,
    leads_away,
    not_run,
    rate_limited,
    retry_after,
)
from mcp_workbench.upstream.http.headers import entry_headers
from mcp_workbench.wire.addresses import Address, BadAddress, read_address
from mcp_workbench.wire.http_answer import Answer, Broken
from mcp_workbench.wire.http_client import HttpClient

log = logging.getLogger(__name__)

HOPS = 3  # redirects that one request follows
LASTING = (301, 308)
REDIRECTS = (301, 302, 307, 308)
VERSION_HEADER_SINCE = LEGACY.index("2025-06-18")
GOODBYE = 1.0  # seconds for a server to hear that we leave

POSTING = b"Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n"
LISTENING = b"Accept: text/event-stream\r\nCache-Control: no-store\r\n"


class Road:
    """How requests reach a server, whatever they say."""

    def __init__(
        self, target: HttpEndpoint, spec: ServerSpec, environ: Mapping[str, str], limit: int
    ) -> None:
        self.here = read_address(target.url)  # may move within its origin
        self.client = HttpClient(self.here, environ)
        self.sse_only = target.transport == "sse"
        self.timeout = spec.timeout
        names = {name.lower() for name, _ in target.headers}
        login = "authorization" in names or bool(self.here.user)
        self.keeping = Keeping(secrets_of(spec, environ), login, limit)
        self._entry = entry_headers(target.headers, self.here.user)
        self._session = ""
        self._revision = ""
        self._closed_until = 0.0
        self._fix()

    @property
    def session(self) -> str:
        return self._session

    @property
    def revision(self) -> str:
        return self._revision

    @property
    def modern(self) -> bool:
        return is_modern(self._revision)

    def speak(self, revision: str, session: str) -> None:
        """What every request says from here on."""
        self._revision, self._session = revision, session
        self._fix()

    def _fix(self) -> None:
        shared = self._entry
        legacy = self._revision in LEGACY
        # A server's word for it may be anything: only what we know becomes a header.
        if self.modern or (legacy and LEGACY.index(self._revision) >= VERSION_HEADER_SINCE):
            shared += b"MCP-Protocol-Version: %b\r\n" % self._revision.encode()
        if self._session:
            shared += b"Mcp-Session-Id: %b\r\n" % self._session.encode("latin-1", "replace")
        self._posting = shared + POSTING
        self._listening = shared + LISTENING
        self._leaving = shared

    async def post(
        self, frame: bytes, more: bytes = b"", *, there: Address | None = None, repeatable: bool
    ) -> Answer:
        """Send a message; the answer's head is there, and the caller closes it."""
        return await self._send(
            b"POST", self._posting + more, frame[:-1], there=there, repeatable=repeatable
        )

    async def introduce(self, frame: bytes, more: bytes = b"") -> Answer:
        """Send an opening, which knows of no session and no revision."""
        return await self._send(b"POST", self._entry + POSTING + more, frame[:-1], repeatable=True)

    async def tell(self, frame: bytes, there: Address | None = None) -> None:
        """Send what is not answered; if it fails, that shows in what depends on it."""
        try:
            answer = await self.post(frame, there=there, repeatable=True)
            try:
                await answer.whole(self.keeping.limit)
            finally:
                answer.close()
        except (Broken, Failed) as error:
            log.info("a message was not taken: %s", error)

    async def get(self, last_id: str = "") -> Answer:
        """Ask for what the server says unasked, or from an event on."""
        more = b""
        if last_id:
            more = b"Last-Event-ID: %b\r\n" % last_id.encode("utf-8")
        return await self._send(b"GET", self._listening + more, b"", repeatable=True)

    async def leave(self) -> None:
        """Tell the server that its session is over; whether it cares is its own business."""
        if not self._session:
            return
        try:
            answer = await self.client.send(
                b"DELETE " + self.here.target.encode(), self._leaving, patience=GOODBYE
            )
            answer.close()
        except Broken:
            return

    async def _send(
        self,
        method: bytes,
        headers: bytes,
        body: bytes,
        *,
        there: Address | None = None,
        repeatable: bool,
    ) -> Answer:
        self._require_welcome()
        address = there or self.here
        for _ in range(HOPS + 1):
            answer = await self.client.send(
                b"%b %b" % (method, address.target.encode()),
                headers,
                body,
                patience=self.timeout + 1,  # the caller's own clock ends sooner
                repeatable=repeatable,
            )
            if answer.status not in REDIRECTS:
                self._heed(answer)
                return answer
            answer.close()
            address = self._led(address, answer)
        raise not_run("protocol_error", f"the server redirects more than {HOPS} times")

    def _led(self, address: Address, answer: Answer) -> Address:
        try:
            onward = address.joined(answer.headers.get("location", ""))
        except BadAddress:
            raise not_run("protocol_error", "the server redirects to no usable address") from None
        if not onward.same_origin(self.here):
            raise leads_away(onward.origin)
        if answer.status in LASTING and address is self.here:
            self.here = onward
        return onward

    def _require_welcome(self) -> None:
        left = self._closed_until - time.monotonic()
        if left > 0:
            raise Failed(rate_limited(left, "it said so before"))

    def _heed(self, answer: Answer) -> None:
        """A server that wants to be left alone is left alone."""
        if answer.status in (429, 503):
            wait = retry_after(answer.headers, time.time())
            if wait is not None:
                self._closed_until = time.monotonic() + min(wait, LONGEST_WAIT)
