"""Connections that repeat their heads: what is not parsed again is read as if it had been, whatever the chunks."""

# What is made up has no types.
# pyright: basic

from __future__ import annotations

import asyncio
from typing import Any, cast

from hypothesis import strategies as st

from mcp_workbench.transport.http.client import ClientConnection
from mcp_workbench.transport.http.client_response import ExchangeFailed
from mcp_workbench.transport.http.messages import HttpRequest, Reply, ResponseWriter
from mcp_workbench.transport.http.server import HttpConnection
from tests.fuzz.effort import fuzzed, size
from tests.fuzz.material import in_chunks, mutated
from tests.fuzz.test_fuzz_conversation import no_fault_of_ours
from tests.fuzz.test_fuzz_http_answer import Keeper
from tests.fuzz.test_fuzz_http_answer import Transport as FarTransport
from tests.fuzz.test_fuzz_http_requests import BODY, Echo, Port
from tests.fuzz.test_fuzz_http_requests import Transport as NearTransport
from tests.kit.clock import PATIENCE

RUNNER = asyncio.Runner()
AGAIN = b""  # in place of a message: the bytes of the last read once more

Part = tuple[
    bytes, list[int], bool
]  # a message, where it is cut, whether the next one joins its end
Headers = tuple[tuple[Any, Any], ...]

CHUNKED = b"2\r\n{}\r\n0\r\n\r\n"
bodies = st.sampled_from([b"", b"{}", b"[]", b"x", b"\r\n", b"0123456789"]) | st.binary(
    max_size=size(12)
)
# How the length of the body is written.
lengths = st.sampled_from([b"%d"] * 8 + [b"0%d", b"00%d", b" %d", b"%d ", b"+%d", b"%d0", b"\t%d"])
ends = st.sampled_from([-1, -2, 1, 5])
NEARLY = (
    (b"/a", b"/A"), (b"POST", b"post"), (b"Host: x", b"Host: X"), (b"Accept: y", b"Accept: Y"), (b"Accept", b"accept"),
    (b"HTTP/1.1", b"HTTP/1.0"), (b"y\r\n", b"y \r\n"), (b"OK", b"ok"), (b"json", b"JSON"), (b"-T", b"-t"),
)  # fmt: skip
parts_cut = st.just([]) | st.just([]) | st.lists(st.integers(0, 120) | ends, max_size=3)


def parts(messages: st.SearchStrategy[bytes], *heads: bytes) -> st.SearchStrategy[list[Part]]:
    """Sequences of messages; some of them are a row with one of these heads, or nearly."""
    one = st.tuples(messages | st.just(AGAIN), parts_cut, st.sampled_from([False, False, True]))
    # A message that arrives with the end of another, and that read once more.
    mixed = st.builds(
        lambda first, cut, second: [(first, [cut], True), (second, [], False), (AGAIN, [], False)],
        messages,
        st.sampled_from([1, 10, -1, -2]),
        messages,
    )
    rows = st.sampled_from(heads).flatmap(row)
    groups = st.lists(one.map(lambda part: [part]) | mixed | rows, max_size=size(6))
    return groups.map(lambda groups: [part for group in groups for part in group])


def row(head: bytes) -> st.SearchStrategy[list[Part]]:
    """Two messages with this head, and more with nearly the same."""
    same = st.builds(request, st.just(head), st.just(b"%d"), bodies)
    near = st.builds(request, st.sampled_from(NEARLY).map(lambda pair: head.replace(*pair)), lengths, bodies)  # fmt: skip
    joins = st.sampled_from([False, False, True])
    first = st.tuples(same, st.just([]), st.just(False))
    more = st.lists(st.tuples(same | near, st.just([]), joins), max_size=3)
    return st.tuples(first, first, more).map(lambda parts: [parts[0], parts[1], *parts[2]])


