"""Pages on the HTTP port on which people sign in for themselves (`"scope": "principal"`).

    GET  /sign-in/ID         who is about to be connected to what, and a form
    POST /sign-in/ID         the proof to be that person; the page then goes on to the authorization server
    GET  /sign-in/callback   the browser comes back; it must be the one in which the proof was given

Anybody can open these paths. Only IDs that are open lead to anything, their number is limited, and nothing is
read that is longer than a form. docs/decisions/0016 says what the pages protect against.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
from collections.abc import Callable
from hashlib import sha256
from html import escape
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from mcp_workbench.core.spec import NOBODY
from mcp_workbench.gateway.sign_ins import CALLBACK, PAGES, SignInLink
from mcp_workbench.protocol.oauth import SignInFailed, same
from mcp_workbench.server.http.access import WRONG_HOST, Access
from mcp_workbench.timing import deadline
from mcp_workbench.transport.http.messages import Reply

if TYPE_CHECKING:
    from mcp_workbench.gateway.sign_ins import OpenSignIn
    from mcp_workbench.gateway.workbench import Gateway
    from mcp_workbench.transport.http.messages import HttpRequest, ResponseWriter

LARGEST = 4096  # bytes of a form, and of a query
LASTS = 600  # seconds for which a browser keeps its cookie: as long as a link is good
EXCHANGE = deadline(60.0)  # seconds until the authorization server has given the tokens
VISITORS = 64  # requests for pages that are being answered
FORM = b"application/x-www-form-urlencoded"
HTML = b"text/html; charset=utf-8"
COOKIE = "workbench-sign-in"
SECURE_COOKIE = "__Host-" + COOKIE  # no other host name can set it

_COOKIE_VALUE = re.compile(r"[A-Za-z0-9_-]{43}")
_HEADERS = (
    b"Cache-Control: no-store\r\n"
    # Not `no-referrer`: with that, browsers hide the origin of the form from us, too.
    b"Referrer-Policy: same-origin\r\n"
    b"X-Content-Type-Options: nosniff\r\n"
    b"X-Frame-Options: DENY\r\n"
    b"Cross-Origin-Opener-Policy: same-origin\r\n"
    b"Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; "
    b"base-uri 'none'; frame-ancestors 'none'\r\n"
)
_PAGE = (
    "<!doctype html><html lang=en><meta charset=utf-8>"
    "<meta name=viewport content='width=device-width'>{head}<title>MCP Workbench</title>"
    "<body style='font:1.1em system-ui;max-width:36em;margin:4em auto;padding:0 1em'>"
    "<h1>{title}</h1>{body}"
)
_ASK = (
    "<p><b>{principal}</b> of this workbench will be able to use the server <b>{address}</b> with the account that you "
    "sign in with at <b>{issuer}</b>.</p>"
    "<p>Go on only if you are {principal}, and asked for this yourself a moment ago. If somebody sent you this "
    "address{or_code}, close this page: they would get access to your account.</p>"
    "<form method=post action='{action}' autocomplete=off><input type=hidden name=form value='{form}'>"
    "<p><label>{label}<br><input name=proof type={kind} required autofocus maxlength=1000 "
    "style='font:inherit;width:100%'></label></p>"
    "<p><button style='font:inherit'>Connect {principal}</button></p></form>"
)
_GO_ON = (
    "<p>Next you sign in at <b>{issuer}</b>.</p><p><a rel=noreferrer href='{url}'>Go on</a></p>"
)


class VisitRefused(Exception):
    """What a visitor is told, with this status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


GONE = (
    404,
    "This address was used, has expired, or never existed. Call the tool again: your program then shows a new one.",
)
BUSY = (503, "Too many people sign in at this moment. Try again.")
FOREIGN = (403, "The form was sent from another site, or without cookies.")
OTHER_BROWSER = (403, "This sign-in was begun in another browser, or by somebody else.")


