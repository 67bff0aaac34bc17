"""The worst that hosts and servers can send over HTTP, at growing sizes: work grows with it, memory does not."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import cast

import pytest
from msgspec import Raw
from msgspec.json import encode

from mcp_workbench.server.http.modern import param_mismatch
from mcp_workbench.transport.http.client import ClientConnection
from mcp_workbench.transport.http.client_response import HIGH, ExchangeFailed
from mcp_workbench.transport.http.messages import HttpRequest, Reply, ResponseWriter
from mcp_workbench.transport.http.reading import HEAD_BYTES
from mcp_workbench.transport.http.server import HttpConnection, HttpServer
from mcp_workbench.transport.http.sse import EventReader, EventTooLarge
from mcp_workbench.transport.jsonrpc import Malformed, read_batch
from tests.fuzz import test_fuzz_http_answer as far
from tests.fuzz import test_fuzz_http_requests as near
from tests.threats.growth import is_linear, peak

pytestmark = pytest.mark.cost

BODY = 1 << 17
READ = 1 << 16  # bytes that come at once
SIZE = 1 << 16  # of what is sent, and four times as much
EVENT = 1 << 16
LARGE = {"host": 1 << 20, "server": 3 << 19, "stream": 1 << 19}
# Four times what a reader may keep, and what is at hand.
MEMORY = {"host": 4 * BODY + READ, "server": 4 * HIGH + READ, "stream": 4 * EVENT + READ}

HOST = b"POST /a HTTP/1.1\r\nHost: x\r\n"
HOST_CHUNKS = HOST + b"Transfer-Encoding: chunked\r\n\r\n"
SERVER = b"HTTP/1.1 200 OK\r\n"
SERVER_CHUNKS = SERVER + b"Transfer-Encoding: chunked\r\n\r\n"
GZIP = SERVER + b"Content-Encoding: gzip\r\n\r\n"

Sent = Callable[[int], bytes]
Run = Callable[[], object]


def times(unit: bytes, start: bytes = b"") -> Sent:
    return lambda size: start + unit * (size // len(unit))


def numbered(form: bytes, start: bytes = b"") -> Sent:
    return lambda size: start + b"".join(form % n for n in range(size // (len(form) + 4)))


def in_reads(data: bytes, size: int = READ) -> list[bytes]:
    return [data[n : n + size] for n in range(0, len(data), size)]


FROM_HOSTS: dict[str, Sent] = {
    "repeated headers": times(b"a:\r\n", HOST),
    "repeated long headers": times(b"a: %b\r\n" % (b"b" * 500), HOST),
    "headers": numbered(b"a%d:\r\n", HOST),
    "a name": times(b"a", HOST),
    "a value": times(b"a", HOST + b"a: "),
    "a target": times(b"a", b"POST /"),
    "line ends": times(b"\r\n"),
    "trailers": times(b"a:\r\n", HOST_CHUNKS + b"1\r\na\r\n0\r\n"),
    "a trailer's name": times(b"a", HOST_CHUNKS + b"1\r\na\r\n0\r\n"),
    "a trailer's value": times(b"a", HOST_CHUNKS + b"1\r\na\r\n0\r\na: "),
    "an extension": times(b"a", HOST_CHUNKS + b"1;"),
    "extensions": times(b"1;aaaaaaaaaaaaaaaa\r\na\r\n", HOST_CHUNKS),
    "small chunks": times(b"1\r\na\r\n", HOST_CHUNKS),
    "chunks": times(b"200\r\n%b\r\n1\r\na\r\n" % (b"a" * 512), HOST_CHUNKS),
    "requests": times(HOST + b"Content-Length: 1\r\n\r\na"),
    "refused requests": times(b"GET /no HTTP/1.1\r\n\r\n"),
    "requests that wait": times(b"POST /held HTTP/1.1\r\nContent-Length: 1\r\n\r\na"),
    "bodies that wait": times(
        HOST + b"Content-Length: %d\r\n\r\n%b" % (BODY // 2, b"a" * (BODY // 2)),
        b"GET /held HTTP/1.1\r\n\r\n",
    ),
}
FROM_SERVERS: dict[str, Sent] = {
    "repeated headers": times(b"a:\r\n", SERVER),
    "repeated long headers": times(b"a: %b\r\n" % (b"b" * 500), SERVER),
    "headers": numbered(b"a%d:\r\n", SERVER),
    "a name": times(b"a", SERVER),
    "a value": times(b"a", SERVER + b"a: "),
    "a reason": times(b"a", b"HTTP/1.1 200 "),
    "line ends": times(b"\r\n"),
    "interim answers": times(b"HTTP/1.1 100 Continue\r\n\r\n"),
    "trailers": times(b"a:\r\n", SERVER_CHUNKS + b"1\r\na\r\n0\r\n"),
    "a trailer's name": times(b"a", SERVER_CHUNKS + b"1\r\na\r\n0\r\n"),
    "an extension": times(b"a", SERVER_CHUNKS + b"1;"),
    "extensions": times(b"1;aaaaaaaaaaaaaaaa\r\na\r\n", SERVER_CHUNKS),
    "small chunks": times(b"2\r\nab\r\n", SERVER_CHUNKS),
    "a body": times(b"ab", SERVER + b"\r\n"),
    "empty members": times(gzip.compress(b"", mtime=0), GZIP),
    "members": times(gzip.compress(bytes(range(256)) * 8, 0, mtime=0), GZIP),
    "a bomb": lambda size: GZIP + gzip.compress(b"\0" * (size * 16), 9, mtime=0),
    "empty blocks": times(b"\0\0\0\xff\xff", GZIP + gzip.compress(b"", mtime=0)[:10]),
    "padding": times(b"\0", GZIP + gzip.compress(b"ab", mtime=0)),
}
STREAMS: dict[str, Sent] = {
    "line ends": times(b"\n"),
    "returns": times(b"\r"),
    "comments": times(b":\n"),
    "a line": times(b"a"),
    "data": times(b"data\n"),
    "events": times(b"data\n\n"),
    "names": times(b"event: a\n"),
    "ids": times(b"id: a\n"),
    "a long id": times(b"a", b"id:"),
    "fields": times(b"a:b\n"),
}


class Echo(near.Echo):
    """Keeps `/held` waiting."""

    def still_admits(self, request: HttpRequest) -> bool:
        return False

    def handle(self, request: HttpRequest, response: ResponseWriter) -> None:
        if request.target != b"/held":
            response.plain(Reply(200, b"ok"))


@pytest.fixture(scope="module")
def runner() -> Generator[asyncio.Runner]:
    with asyncio.Runner() as one:
        yield one


def from_host(runner: asyncio.Runner, reads: list[bytes]) -> Run:
    """A host that sends this, whatever it is told."""

    async def scene() -> None:
        server = HttpServer(Echo(), BODY)
        connection = HttpConnection(server)
        connection.connection_made(near.Transport())
        for data in reads:
            connection.data_received(data)
            await asyncio.sleep(0)
        connection.connection_lost(None)
        assert server.held == 0
        server.end()

    return lambda: runner.run(scene())


def from_server(runner: asyncio.Runner, reads: list[bytes]) -> Run:
    """A server that answers so; what it may send is read."""

    async def read(wire: ClientConnection) -> None:
        answer = wire.ask(b"GET / HTTP/1.1\r\n\r\n")
        with suppress(ExchangeFailed):
            await answer.head(None)
            await answer.whole(BODY)

    async def scene() -> None:
        wire, transport = ClientConnection(far.Keeper()), far.Transport()
        wire.connection_made(transport)
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(read(wire))
            await asyncio.sleep(0)
            for data in reads:
                while transport.paused and not reading.done():  # noqa: ASYNC110 - a turn for it
                    await asyncio.sleep(0)
                if transport.closed or reading.done():
                    break
                wire.data_received(data)
            wire.connection_lost(None)

    return lambda: runner.run(scene())


def stream(reads: list[bytes]) -> Run:
    def run() -> None:
        reader = EventReader(EVENT)
        with suppress(EventTooLarge):
            for data in reads:
                for _ in reader.feed(data):
                    pass

    return run


def readers(runner: asyncio.Runner) -> dict[str, Callable[[list[bytes]], Run]]:
    return {
        "host": lambda reads: from_host(runner, reads),
        "server": lambda reads: from_server(runner, reads),
        "stream": stream,
    }


CASES = [
    pytest.param(who, sent, id=f"{who}: {name}")
    for who, those in (("host", FROM_HOSTS), ("server", FROM_SERVERS), ("stream", STREAMS))
    for name, sent in those.items()
]


@pytest.mark.parametrize(("who", "sent"), CASES)
def test_work_grows_with_what_is_sent(runner: asyncio.Runner, who: str, sent: Sent) -> None:
    read = readers(runner)[who]
    linear, told = is_linear(lambda size: read(in_reads(sent(size))), SIZE)

    assert linear, told


@pytest.mark.parametrize(("who", "sent"), CASES)
def test_memory_does_not_grow_beyond_four_messages(
    runner: asyncio.Runner, who: str, sent: Sent
) -> None:
    reads = in_reads(sent(LARGE[who]))
    run = readers(runner)[who](reads)
    run()  # what is made once is there now

    assert peak(run) <= MEMORY[who]


@pytest.mark.parametrize(
    ("who", "sent"),
    [case for case in CASES if cast("str", case.id).endswith(("name", "value", "line"))],
)
def test_pieces_of_a_line_cost_what_their_bytes_cost(
    runner: asyncio.Runner, who: str, sent: Sent
) -> None:
    read = readers(runner)[who]
    linear, told = is_linear(lambda size: read(in_reads(sent(size), 64)), HEAD_BYTES // 8)

    assert linear, told


def test_a_batch_costs_what_its_bytes_cost() -> None:
    def batch(size: int) -> Run:
        line = b"[" + b"0," * (size // 2) + b"0]"

        def run() -> None:
            with pytest.raises(Malformed):
                read_batch(line)

        return run

    linear, told = is_linear(batch, 1 << 20)
    assert linear, told
    assert peak(batch(1 << 22)) < 1 << 20


def test_arguments_are_read_once_however_many_headers_a_tool_wants() -> None:
    def wanted(count: int) -> Run:
        properties = {f"p{n}": {"type": "string", "x-mcp-header": f"P{n}"} for n in range(count)}
        definition = encode({"inputSchema": {"properties": properties}})
        arguments = Raw(encode({f"q{n}": n for n in range(count)}))
        return lambda: param_mismatch(HttpRequest(), definition, arguments)

    linear, told = is_linear(wanted, 500)
    assert linear, told
