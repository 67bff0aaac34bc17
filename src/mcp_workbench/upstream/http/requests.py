"""Requests to a server behind a URL: their headers, session and redirects, and Retry-After.

`link` decides what to send, `Requester` sends it, and `responses` reads what comes back.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from mcp_workbench.config.expand import secrets_of
from mcp_workbench.config.state_home import has_credentials
from mcp_workbench.core.raw_json import Inside
from mcp_workbench.core.spec import HttpEndpoint, Pairs, ServerSpec
from mcp_workbench.protocol.handshake import IMPLEMENTATION, LEGACY, NAMED_BY, is_modern
from mcp_workbench.transport.http.client import HttpClient
from mcp_workbench.transport.http.client_response import ClientResponse, ExchangeFailed
from mcp_workbench.transport.http.messages import encode_value
from mcp_workbench.transport.http.urls import BadUrl, Url, parse_url
from mcp_workbench.upstream.conversation import Failure, RequestFailed

if TYPE_CHECKING:
    from mcp_workbench.transport.tasks import TaskScope
    from mcp_workbench.upstream.oauth.authorization import Authorization

log = logging.getLogger(__name__)

HOPS = 3  # redirects that one request follows
PERMANENT = (301, 308)
REDIRECTS = (301, 302, 307, 308)
LOGIN = (401, 403)
MOST_LOGINS = 2  # other tokens that one request is tried with
VERSION_HEADER_SINCE = LEGACY.index("2025-06-18")
GOODBYE = 1.0  # seconds for the DELETE of our session
LONGEST_WAIT = 3600  # seconds; a longer Retry-After is cut

EVENTS = "text/event-stream"
POSTING = b"Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n"
LISTENING = b"Accept: text/event-stream\r\nCache-Control: no-store\r\n"

# Reserved: framing, and what the protocol derives from the body of a request.
RESERVED = frozenset(
    [
        "accept",
        "content-length",
        "content-type",
        "connection",
        "host",
        "transfer-encoding",
        "te",
        "upgrade",
        "mcp-protocol-version",
        "mcp-session-id",
        "mcp-method",
        "mcp-name",
        "last-event-id",
    ]
)
HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")

Path = tuple[str, ...]
ParamHeaders = dict[Path, str]  # the path of an argument, and the header that repeats its value


class BadHeader(ValueError):
    """A header of the entry that can't be sent."""


class ErrorContext(msgspec.Struct):
    """What messages about failures need to know of a server: secrets to mask, login, size limit."""

    secrets: dict[str, str] = {}
    has_login: bool = False  # the entry has an `Authorization` header
    limit: int = 0
    address: str = ""
    signed_in: bool = False
    sign_in_ended: str = ""  # why a sign-in is of no use any more
    principal: str = ""  # whose sign-in it is, if not the local user's

    def __repr__(self) -> str:
        return "ErrorContext()"


class OutgoingRequest:
    """A request in flight."""

    answered = False
    refused = False  # by a permanent error
    is_listen = False  # a stream that is reopened when it ends
    again = False  # this is the second attempt
    quiet = False  # its response is for the link, not for the conversation
    session = ""  # that its response opened
    cursor = ""  # of the next page
    response: ClientResponse | None = None  # on its way, if the request was sent at once,
    sent_session = ""  # in this session
    task: asyncio.Task[None] | None = None

    def __init__(self, number: int, method: str, frame: bytes, params: msgspec.Raw) -> None:
        self.number = number
        self.method = method
        self.frame = frame
        self.params = params

    def stop(self) -> None:
        """Nobody waits for its response any more."""
        if self.task is not None:
            self.task.cancel()
        if self.response is not None:  # no task has taken it over
            self.response.close()