class SignInPages:
    """The pages of one port."""

    def __init__(self, gateway: Gateway, access: Callable[[], Access]) -> None:
        self._gateway = gateway
        self._access = access
        self._key = secrets.token_bytes(32)  # of the forms
        self._visitors = 0

    # Before the body is read

    def admit(self, request: HttpRequest) -> Reply | None:
        """Refuse what can't be a visit of a browser to one of the pages."""
        access = self._access()
        if access.is_foreign_host(request):
            return WRONG_HOST
        method, target = request.method, request.target
        callback = request.path() == CALLBACK.encode()
        if method not in ((b"GET",) if callback else (b"GET", b"POST")):
            allowed = b"Allow: GET\r\n" if callback else b"Allow: GET, POST\r\n"
            return Reply(405, b"GET or POST", allowed)
        length = request.headers.get(b"content-length", b"0" if method == b"GET" else b"")
        if not length.isdigit():
            return Reply(411, b"the length of the form is needed")
        if int(length) > LARGEST or len(target) > LARGEST:
            return Reply(413, b"too long")
        request.admitted = self
        request.from_stranger = True
        return None

    # Visits

    async def visit(self, request: HttpRequest, response: ResponseWriter) -> None:
        """Answer a browser."""
        self._visitors += 1
        try:
            reply = await self._answer(request)
        except VisitRefused as refusal:
            reply = _page(refusal.status, "Not connected", f"<p>{escape(str(refusal))}</p>")
        finally:
            self._visitors -= 1
        response.plain(reply)

    async def _answer(self, request: HttpRequest) -> Reply:
        if self._visitors > VISITORS:
            raise VisitRefused(*BUSY)
        path = request.path().decode("latin-1")
        if path == CALLBACK:
            return await self._come_back(request)
        opened = self._find(lambda link: same(path.removeprefix(PAGES), link.id))
        link = _link_of(opened)
        if link.used:
            raise VisitRefused(*GONE)
        if request.method == b"GET":
            return self._ask(request, opened, link)
        return self._prove(request, opened, link)

    def _find(self, matches: Callable[[SignInLink], bool]) -> OpenSignIn:
        opened = self._gateway.sign_ins.linked(matches)
        if opened is None:
            raise VisitRefused(*GONE)
        return opened

    def _ask(self, request: HttpRequest, opened: OpenSignIn, link: SignInLink) -> Reply:
        cookie = _cookie(request, link) or secrets.token_urlsafe(32)
        label = (
            "The code that your program shows"
            if link.by_code
            else "Your token of this workbench, to show who you are"
        )
        body = _ASK.format(
            principal=escape(link.principal),
            address=escape(str(link.address)),
            issuer=escape(opened.issuer),
            or_code=" or a code" if link.by_code else "",
            action=escape(PAGES + link.id),
            form=self._form(link, cookie),
            label=label,
            kind="text" if link.by_code else "password",
        )
        return _page(200, f"Connect {escape(link.principal)}?", body, _set_cookie(link, cookie))

    def _prove(self, request: HttpRequest, opened: OpenSignIn, link: SignInLink) -> Reply:
        fields = _fields(request)
        cookie = _cookie(request, link)
        sent_here = cookie and same(fields.get("form", ""), self._form(link, cookie))
        if not sent_here or _is_cross_site(request, link):
            raise VisitRefused(*FOREIGN)
        if not self._is_proved(link, fields.get("proof", "")):
            link.tries -= 1
            if link.tries <= 0:
                opened.give_up(
                    SignInFailed("WB-AUTH-015", "somebody failed to prove to be this person")
                )
            who = "This address belongs to somebody else" if not link.by_code else "Wrong code"
            raise VisitRefused(403, f"{who}: nothing was connected.")
        link.used = True
        link.browser = _digest(cookie)
        url = escape(opened.url)
        body = _GO_ON.format(issuer=escape(opened.issuer), url=url)
        # Not a redirect of the form: browsers apply `form-action` to that, and to all that follow it.
        head = f"<meta http-equiv=refresh content='0;url={url}'>"
        return _page(200, "Sign in", body, head=head)

    def _is_proved(self, link: SignInLink, proof: str) -> bool:
        if link.by_code:
            return link.is_code(proof)
        holder = self._access().holder(proof.strip())
        return bool(holder) and holder != NOBODY and same(holder, link.principal)

    async def _come_back(self, request: HttpRequest) -> Reply:
        query = request.target.partition(b"?")[2].decode("latin-1")
        states = parse_qs(query, max_num_fields=50).get("state", [""])
        opened = self._find(lambda link: bool(link.state) and same(states[0], link.state))
        link = _link_of(opened)
        cookie = _cookie(request, link)
        if not link.browser or not cookie or not hmac.compare_digest(_digest(cookie), link.browser):
            raise VisitRefused(*OTHER_BROWSER)
        link.browser = b""  # once only
        try:
            visit = link.visits.add(query)
        except asyncio.QueueFull:
            raise VisitRefused(*BUSY) from None
        try:
            async with asyncio.timeout(EXCHANGE):
                text, ok = await visit.page
        except TimeoutError:
            raise VisitRefused(504, "The sign-in was not completed. Call the tool again.") from None
        more = (
            f" {link.principal} can use {link.address} now. You can close this page." if ok else ""
        )
        title = "Connected" if ok else "Not connected"
        return _page(200 if ok else 400, title, f"<p>{escape(text + more)}</p>")

    def _form(self, link: SignInLink, cookie: str) -> str:
        """Binds a form to the browser that got it."""
        return hmac.new(self._key, f"{link.id} {cookie}".encode(), sha256).hexdigest()