def reads(parts: list[Part]) -> list[bytes]:
    """What arrives with each read."""
    arrived: list[bytes] = []
    joined = False
    for message, cut, joins in parts:
        data = message or (arrived[-1] if arrived else b"")
        for piece in in_chunks(data, [len(data) + at if at < 0 else at for at in cut]):
            if joined:
                arrived[-1] += piece
            else:
                arrived.append(piece)
            joined = False
        joined = joins and bool(arrived)
    return arrived


# Requests

LATER = b"POST /later HTTP/1.1\r\nHost: x\r\nContent-Length: %b\r\nAccept: y\r\n\r\n"
REQUESTS = (
    b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: %b\r\nAccept: y\r\n\r\n",
    b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: %b\r\nAccept: z\r\n\r\n",
    b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: %b\r\nAccept: y\r\n\r\n",
    b"POST /a HTTP/1.1\r\nContent-Length: %b\r\nHost: x\r\nAccept: y\r\n\r\n",
    b"POST /a HTTP/1.1\r\nHost:  x \r\nContent-Length: %b\r\nAccept: y\r\n\r\n",
    b"POST /a HTTP/1.1\r\nHost: x\r\nAccept: y\r\nAccept: y\r\nContent-Length: %b\r\n\r\n",
    LATER,
    b"POST /no HTTP/1.1\r\nHost: x\r\nContent-Length: %b\r\nAccept: y\r\n\r\n",
    b"GET /a HTTP/1.1\r\nHost: x\r\nContent-Length: %b\r\n\r\n",
    b"POST /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %b\r\n\r\n",
    b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: %b\r\nConnection: close\r\n\r\n",
    b"POST /a HTTP/1.0\r\nHost: x\r\nContent-Length: %b\r\nAccept: y\r\n\r\n",
)
OTHERS = (
    b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nAccept: y\r\n\r\n" + CHUNKED,
    b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\r\n",
)


def request(head: bytes, length: bytes, body: bytes) -> bytes:
    return head.replace(b"%b", length % len(body)) + body


usual = st.builds(request, st.sampled_from(REQUESTS[:2]), st.just(b"%d"), bodies)
unusual = st.builds(request, st.sampled_from(REQUESTS), lengths, bodies)
requests = usual | usual | unusual | st.sampled_from(OTHERS) | mutated(unusual, 1)