class Requester:
    """Sends requests to one server: the headers of every request, sign-in, redirects, Retry-After."""

    scope: TaskScope | None = None  # for work in the background
    _authorization: Authorization | None = None

    def __init__(
        self, target: HttpEndpoint, spec: ServerSpec, environ: Mapping[str, str], limit: int
    ) -> None:
        self.challenge = ""  # of the last response that asked for a login
        self._target = target
        self._environ = environ
        self._principal = spec.principal
        self.url = parse_url(target.url)  # a permanent redirect changes it, within its origin
        self.client = HttpClient(self.url, environ)
        self.sse_only = target.transport == "sse"
        self.timeout = spec.timeout
        names = {name.lower() for name, _ in target.headers}
        login = "authorization" in names or bool(self.url.user)
        if login and spec.scope == "principal":
            raise BadHeader(
                "its entry has credentials that all people would share, and "
                '"scope": "principal" gives each their own: remove one of the two'
            )
        self.error_context = ErrorContext(
            secrets_of(spec, environ), login, limit, str(spec.address), principal=spec.principal
        )
        self._entry = entry_headers(target.headers, self.url.user)
        self._session = ""
        self._revision = ""
        self._closed_until = 0.0
        self._build_headers()
        if not login and (target.auth.grant != "authorization_code" or has_credentials(environ)):
            self._load_authorization()

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
        self._post_head = self.client.head(b"POST " + self.url.target.encode(), self._posting)
        self._listening = shared + LISTENING
        self._leaving = shared

    def post_now(self, frame: bytes, more: bytes) -> ClientResponse | None:
        """Send a message on a connection that is free now; None, and nothing done, if it has to wait.

        The response, which the caller closes, has not arrived yet: `post` waits for it.
        """
        if self._closed_until > time.monotonic():
            return None
        authorization = self._authorization
        if authorization is None:
            return self.client.send_now(self._post_head + more, frame[:-1])
        if not authorization.is_fresh:
            return None
        return self.client.send_now(self._post_head + authorization.line + more, frame[:-1])

    async def post(
        self,
        frame: bytes,
        more: bytes = b"",
        *,
        endpoint: Url | None = None,
        repeatable: bool,
        sent: ClientResponse | None = None,
    ) -> ClientResponse:
        """Send a message, and return the response as soon as its head has arrived. The caller closes it.

        `sent` is the response to come if the message was sent before.
        """
        return await self._send(
            b"POST",
            self._posting + more,
            frame[:-1],
            endpoint=endpoint,
            repeatable=repeatable,
            sent=sent,
        )

    async def post_opening(self, frame: bytes, more: bytes = b"") -> ClientResponse:
        """Send an opening request, without session and revision."""
        return await self._send(b"POST", self._entry + POSTING + more, frame[:-1], repeatable=True)

    async def notify(self, frame: bytes, endpoint: Url | None = None) -> None:
        """Send a message without a response; a failure is logged only."""
        try:
            response = await self.post(frame, endpoint=endpoint, repeatable=True)
            try:
                await response.whole(self.error_context.limit)
            finally:
                response.close()
        except (ExchangeFailed, RequestFailed) as error:
            log.info("a message was not accepted: %s", error)

    async def get(self, last_id: str = "") -> ClientResponse:
        """Open the server's event stream, or resume a stream after an event."""
        more = b""
        if last_id:
            more = b"Last-Event-ID: %b\r\n" % last_id.encode("utf-8")
        return await self._send(b"GET", self._listening + more, b"", repeatable=True)

    async def get_status(self) -> int:
        """The status that a GET has here. A redirect is not followed: it may be meant for browsers."""
        target = b"GET " + self.url.target.encode()
        response = await self.client.send(target, self._listening, repeatable=True)
        try:
            if response.content_type != EVENTS:  # the connection is kept if the body is read
                await response.whole(self.error_context.limit)
        finally:
            response.close()
        return response.status

    async def leave(self) -> None:
        """End the session; a server that does not support that is ignored."""
        if not self._session:
            return
        try:
            response = await self.client.send(
                b"DELETE " + self.url.target.encode(), self._leaving + self._login, patience=GOODBYE
            )
            response.close()
        except ExchangeFailed:
            return

    async def _send(  # noqa: PLR0913 - what one request is made of
        self,
        method: bytes,
        headers: bytes,
        body: bytes,
        *,
        endpoint: Url | None = None,
        repeatable: bool,
        sent: ClientResponse | None = None,
    ) -> ClientResponse:
        if sent is None:
            self._require_open()
        address = endpoint or self.url
        patience = self.timeout + 1  # the deadline of the call is earlier
        hops = logins = 0
        while hops <= HOPS:
            if sent is not None:
                line, response, sent = None, await self.client.answered(sent, patience), None
            else:
                line = await self._authorize()
                response = await self.client.send(
                    b"%b %b" % (method, address.target.encode()),
                    headers + line,
                    body,
                    patience=patience,
                    repeatable=repeatable,
                )
            if (
                response.status in LOGIN
                and logins < MOST_LOGINS
                and await self._renew(response, line)
            ):
                logins += 1
                response.close()
                continue
            if response.status not in REDIRECTS:
                self._note_retry_after(response)
                if logins and response.status < 400 and self._authorization is not None:
                    await self._authorization.accepted(line)
                return response
            response.close()
            address = self._redirected(address, response)
            hops += 1
        raise not_run("protocol_error", f"the server redirects more than {HOPS} times")

    # Sign-in

    @property
    def _login(self) -> bytes:
        return b"" if self._authorization is None else self._authorization.line

    def _load_authorization(self) -> Authorization:
        # Loaded for users who have signed in to a server, and for servers that want it.
        from mcp_workbench.upstream.oauth.authorization import Authorization

        self._authorization = Authorization(
            self._target, self._environ, self.error_context.secrets, self._principal
        )
        return self._authorization

    async def _authorize(self) -> bytes:
        """The header for the next request. Raises RequestFailed where a new token can't be had now."""
        authorization = self._authorization
        if authorization is None:
            return b""
        if not authorization.is_fresh:
            from mcp_workbench.protocol.oauth import SignInFailed

            try:
                await authorization.prepare(self.scope)
            except SignInFailed as error:
                raise not_run(
                    "connect_failed", f"its sign-in can't be refreshed: {error}"
                ) from None
        return authorization.line

    async def _renew(self, response: ClientResponse, line: bytes | None) -> bool:
        """The server wants a login; is there another token to try?"""
        self.challenge = response.headers.get("www-authenticate", "")
        context = self.error_context
        if context.has_login:
            return False
        from mcp_workbench.protocol.oauth import SignInFailed, read_challenge

        authorization = self._authorization or self._load_authorization()
        challenge = read_challenge(self.challenge)
        try:
            renewed = await authorization.refused(response.status, challenge, line)
        except SignInFailed as error:
            response.close()
            raise not_run("connect_failed", f"its sign-in can't be refreshed: {error}") from None
        context.signed_in, context.sign_in_ended = authorization.signed_in, authorization.problem
        return renewed

    def _redirected(self, address: Url, response: ClientResponse) -> Url:
        try:
            target = address.joined(response.headers.get("location", ""))
        except BadUrl:
            raise not_run("protocol_error", "the server redirects to no usable address") from None
        if not target.same_origin(self.url):
            raise foreign_redirect(target.origin)
        if response.status in PERMANENT and address is self.url:
            self.url = target
            self._build_headers()
        return target

    def _require_open(self) -> None:
        left = self._closed_until - time.monotonic()
        if left > 0:
            raise RequestFailed(rate_limited(left, "Retry-After of an earlier response"))

    def _note_retry_after(self, response: ClientResponse) -> None:
        """Send nothing before the time that the server names."""
        if response.status in (429, 503):
            wait = retry_after(response.headers, time.time())
            if wait is not None:
                self._closed_until = time.monotonic() + min(wait, LONGEST_WAIT)


