"""The answer of another replica, written to a host that does not read: what may wait for it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from mcp_workbench.cluster.forwarding import PIECE, Forwarding
from mcp_workbench.transport.http.messages import BACKLOG_BYTES, HttpRequest, ResponseWriter

EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
SMALL = 64 << 10


class Unread:
    """A connection whose other side takes nothing."""

    lasting = True
    date = b""

    def __init__(self) -> None:
        self.backlog = 0
        self.is_aborted = False

    def write(self, data: bytes) -> None:
        self.backlog += len(data)

    def abort(self) -> None:
        self.is_aborted = True

    def answered(self, *, keep_alive: bool) -> None:
        """Nobody asks."""


def forwarded(head: bytes) -> tuple[Forwarding, Unread]:
    request, connection = HttpRequest(), Unread()
    request.method, request.headers, request.body = b"POST", {}, b""
    request.reply_headers, request.keep_alive, request.old = b"", True, False
    no_link: Any = None
    forwarding = Forwarding(
        request,
        ResponseWriter(cast("Any", connection), request),
        no_link,
        on_refused=lambda _: None,
        on_over=lambda _: None,
    )
    forwarding.data(head)
    return forwarding, connection


def send(forwarding: Forwarding, size: int) -> None:
    """One part of the answer, as its owner cuts it."""
    for at in range(0, size, PIECE):
        forwarding.data(b"x" * min(PIECE, size - at))


def parts_until_the_end(head: bytes, size: int, most: int) -> int:
    forwarding, connection = forwarded(head)
    for number in range(most):
        send(forwarding, size)
        if connection.is_aborted:
            return number
    return most


@pytest.mark.parametrize(
    ("head", "size", "most", "taken"),
    [
        (EVENTS, SMALL, 1000, BACKLOG_BYTES // SMALL),  # 8 MiB wait, and no more
        (EVENTS, 2 * BACKLOG_BYTES + 1, 10, 3),  # two that are larger, and the answer
        (WHOLE, 4 * BACKLOG_BYTES + 1, 1, 1),  # an answer is as long as it is
        (WHOLE + b"text/event-stream", 4 * BACKLOG_BYTES, 1, 1),  # whatever it says
    ],
)
def test_what_waits_for_a_host_that_does_not_read(
    head: bytes, size: int, most: int, taken: int
) -> None:
    assert parts_until_the_end(head, size, most) == taken