def _link_of(opened: OpenSignIn) -> SignInLink:
    if opened.link is None:
        raise VisitRefused(*GONE)
    return opened.link


def _fields(request: HttpRequest) -> dict[str, str]:
    kind = request.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != FORM or len(request.body) > LARGEST:
        raise VisitRefused(*FOREIGN)
    try:
        values = parse_qs(request.body.decode("utf-8", "replace"), max_num_fields=10)
    except ValueError:
        raise VisitRefused(*FOREIGN) from None
    return {name: texts[0] for name, texts in values.items()}


def _is_cross_site(request: HttpRequest, link: SignInLink) -> bool:
    """Do the headers of a browser say that another site sent the form?"""
    origin = request.headers.get(b"origin", link.origin.encode()).decode("latin-1").lower()
    site = request.headers.get(b"sec-fetch-site", b"same-origin")
    return origin != link.origin or site not in (b"same-origin", b"none")


# Cookies


def _is_secure(link: SignInLink) -> bool:
    return urlsplit(link.origin).scheme == "https"


def _set_cookie(link: SignInLink, value: str) -> bytes:
    secure = _is_secure(link)
    name, more = (SECURE_COOKIE, "; Path=/; Secure") if secure else (COOKIE, f"; Path={PAGES}")
    # Lax: it must come along when the authorization server sends the browser back, and with no form of another site.
    line = f"Set-Cookie: {name}={value}; Max-Age={LASTS}; HttpOnly; SameSite=Lax{more}\r\n"
    return line.encode()


def _cookie(request: HttpRequest, link: SignInLink) -> str:
    """The value of our cookie; empty if there is none, or more than one."""
    name = SECURE_COOKIE if _is_secure(link) else COOKIE
    pairs = request.headers.get(b"cookie", b"").decode("latin-1").split(";")
    values = [
        value for key, _, value in (pair.strip().partition("=") for pair in pairs) if key == name
    ]
    return values[0] if len(values) == 1 and _COOKIE_VALUE.fullmatch(values[0]) else ""


def _digest(cookie: str) -> bytes:
    return sha256(cookie.encode()).digest()


def _page(status: int, title: str, body: str, headers: bytes = b"", *, head: str = "") -> Reply:
    text = _PAGE.format(head=head, title=title, body=body)
    return Reply(status, text.encode(), _HEADERS + headers, HTML)