# Failures of a request that the server did not run


def not_run(code: str, reason: str) -> RequestFailed:
    return RequestFailed(Failure(code, reason, may_have_run=False))


def foreign_redirect(origin: str) -> RequestFailed:
    return not_run(
        "protocol_error",
        f"the server redirects to another origin, {origin}, which is not followed: "
        "write that address in 'url' if it is the right one",
    )


def rate_limited(wait: float | None, why: str) -> Failure:
    """The server asks us to wait."""
    reason = f"the server takes no requests now ({why}){_when(wait)}"
    return Failure("rate_limited", reason, may_have_run=False, retry_after=wait)


def without_time(failure: Failure) -> Failure:
    """The same without the seconds, for a reason that is shown later."""
    reason = failure.reason
    if failure.retry_after is not None:
        reason = reason.removesuffix(_when(failure.retry_after))
    return msgspec.structs.replace(failure, reason=reason)


def _when(wait: float | None) -> str:
    return "; try again later" if wait is None else f"; try again in {max(math.ceil(wait), 1)} s"


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """The seconds of a Retry-After header, given as a number or as a date."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():  # a superscript is a digit too, but no number
        return float(min(int(text[:9]), LONGEST_WAIT))
    if not text:
        return None
    from email.utils import parsedate_to_datetime  # heavy and rarely needed

    try:
        until = parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None
    return min(max(until - now, 0.0), LONGEST_WAIT)


# Headers


def entry_headers(pairs: Pairs, user: str = "") -> bytes:
    """The headers of a server's entry, sent with every request. Raises BadHeader."""
    lines: list[bytes] = []
    names = {name.lower() for name, _ in pairs}
    for name, value in pairs:
        if not HEADER_NAME.fullmatch(name):
            raise BadHeader(f"{name!r} can't be the name of a header: correct 'headers'")
        if name.lower() not in RESERVED:
            try:
                lines.append(f"{name}: {value.strip()}\r\n".encode("latin-1"))
            except UnicodeEncodeError:
                raise BadHeader(
                    f"the header {name!r} has characters that no header can carry"
                ) from None
    if user and "authorization" not in names:
        lines.append(b"Authorization: Basic %b\r\n" % b64encode(user.encode()))
    if "user-agent" not in names:
        lines.append(
            f"User-Agent: {IMPLEMENTATION['name']}/{IMPLEMENTATION['version']}\r\n".encode()
        )
    if "accept-encoding" not in names:
        lines.append(b"Accept-Encoding: gzip, deflate\r\n")
    return b"".join(lines)


