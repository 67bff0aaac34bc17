"""HTTP requests to one server: headers, session, redirects within its origin, Retry-After."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from mcp_workbench.config.expand import secrets_of
from mcp_workbench.core.spec import HttpEndpoint, ServerSpec
from mcp_workbench.protocol.revisions import LEGACY, is_modern
from mcp_workbench.transport.http.client import HttpClient
from mcp_workbench.transport.http.client_response import ClientResponse, ExchangeFailed
from mcp_workbench.transport.http.urls import BadUrl, Url, parse_url
from mcp_workbench.upstream.http.errors import (
    LONGEST_WAIT,
    ErrorContext,
    foreign_redirect,
    not_run,
    rate_limited,
    retry_after,
)
from mcp_workbench.upstream.http.headers import entry_headers
from mcp_workbench.upstream.responses import RequestFailed

log = logging.getLogger(__name__)

HOPS = 3  # redirects that one request follows
PERMANENT = (301, 308)
REDIRECTS = (301, 302, 307, 308)
VERSION_HEADER_SINCE = LEGACY.index("2025-06-18")
GOODBYE = 1.0  # seconds for the DELETE of our session

POSTING = b"Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n"
LISTENING = b"Accept: text/event-stream\r\nCache-Control: no-store\r\n"


class Requester:
    """Sends requests to one server, whatever their content."""

    def __init__(
        self, target: HttpEndpoint, spec: ServerSpec, environ: Mapping[str, str], limit: int
    ) -> None:
        self.here = parse_url(target.url)  # may move within its origin
        self.client = HttpClient(self.here, environ)
        self.sse_only = target.transport == "sse"
        self.timeout = spec.timeout
        names = {name.lower() for name, _ in target.headers}
        login = "authorization" in names or bool(self.here.user)
        self.error_context = ErrorContext(secrets_of(spec, environ), login, limit)
        self._entry = entry_headers(target.headers, self.here.user)
        self._session = ""
        self._revision = ""
        self._closed_until = 0.0
        self._build_headers()

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
        """Use this revision and session in every request from here on."""
        self._revision, self._session = revision, session
        self._build_headers()

    def _build_headers(self) -> None:
        shared = self._entry
        legacy = self._revision in LEGACY
        # A server may name anything as its revision: only known ones become a header.
        if self.modern or (legacy and LEGACY.index(self._revision) >= VERSION_HEADER_SINCE):
            shared += b"MCP-Protocol-Version: %b\r\n" % self._revision.encode()
        if self._session:
            shared += b"Mcp-Session-Id: %b\r\n" % self._session.encode("latin-1", "replace")
        self._posting = shared + POSTING
        self._listening = shared + LISTENING
        self._leaving = shared

    async def post(
        self, frame: bytes, more: bytes = b"", *, there: Url | None = None, repeatable: bool
    ) -> ClientResponse:
        """Send a message; returns when the head of the response is there. The caller closes it."""
        return await self._send(
            b"POST", self._posting + more, frame[:-1], there=there, repeatable=repeatable
        )

    async def post_opening(self, frame: bytes, more: bytes = b"") -> ClientResponse:
        """Send an opening request, without session and revision."""
        return await self._send(b"POST", self._entry + POSTING + more, frame[:-1], repeatable=True)

    async def notify(self, frame: bytes, there: Url | None = None) -> None:
        """Send a message without a response; a failure is logged only."""
        try:
            answer = await self.post(frame, there=there, repeatable=True)
            try:
                await answer.whole(self.error_context.limit)
            finally:
                answer.close()
        except (ExchangeFailed, RequestFailed) as error:
            log.info("a message was not accepted: %s", error)

    async def get(self, last_id: str = "") -> ClientResponse:
        """Open the server's event stream, or resume a stream after an event."""
        more = b""
        if last_id:
            more = b"Last-Event-ID: %b\r\n" % last_id.encode("utf-8")
        return await self._send(b"GET", self._listening + more, b"", repeatable=True)

    async def leave(self) -> None:
        """End the session; a server that does not support that is ignored."""
        if not self._session:
            return
        try:
            answer = await self.client.send(
                b"DELETE " + self.here.target.encode(), self._leaving, patience=GOODBYE
            )
            answer.close()
        except ExchangeFailed:
            return

    async def _send(
        self,
        method: bytes,
        headers: bytes,
        body: bytes,
        *,
        there: Url | None = None,
        repeatable: bool,
    ) -> ClientResponse:
        self._require_open()
        address = there or self.here
        for _ in range(HOPS + 1):
            answer = await self.client.send(
                b"%b %b" % (method, address.target.encode()),
                headers,
                body,
                patience=self.timeout + 1,  # the deadline of the call is earlier
                repeatable=repeatable,
            )
            if answer.status not in REDIRECTS:
                self._note_retry_after(answer)
                return answer
            answer.close()
            address = self._redirected(address, answer)
        raise not_run("protocol_error", f"the server redirects more than {HOPS} times")

    def _redirected(self, address: Url, answer: ClientResponse) -> Url:
        try:
            target = address.joined(answer.headers.get("location", ""))
        except BadUrl:
            raise not_run("protocol_error", "the server redirects to no usable address") from None
        if not target.same_origin(self.here):
            raise foreign_redirect(target.origin)
        if answer.status in PERMANENT and address is self.here:
            self.here = target
        return target

    def _require_open(self) -> None:
        left = self._closed_until - time.monotonic()
        if left > 0:
            raise RequestFailed(rate_limited(left, "it said so before"))

    def _note_retry_after(self, answer: ClientResponse) -> None:
        """Send nothing before the time that the server names."""
        if answer.status in (429, 503):
            wait = retry_after(answer.headers, time.time())
            if wait is not None:
                self._closed_until = time.monotonic() + min(wait, LONGEST_WAIT)
