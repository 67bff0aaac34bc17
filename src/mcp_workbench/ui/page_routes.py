"""The routes of the page: who may come in, and who answers.

    GET  /ui                    how to open the page
    GET  /ui/open/CODE          once: a cookie, and on to the page
    GET  /ui/ID/                the page; ID belongs to the cookie's path
    GET  /ui/ID/static/...      its files
    GET  /ui/ID/api/...         what it shows
    POST /ui/ID/api/...         what it does, with a header that no form and no other site can send

Checks, in this order: host name, origin, path, method, cookie, the header of a write, the size of its body. A
host's token opens nothing here, and the cookie nothing elsewhere: browsers do not even send it there.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256
from html import escape
from typing import TYPE_CHECKING

from mcp_workbench.server.http.access import Access, is_loopback
from mcp_workbench.transport.http.messages import JSON, Reply
from mcp_workbench.ui.page_files import STATIC, PageFiles
from mcp_workbench.ui.page_sessions import OPEN, PAGE, PageKey, now

if TYPE_CHECKING:
    from mcp_workbench.transport.http.messages import HttpRequest, ResponseWriter
    from mcp_workbench.ui.page_api import PageApi

WRITES = (
    b"x-workbench-page"  # a header that makes browsers ask first, and so never comes from elsewhere
)
LARGEST = 1 << 20  # bytes of what the page sends
LONGEST = 8192  # bytes of a target
HTML = b"text/html; charset=utf-8"

_POLICY = (
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src {styles}; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'\r\n"
)
_COMMON = (
    b"Referrer-Policy: same-origin\r\n"
    b"X-Content-Type-Options: nosniff\r\n"
    b"X-Frame-Options: DENY\r\n"
    b"Cross-Origin-Opener-Policy: same-origin\r\n"
    b"Cross-Origin-Resource-Policy: same-origin\r\n"
)
HEADERS = _COMMON + _POLICY.format(styles="'self'").encode()
_API_HEADERS = HEADERS + b"Cache-Control: no-store\r\n"

_STYLE = (
    "body{font:16px/1.6 system-ui,sans-serif;max-width:34rem;margin:15vh auto;padding:0 1.5rem;"
    "color-scheme:light dark}code{font:0.95em ui-monospace,monospace;padding:.2em .4em;border-radius:.3em;"
    "background:color-mix(in srgb,currentColor 10%,transparent)}h1{font-size:1.3rem}"
)
_STYLE_HASH = b64encode(sha256(_STYLE.encode()).digest()).decode()
_PLAIN = (
    "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
    "<link rel=icon href='data:,'>{head}<title>MCP Workbench</title><style>{style}</style><h1>{title}</h1>{body}"
)
_OPENS = "<p>Run <code>mcp-workbench ui</code>: it opens this page for you.</p>"
_PATH = re.compile(rb"/ui(?:/[!-~]*)?")


def plain_page(
    status: int, title: str, body: str, *, head: str = "", headers: bytes = b""
) -> Reply:
    """A page without a script."""
    policy = _POLICY.format(styles=f"'sha256-{_STYLE_HASH}'").encode()
    text = _PLAIN.format(head=head, style=_STYLE, title=title, body=body)
    headers = _COMMON + policy + b"Cache-Control: no-store\r\n" + headers
    return Reply(status, text.encode(), headers, HTML)


def api_reply(status: int, body: bytes) -> Reply:
    return Reply(status, body, _API_HEADERS, JSON)


CLOSED = plain_page(
    401, "This page is closed", f"<p>Nobody has opened it in this browser.</p>{_OPENS}"
)
USED = plain_page(
    403,
    "This address opens nothing any more",
    f"<p>Each address opens the page once, within two minutes.</p>{_OPENS}",
)
NOT_HERE = plain_page(404, "There is nothing here", _OPENS)
NO_COOKIE = api_reply(401, b'{"error":"the page is closed: run mcp-workbench ui","code":"closed"}')
NOT_FOUND = api_reply(404, b'{"error":"there is nothing at this path","code":"not_found"}')
FOREIGN = api_reply(403, b'{"error":"this request comes from another site","code":"foreign"}')
TOO_LARGE = api_reply(413, b'{"error":"this is too long","code":"too_large"}')


class PageRoutes:
    """The page on one port."""

    def __init__(
        self, api: PageApi, key: PageKey, access: Callable[[], Access], *, has_login: bool
    ) -> None:
        self._api = api
        self._key = key
        self._access = access
        self._has_login = has_login  # hosts need a token here, so others than loopback may be meant
        self._files = PageFiles()
        self.closing = False

    def owns(self, path: bytes) -> bool:
        return _PATH.fullmatch(path) is not None

    @property
    def address(self) -> str:
        """A path that opens the page once."""
        return self._key.new_address(now())

    # Before a body is read

    def admit(self, request: HttpRequest) -> Reply | None:
        """Check a request whose host name is one of ours; None admits it."""
        request.reply_headers = b""  # no other origin reads anything here
        host = request.headers.get(b"host", b"")
        if not self._has_login and not is_loopback(_name(host)):
            return NOT_HERE
        if self._is_foreign(request, host):
            return FOREIGN
        if len(request.target) > LONGEST:
            return TOO_LARGE
        path = request.path().decode("latin-1")
        if path.startswith(OPEN):
            return self._open(request, path, host)
        if not path.startswith(self._key.path):
            return CLOSED if path in (PAGE, f"{PAGE}/") or request.method == b"GET" else NOT_HERE
        return self._admit_inside(request, path.removeprefix(self._key.path))

    def _is_foreign(self, request: HttpRequest, host: bytes) -> bool:
        origin = request.headers.get(b"origin")
        own = self._access().public_origin(host)
        if origin is not None and origin.decode("latin-1").lower() != own.lower():
            return True
        site = request.headers.get(b"sec-fetch-site", b"none")
        is_visit = request.headers.get(b"sec-fetch-mode") == b"navigate"
        return site not in (b"same-origin", b"none") and not (is_visit and request.method == b"GET")

    def _open(self, request: HttpRequest, path: str, host: bytes) -> Reply:
        if request.method != b"GET":
            return Reply(405, b"GET only", b"Allow: GET\r\n")
        if self.closing or not self._key.opens(path.removeprefix(OPEN), now()):
            return USED
        # Not a redirect: a visit that another site has begun would go on without the cookie.
        target = escape(self._key.path)
        body = f"<p><a href='{target}'>Go on</a></p>"
        head = f"<meta http-equiv=refresh content='0;url={target}'>"
        return plain_page(200, "Opening …", body, head=head, headers=self._cookie(host))

    def _cookie(self, host: bytes) -> bytes:
        secure = self._access().public_origin(host).startswith("https:")
        return self._key.new_cookie(now(), secure=secure)

    def _admit_inside(self, request: HttpRequest, path: str) -> Reply | None:
        method = request.method
        writes = method == b"POST" and path.startswith("api/")
        if method not in (b"GET", b"HEAD") and not writes:
            return Reply(405, b"method not allowed", b"Allow: GET\r\n")
        if not self._key.admits(request.headers.get(b"cookie", b""), now()):
            return NO_COOKIE if path.startswith("api/") else CLOSED
        if writes and (refusal := _refused_write(request)) is not None:
            return refusal
        request.admitted = self
        return None

    # Answers

    def handle(self, request: HttpRequest, response: ResponseWriter) -> None:
        """Answer a request that was admitted."""
        path = request.path().decode("latin-1").removeprefix(self._key.path)
        if path.startswith("api/"):
            self._api.handle(path.removeprefix("api/"), request, response)
            return
        response.plain(self._file(path, request))

    def _file(self, path: str, request: HttpRequest) -> Reply:
        compressed = b"gzip" in request.headers.get(b"accept-encoding", b"")
        if path.startswith(STATIC):
            name = path.removeprefix(STATIC)
            return self._files.find(name, HEADERS, compressed=compressed) or NOT_HERE
        if path:
            return NOT_HERE
        renewed = HEADERS + self._cookie(request.headers.get(b"host", b""))
        return self._files.index(renewed, compressed=compressed)

    def tick(self, at: float) -> None:
        if not self._api.is_followed:  # otherwise that is done for the open page
            self._api.documents.observe_now()

    def stop(self) -> None:
        """End what is open: the port is about to close."""
        self.closing = True
        self._api.close()


def is_local(request: HttpRequest) -> bool:
    """Whether the browser reaches the page by an address of its own machine."""
    return is_loopback(_name(request.headers.get(b"host", b"")))


def _name(host: bytes) -> str:
    text = host.decode("latin-1").lower()
    name = text.rpartition(":")[0] if not text.endswith("]") and ":" in text else text
    return name.strip("[]")


def _refused_write(request: HttpRequest) -> Reply | None:
    if request.headers.get(WRITES) != b"1" or b"origin" not in request.headers:
        return FOREIGN
    if request.headers.get(b"content-type", b"").partition(b";")[0].strip() != JSON:
        return api_reply(415, b'{"error":"send application/json","code":"wrong_type"}')
    length = request.headers.get(b"content-length", b"")
    if not length.isdigit():
        return api_reply(411, b'{"error":"the length is needed","code":"no_length"}')
    return TOO_LARGE if int(length) > LARGEST else None