class _Named(msgspec.Struct, frozen=True):
    name: str = ""
    uri: str = ""
    taskId: str = ""  # noqa: N815 - the wire's word
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


def modern_headers(
    method: str, params: msgspec.Raw, param_headers: dict[str, ParamHeaders]
) -> bytes:
    """`Mcp-Method`, `Mcp-Name` and `Mcp-Param-*` of a request, which repeat parts of its body."""
    lines = [f"Mcp-Method: {encode_value(method)}\r\n"]
    key = NAMED_BY.get(method)
    if key is not None:
        named = msgspec.json.decode(params, type=_Named)
        name = getattr(named, key)
        lines.append(f"Mcp-Name: {encode_value(name)}\r\n")
        if method == "tools/call" and name in param_headers:
            lines += _param_headers(named.arguments, param_headers[name])
    return "".join(lines).encode("ascii")


def _param_headers(arguments: msgspec.Raw, headers: ParamHeaders) -> Iterator[str]:
    inside = Inside(arguments)
    for path, header in headers.items():
        value = _scalar(inside.at(path))
        if isinstance(value, bool):
            yield f"Mcp-Param-{header}: {'true' if value else 'false'}\r\n"
        elif isinstance(value, str | int):
            yield f"Mcp-Param-{header}: {encode_value(str(value))}\r\n"


def _scalar(raw: bytes) -> Any:
    """A string, number or boolean; None for what no header repeats."""
    if raw[:1] in (b"", b"{", b"["):
        return None
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError:  # a number too large
        return None
