"""A request that another replica answers: as it travels, and the two ends of its answer."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from mcp_workbench.cluster.link import ABORT, DATA, END, AcceptedLink, ConnectingLink
from mcp_workbench.server.http.access import Principal
from mcp_workbench.server.http.sessions import Admitted
from mcp_workbench.server.text import CODE_KEY
from mcp_workbench.transport import jsonrpc
from mcp_workbench.transport.http.messages import (
    BACKLOG_BYTES,
    JSON,
    HttpRequest,
    Reply,
    ResponseWriter,
)
from mcp_workbench.transport.http.sse import event

MOST_HOPS = 2  # to the owner, and once more if the session has just moved
HEAD = 2000  # bytes in which the head of an answer tells what follows
PIECE = 1 << 18  # bytes of one frame of an answer
LOST = "the replica that ran this request has ended; the call may have run"

_SECRET = frozenset((b"authorization", b"cookie", b"proxy-authorization"))
_EVENTS = b"text/event-stream"


class ForwardedRequest(msgspec.Struct, frozen=True, array_like=True):
    """A request that one replica has admitted and another one answers. A host's token stays behind."""

    method: bytes
    target: bytes
    headers: dict[bytes, bytes]
    body: bytes
    doubled: tuple[bytes, ...]
    reply_headers: bytes
    keep_alive: bool
    old: bool
    principal: Principal
    modern: bool
    until: float
    hops: int
    is_yielded: bool = False  # who sends it has the session, and no lease: it may be adopted


_read = msgspec.msgpack.Decoder(ForwardedRequest).decode


def write_request(request: HttpRequest, *, hops: int, is_yielded: bool) -> bytes:
    """Returns an admitted request as it travels."""
    headers = {name: value for name, value in request.headers.items() if name not in _SECRET}
    admitted: Admitted = request.admitted
    return msgspec.msgpack.encode(
        ForwardedRequest(
            request.method,
            request.target,
            headers,
            request.body,
            request.doubled,
            request.reply_headers,
            request.keep_alive,
            request.old,
            admitted.principal,
            admitted.modern,
            admitted.until,
            hops,
            is_yielded,
        )
    )


def read_request(payload: bytes) -> ForwardedRequest | None:
    """Returns the request; None for everything that no replica sends."""
    try:
        forwarded = _read(payload)
    except (msgspec.DecodeError, ValueError):
        return None
    return forwarded if 0 < forwarded.hops <= MOST_HOPS else None


def as_request(forwarded: ForwardedRequest) -> HttpRequest:
    request = HttpRequest()
    request.method = forwarded.method
    request.target = forwarded.target
    request.headers = forwarded.headers
    request.body = forwarded.body
    request.size = len(forwarded.body)
    request.doubled = forwarded.doubled
    request.reply_headers = forwarded.reply_headers
    request.keep_alive = forwarded.keep_alive
    request.old = forwarded.old
    return request


class ForwardedTo:
    """How a request came here that another replica has passed on."""

    def __init__(self, sender: str, refuse: Callable[[], None], *, is_yielded: bool) -> None:
        self.sender = sender
        self.refuse = refuse  # says that it is not ours
        self.is_yielded = is_yielded


class AnswerStream:
    """On the replica that answers: the connection of a ResponseWriter, over the link."""

    lasting = True

    def __init__(self, link: AcceptedLink, number: int, date: Callable[[], bytes]) -> None:
        self._link = link
        self._number = number
        self._date = date
        self.on_answered: Callable[[int], None] = lambda _: None

    @property
    def date(self) -> bytes:
        return self._date()

    @property
    def backlog(self) -> int:
        return 0  # who forwards watches its own host

    def write(self, data: bytes) -> None:
        for at in range(0, len(data), PIECE):
            self._link.frame(DATA, self._number, data[at : at + PIECE])

    def abort(self) -> None:
        self._link.frame(ABORT, self._number)
        self.on_answered(self._number)

    def answered(self, *, keep_alive: bool) -> None:
        self._link.frame(END, self._number, b"\1" if keep_alive else b"\0")
        self.on_answered(self._number)