class Admitting(Echo):
    """Admits all but one path, and answers one path later."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: list[bytes] = []

    def admit(self, request: HttpRequest) -> Reply | None:
        refusal = super().admit(request)
        if refusal is None:
            request.admitted = request.target
        else:
            self.refused.append(request.target)
        return refusal

    def still_admits(self, request: HttpRequest) -> bool:
        assert request.admitted == request.target
        return True

    def handle(self, request: HttpRequest, response: ResponseWriter) -> None:
        assert len(request.body) <= BODY
        # A head that is repeated keeps the length of its first body, which nobody reads.
        headers = tuple(sorted(h for h in request.headers.items() if h[0] != b"content-length"))
        self.taken.append((request.method, request.target, request.body, headers))
        answer = Reply(200, request.body)
        if request.target == b"/later":
            loop = asyncio.get_running_loop()  # after the next read
            loop.call_soon(lambda: loop.call_soon(lambda: loop.call_soon(response.plain, answer)))
        else:
            response.plain(answer)


async def serve(chunks: list[bytes], *, parses_all: bool) -> tuple[Any, ...]:
    port, transport = Port(asyncio.get_running_loop()), NearTransport()
    port.front = front = Admitting()
    connection = HttpConnection(cast("Any", port))
    connection.connection_made(transport)
    for chunk in chunks:
        if transport.ended:
            break
        connection.data_received(chunk)
        assert connection._complete is None  # it would keep its body
        assert not connection._pattern.body
        if parses_all:
            connection._repeated = None
        await asyncio.sleep(0)
    for _ in range(40):  # what was pipelined is answered turn by turn
        await asyncio.sleep(0)
    connection.connection_lost(None)
    assert port.under_way == port.held == 0
    return front.taken, front.refused, transport.sent, transport.ended, connection.deaf


@fuzzed(parts(requests, REQUESTS[0], REQUESTS[0], REQUESTS[3], LATER))
def test_requests_with_a_repeated_head_are_read_as_the_parser_reads_them(parts: list[Part]) -> None:
    chunks = reads(parts)
    with no_fault_of_ours():
        taken = RUNNER.run(serve(chunks, parses_all=False))
        assert taken == RUNNER.run(serve(chunks, parses_all=True))


# Responses

RESPONSES = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %b\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %b\r\nX: y\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %b\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: %b\r\nContent-Type: application/json\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %b\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %b\r\nX: y\r\nX: z\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %b\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=9\r\nContent-Length: %b\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: %b\r\nConnection: close\r\n\r\n",
    b"HTTP/1.0 200 OK\r\nContent-Length: %b\r\nConnection: keep-alive\r\n\r\n",
    b"HTTP/1.0 200 OK\r\nContent-Length: %b\r\n\r\n",
    b"HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: %b\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: %b\r\n\r\n",
)
OTHER_RESPONSES = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n"
    + CHUNKED,
    b"HTTP/1.1 202 Accepted\r\n\r\n",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n\r\n",
)
common = st.builds(request, st.sampled_from(RESPONSES[:2]), st.just(b"%d"), bodies)
uncommon = st.builds(request, st.sampled_from(RESPONSES), lengths, bodies)
responses = common | common | uncommon | st.sampled_from(OTHER_RESPONSES) | mutated(uncommon, 1)

Outcome = tuple[int, str, bytes, Headers, bool]  # status, how it ended, body, headers, kept


async def exchange(
    wire: ClientConnection, transport: FarTransport, chunks: list[bytes], *, parses_all: bool
) -> Outcome:
    answer = wire.ask(b"GET / HTTP/1.1\r\n\r\n")
    for chunk in chunks:
        if not transport.closed:
            wire.data_received(chunk)
        if parses_all:
            wire._repeated = None
    if not answer.complete:
        wire.connection_lost(None)
    body, how = b"", "whole"
    try:
        await answer.head(None)
        body = await answer.whole(100_000)
    except ExchangeFailed as error:
        how = str(error)
    answer.close()
    headers = tuple(sorted(h for h in answer.headers.items() if h[0] != "content-length"))
    return answer.status, how, body, headers, wire.open


async def converse(exchanges: list[list[bytes]], *, parses_all: bool) -> list[Any]:
    """The outcome of each exchange, all on one connection as long as it lasts."""
    outcomes: list[Any] = []
    wire, transport = ClientConnection(Keeper()), FarTransport()
    wire.connection_made(transport)
    for chunks in exchanges:
        outcomes.append(await exchange(wire, transport, chunks, parses_all=parses_all))
        outcomes.append(wire.kept)
        if not wire.open:
            wire, transport = ClientConnection(Keeper()), FarTransport()
            wire.connection_made(transport)
    return outcomes


def conversed(exchanges: list[list[bytes]], *, parses_all: bool) -> list[Any]:
    talk = converse(exchanges, parses_all=parses_all)
    return RUNNER.run(asyncio.wait_for(talk, PATIENCE))


one_response = st.tuples(responses, parts_cut, st.sampled_from([1, 1, 1, 1, 1, 2]))
in_a_row = row(RESPONSES[0]).map(
    lambda parts: [(data, cut, 1 + joined) for data, cut, joined in parts]
)
conversations = st.lists(one_response.map(lambda one: [one]) | in_a_row, max_size=size(6)).map(
    lambda groups: [one for group in groups for one in group]
)


@fuzzed(conversations)
def test_responses_with_a_repeated_head_are_read_as_the_parser_reads_them(
    responses: list[tuple[bytes, list[int], int]],
) -> None:
    exchanges = [reads([(data, cut, False)] * times) for data, cut, times in responses]

    assert conversed(exchanges, parses_all=False) == conversed(exchanges, parses_all=True)
