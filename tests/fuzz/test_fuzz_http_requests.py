"""Requests over HTTP: each is handed on once and whole, or refused; our answers stay HTTP."""

# What is made up has no types.
# pyright: basic

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import httptools
from hypothesis import strategies as st

from mcp_workbench.transport.http.messages import HttpRequest, Reply, ResponseWriter
from mcp_workbench.transport.http.server import HttpConnection
from tests.fuzz.effort import fuzzed, size
from tests.fuzz.material import cuts, in_chunks, mutated
from tests.fuzz.test_fuzz_conversation import no_fault_of_ours

BODY = 400
Taken = tuple[bytes, bytes, bytes, tuple[tuple[bytes, bytes], ...]]


class Echo:
    """Writes down what it is handed, and answers at once."""

    def __init__(self) -> None:
        self.taken: list[Taken] = []

    def admit(self, request: HttpRequest) -> Reply | None:
        return Reply(403, b"no") if request.target == b"/no" else None

    def read_ahead(self, request: HttpRequest) -> Iterator[None]:
        return iter(())

    def handle(self, request: HttpRequest, response: ResponseWriter) -> None:
        assert len(request.body) <= BODY
        headers = tuple(sorted(request.headers.items()))
        self.taken.append((request.method, request.target, request.body, headers))
        if request.target == b"/stream":
            response.stream()
            response.send(b"data: x\n\n")
            response.end()
        else:
            response.plain(Reply(200, request.body))

    def tick(self, now: float) -> None:
        pass


class Port:
    """What connections share, without any socket."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.front = Echo()
        self.body_bytes = BODY
        self.held = 0
        self.most_held = 4 * BODY
        self.connections: set[HttpConnection] = set()
        self.loop = loop
        self.under_way = self.bytes_under_way = 0
        self.most_under_way = 16 * BODY
        self.now = 0.0
        self.date = b"Date: today\r\n"

    def enter(self, connection: HttpConnection) -> bool:
        self.connections.add(connection)
        return True

    def let_in(self, connection: HttpConnection) -> None:
        pass

    def left(self, connection: HttpConnection) -> None:
        self.connections.discard(connection)


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.ended = False

    def write(self, data: Any) -> None:
        assert not self.ended
        self.sent += data

    def write_eof(self) -> None:
        self.ended = True

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def abort(self) -> None:
        self.ended = True

    close = abort


class Answers:
    """An independent reader of what we answered."""

    def __init__(self, sent: bytes, methods: list[bytes]) -> None:
        self.statuses: list[int] = []
        self.whole = 0
        self._interim = False
        self._parser = httptools.HttpResponseParser(self)
        if b"HEAD" not in methods:  # whose answers only the asker can read
            self._parser.feed_data(sent)

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        self._interim = status == 100
        self.statuses += [] if self._interim else [status]

    def on_message_complete(self) -> None:
        self.whole += not self._interim


RUNNER = asyncio.Runner()


async def serve(chunks: list[bytes]) -> tuple[list[Taken], Transport]:
    port, transport = Port(asyncio.get_running_loop()), Transport()
    connection = HttpConnection(cast("Any", port))
    connection.connection_made(transport)
    for chunk in chunks:
        if transport.ended:
            break
        connection.data_received(chunk)
        await asyncio.sleep(0)
    for _ in range(40):  # what was pipelined is answered turn by turn
        await asyncio.sleep(0)
    connection.connection_lost(None)
    assert port.under_way == port.held == 0
    assert not port.connections
    return port.front.taken, transport


def served(chunks: list[bytes]) -> tuple[list[Taken], Transport]:
    with no_fault_of_ours():
        return RUNNER.run(serve(chunks))


def written(method: bytes, target: bytes, body: bytes, frame: int, more: list[bytes]) -> bytes:
    lines = [b"%b %b HTTP/1.1" % (method, target), b"Host: x", *more]
    if frame:
        pieces = [body[n : n + frame] for n in range(0, len(body), frame)]
        sent = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in [*pieces, b""])
        return b"\r\n".join([*lines, b"Transfer-Encoding: chunked", b"", sent])
    return b"\r\n".join([*lines, b"Content-Length: %d" % len(body), b"", body])


methods = st.sampled_from([b"POST", b"GET", b"DELETE", b"OPTIONS"])
targets = st.sampled_from([b"/a", b"/stream", b"/mcp?x=%41", b"/mcp/dev", b"*"])
bodies = st.binary(max_size=size(20))
headers = st.sampled_from(
    [b"Accept: */*", b"X: y", b"X: z", b"Origin: null", b"Cookie: a=b; c", b"Expect: 100-continue"]
)
odd_headers = st.sampled_from(
    [b"Connection: close", b"Connection: upgrade", b"Upgrade: h2c", b"Content-Length: 3", b"Content-Length: +1",
     b"Content-Length: 99999999999999999999", b"Transfer-Encoding: gzip", b"Transfer-Encoding: chunked, chunked",
     b"Transfer-Encoding:\tchunked", b" folded: x", b"X:\xff\xfe", b"A: " + b"b" * 500, b": x", b"X\0: y"]
)  # fmt: skip
plain = st.tuples(methods, targets, bodies, st.integers(0, 5), st.lists(headers, max_size=3))
right = plain.map(lambda parts: written(*parts))
odd = st.builds(
    written,
    methods | st.sampled_from([b"HEAD", b"CONNECT", b"PRI", b"post", b"BREW", b"PUT"]),
    targets | st.sampled_from([b"/no", b"", b"http://x/a", b"/a b", b"\xff", b"/" + b"a" * 300]),
    bodies | st.just(b"x" * (BODY + 1)),
    st.integers(0, 5),
    st.lists(headers | odd_headers, max_size=3),
)
streams = st.lists(mutated(right | odd, 2) | right | odd, max_size=size(4)).map(b"".join)


@fuzzed(st.lists(plain, max_size=5), cuts, examples=35)
def test_every_right_request_is_handed_on_once_and_whole(parts: list[Any], at: list[int]) -> None:
    taken, transport = served(in_chunks(b"".join(written(*one) for one in parts), at))

    assert [one[:3] for one in taken] == [
        (method, target, body) for method, target, body, *_ in parts
    ]
    answers = Answers(transport.sent, [])
    assert answers.statuses == [200] * len(parts)
    assert answers.whole == len(parts)
    assert not transport.ended


@fuzzed(streams | st.binary(max_size=40), cuts)
def test_whatever_comes_is_answered_in_http_whatever_the_chunks(data: bytes, at: list[int]) -> None:
    taken, transport = served([data])
    taken_too, in_parts = served(in_chunks(data, at))

    assert taken_too == taken
    answers = Answers(transport.sent, [method for method, *_ in taken])
    parts = Answers(in_parts.sent, [method for method, *_ in taken_too])
    assert parts.statuses == answers.statuses
    assert in_parts.ended == transport.ended
    assert answers.whole >= len(answers.statuses) - 1
    if answers.statuses:
        assert answers.statuses.count(200) == len(taken)
        assert all(status == 200 or 400 <= status < 506 for status in answers.statuses)
        assert 500 not in answers.statuses
    if any(status in (400, 413, 431) for status in answers.statuses):
        assert transport.ended