class Forwarding:
    """On the replica that the host has reached: writes the answer of the other one to the host."""

    end_of_search = 0.0  # the loop's time until which an owner is looked for
    _number = 0
    _begun = False
    _part = 0  # bytes of the part that comes now; a large one comes in pieces
    _large = 0  # bytes of the largest part that is queued, if it alone exceeds the backlog

    def __init__(
        self,
        request: HttpRequest,
        response: ResponseWriter,
        link: ConnectingLink,
        *,
        on_refused: Callable[[Forwarding], None],
        on_over: Callable[[Forwarding], None],
    ) -> None:
        self.request = request
        self.response = response
        self._link = link
        self._on_refused = on_refused
        self._on_over = on_over

    def start(self, payload: bytes) -> None:
        """Send it. Raises LinkBroken."""
        self._number = self._link.open(payload, self)
        self.response.on_gone(self._gone)

    def _gone(self) -> None:
        self._link.leave(self._number)
        self._on_over(self)

    def data(self, payload: bytes) -> None:
        response = self.response
        if not self._begun:
            self._begun = True
            response.streaming = _EVENTS in payload[:HEAD].partition(b"\r\n\r\n")[0]
        if response.streaming and self._is_far_behind(len(payload)):
            response.abort()
        else:
            response.relay(payload)

    def _is_far_behind(self, size: int) -> bool:
        """Whether the host of a stream reads too little, as `ResponseWriter.send` decides for one of our own."""
        backlog = self.response.backlog
        if not self._part:  # a new one begins
            if backlog <= BACKLOG_BYTES:
                self._large = 0
            elif backlog > BACKLOG_BYTES + 2 * self._large:
                return True
        self._part += size
        if self._part > BACKLOG_BYTES:
            self._large = max(self._large, self._part)
        if size < PIECE:
            self._part = 0
        return False

    def end(self, payload: bytes) -> None:
        self._over()
        self.response.relayed(keep_alive=payload == b"\1")

    def aborted(self) -> None:
        self._over()
        self.response.abort()

    def refused(self, payload: bytes) -> None:
        self._over()
        self._on_refused(self)

    def _over(self) -> None:
        self._on_over(self)
        self.response.on_gone(None)

    def lost(self) -> None:
        """The other replica has gone. Its host learns it, request by request."""
        self._over()
        response, ids = self.response, request_ids(self.request)
        if response.streaming and ids:
            for id in ids:
                response.send(event(lost_frame(id)[:-1]))
            response.end()
        elif self._begun:
            response.abort()
        elif ids:
            frames = [lost_frame(id) for id in ids]
            body = frames[0] if len(frames) == 1 else b"[%b]" % b",".join(frames)
            response.plain(Reply(200, body, kind=JSON))
        else:
            response.plain(Reply(502, LOST.encode()))


def lost_frame(id: bytes) -> bytes:
    error = jsonrpc.error_object(
        jsonrpc.SERVER_ERROR, LOST, {CODE_KEY: "replica_gone", "may_have_run": True}
    )
    return jsonrpc.refusal(id, error)


class _Ids(msgspec.Struct, frozen=True):
    id: msgspec.Raw = msgspec.Raw(b"")
    method: msgspec.Raw = msgspec.Raw(b"")


def request_ids(request: HttpRequest) -> list[bytes]:
    """Returns the ids of the requests in this body."""
    if request.method != b"POST":
        return []
    try:
        if jsonrpc.is_batch(request.body):
            members = msgspec.json.decode(request.body, type=list[_Ids])
        else:
            members = [msgspec.json.decode(request.body, type=_Ids)]
    except (msgspec.DecodeError, ValueError):
        return []
    return [bytes(member.id) for member in members if member.id and member.method]
