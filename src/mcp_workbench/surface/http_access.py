"""Who may knock, judged by the head of a request alone: its host, its origin, its token, its types."""

from __future__ import annotations

from collections.abc import Iterable

from mcp_workbench.surface import http_refusals
from mcp_workbench.surface.http_principals import ANONYMOUS, Principal, Principals
from mcp_workbench.wire.http_message import Reply, Request

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
HTTP_PORT = 80  # left out of `Host`
ACCEPT_BYTES = 4096  # of `Accept`; browsers send a tenth
REMEMBERED = 64  # different values of a header whose meaning is kept

_JSON = (b"application/json", b"application/*", b"*/*")
_EVENTS = (b"text/event-stream", b"text/*", b"*/*")


class Access:
    """The rules of one port: exact lists, and tokens or none."""

    def __init__(
        self,
        hosts: frozenset[str],
        origins: Iterable[str] = (),
        principals: Principals | None = None,
    ) -> None:
        self._hosts = frozenset(host.lower().encode() for host in hosts)
        self._origins = frozenset(origin.lower().encode() for origin in origins)
        own = {b"http://" + host for host in self._hosts if _is_loopback(host)}
        self._own_origins = frozenset(own)  # a page of ours would be of these
        self._principals = principals or None
        self.differ = principals is not None and principals.differ
        self._takes_both: dict[bytes, bool] = {}

    def foreign(self, request: Request) -> Reply | None:
        """A request that was sent to another name, or by a page that is not allowed."""
        host = request.headers.get(b"host", b"")
        if host not in self._hosts and host.lower() not in self._hosts:
            return http_refusals.WRONG_HOST
        origin = request.headers.get(b"origin")
        if origin is None:
            return None
        origin = origin.lower()
        if origin in self._origins:
            request.reply_headers += (
                b"Access-Control-Allow-Origin: %b\r\nVary: Origin\r\n"
                b"Access-Control-Expose-Headers: Mcp-Session-Id\r\n" % request.headers[b"origin"]
            )
            return None
        return None if origin in self._own_origins else http_refusals.WRONG_ORIGIN

    def principal(self, request: Request) -> Principal | Reply:
        """Who asks, or what an unknown one is told."""
        if self._principals is None:
            return ANONYMOUS
        found = self._principals.bearer(request.headers.get(b"authorization", b""))
        return http_refusals.NO_TOKEN if found is None else found

    def unreadable(self, request: Request) -> Reply | None:
        """A body or an answer that one of the two sides could not read."""
        if request.method != b"POST":
            accepted = _accepts(request.headers.get(b"accept", b""), _EVENTS)
            return None if accepted or request.method == b"DELETE" else http_refusals.NO_EVENTS
        accept = request.headers.get(b"accept", b"")
        both = self._takes_both.get(accept)
        if both is None:
            both = _accepts(accept, _JSON) and _accepts(accept, _EVENTS)
            if len(self._takes_both) < REMEMBERED:
                self._takes_both[accept] = both
        if not both:
            return http_refusals.NOT_ACCEPTABLE
        kind = request.headers.get(b"content-type", b"")
        if kind != b"application/json" and _media_type(kind) != b"application/json":
            return http_refusals.WRONG_TYPE
        return None


def names_of(host: str, port: int, allowed: tuple[str, ...]) -> frozenset[str]:
    """Every `Host` that means a port which is bound to this address."""
    names: set[str] = set()
    if is_loopback(host):
        names = {*LOOPBACK, f"[{host}]" if ":" in host else host}
    full = {f"{name}:{port}" for name in names}
    for name in allowed:
        full.add(name)
        if not _has_port(name):
            full.add(f"{name}:{port}")
    return frozenset(full | (names if port == HTTP_PORT else set()))


def is_loopback(host: str) -> bool:
    """Can only this machine reach that address? A name other than localhost is none."""
    return host in ("localhost", "::1", "0:0:0:0:0:0:0:1") or _is_ipv4_loopback(host)


def _is_ipv4_loopback(host: str) -> bool:
    parts = host.split(".")
    return parts[0] == "127" and len(parts) == len("1234") and all(p.isdecimal() for p in parts)


def _is_loopback(host: bytes) -> bool:
    name = host.decode().rpartition(":")[0] or host.decode()
    return is_loopback(name.strip("[]"))


def _has_port(name: str) -> bool:
    return name.rpartition(":")[2].isdecimal() and not name.endswith("]")


def _accepts(accept: bytes, kinds: tuple[bytes, ...]) -> bool:
    if len(accept) > ACCEPT_BYTES:
        return False
    ranges = (part.partition(b";") for part in accept.lower().split(b","))
    return any(
        kind.strip() in kinds and b"q=0" not in more.replace(b" ", b"").split(b";")
        for kind, _, more in ranges
    )


def _media_type(value: bytes) -> bytes:
    return value.partition(b";")[0].strip().lower()
