"""HTTP/1.1 itself, with a front that only repeats: limits, order, smuggling, leaving."""

import asyncio
import resource
import socket
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_workbench.transport.http import messages, reading, server
from mcp_workbench.transport.http.messages import HttpRequest, Reply, ResponseWriter
from mcp_workbench.transport.http.server import HttpServer, listening
from tests.kit.clock import PATIENCE, until
from tests.kit.http_host import Peer

LIMIT = 100_000


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Here the loop is the subject."""
    return "asyncio", {"use_uvloop": request.param}


class Echo:
    """Answers with what it got. `/held` is answered later, `/bad` fails."""

    def __init__(self) -> None:
        self.handled: list[HttpRequest] = []
        self.held: list[ResponseWriter] = []
        self.gone = 0

    def admit(self, request: HttpRequest) -> Reply | None:
        return Reply(403, b"no") if request.target == b"/no" else None

    def still_admits(self, request: HttpRequest) -> bool:
        return False

    def read_ahead(self, request: HttpRequest) -> Iterator[None]:
        return iter(())

    def handle(self, request: HttpRequest, response: ResponseWriter) -> None:
        self.handled.append(request)
        if request.target == b"/bad":
            raise ValueError("a fault")
        if request.target == b"/held":
            self.held.append(response)
            response.on_gone(self._left)
        else:
            response.plain(Reply(200, b"%b %b" % (request.target, request.body)))

    def _left(self) -> None:
        self.gone += 1

    def tick(self, now: float) -> None:
        pass


class Scene:
    def __init__(self, front: Echo, server: HttpServer) -> None:
        self.front = front
        self.server = server
        self.peers: list[Peer] = []

    async def connect(self) -> Peer:
        peer = Peer(*await asyncio.open_connection("127.0.0.1", self.server.port))
        self.peers.append(peer)
        return peer

    async def ask(self, data: bytes) -> tuple[int, bytes]:
        peer = await self.connect()
        peer.send(data)
        answer = await peer.answer()
        return answer.status, answer.body


@asynccontextmanager
async def echo() -> AsyncGenerator[Scene]:
    front = Echo()
    async with asyncio.timeout(PATIENCE), listening(front, "127.0.0.1", 0, LIMIT) as server:
        scene = Scene(front, server)
        try:
            yield scene
        finally:
            for peer in scene.peers:
                peer.close()


def post(target: str, body: bytes = b"", *more: str) -> bytes:
    lines = [f"POST {target} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *more]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@given(st.binary(max_size=300), st.lists(st.integers(1, 400), max_size=12))
@settings(max_examples=60, deadline=None)
def test_a_request_is_the_same_however_it_is_cut(body: bytes, cuts: list[int]) -> None:
    async def scene() -> None:
        async with echo() as opened:
            peer = await opened.connect()
            data = post("/a", body) + post("/b", body[::-1])
            for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), None], strict=True):
                peer.send(data[start:end])
                await asyncio.sleep(0)
            assert (await peer.answer()).body == b"/a " + body
            assert (await peer.answer()).body == b"/b " + body[::-1]

    asyncio.run(scene())


async def test_pipelined_requests_are_answered_in_their_order_one_at_a_time() -> None:
    async with echo() as opened:
        peer = await opened.connect()
        peer.send(post("/held") + post("/b") + post("/held") + post("/d"))
        await until(lambda: len(opened.front.held) == 1)
        assert [r.target for r in opened.front.handled] == [b"/held"]

        opened.front.held[0].plain(Reply(200, b"a"))
        await until(lambda: len(opened.front.held) == 2)
        opened.front.held[1].plain(Reply(200, b"c"))

        assert [(await peer.answer()).body for _ in "abcd"] == [b"a", b"/b ", b"c", b"/d "]


async def test_a_peer_that_pipelines_without_end_is_cut_off() -> None:
    async with echo() as opened:
        peer = await opened.connect()
        peer.send(post("/held") + post("/b") * (server.PIPELINED + 1))

        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await peer.answer()
        assert opened.front.gone == 1


@pytest.mark.parametrize(
    "lines",
    [
        ["Content-Length: 5", "Content-Length: 5"],
        ["Content-Length: 5", "Content-Length: 6"],
        ["Content-Length: 5", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked", "Content-Length: 5"],
        ["Content-Length: +5"],
        ["Content-Length: 5 5"],
        ["Content-Length: 0x5"],
        ["Content-Length: -1"],
        ["Content-Length : 5"],
        ["Content-Length: 99999999999999999999"],
        ["Transfer-Encoding: xchunked"],
        ["Transfer-Encoding: chunked, identity"],
        ["Transfer-Encoding: gzip, chunked"],
        ["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"],
        ["X: a", " folded: b"],
        ["Transfer-Encoding:", " chunked"],
        ["Transfer-Encoding: \x0bchunked"],
        ["Transfer-Encoding:"],
        ["Content-Length:"],
        ["Content-Length: 5, 5"],
        ["Content-Length: 0", "Transfer-Encoding: chunked"],
        ["X: a\nContent-Length: 5"],
        ["X: a\x00b"],
        ["X: a\rContent-Length: 5"],
        ["X y: a"],
        [": empty"],
    ],
)
async def test_a_length_that_can_be_read_in_two_ways_is_refused(lines: list[str]) -> None:
    async with echo() as opened:
        peer = await opened.connect()
        head = "\r\n".join(["POST /a HTTP/1.1", "Host: x", *lines]) + "\r\n\r\n"
        peer.send(head.encode("latin-1") + b"0\r\n\r\n" + post("/smuggled"))

        assert (await peer.answer()).status in (400, 413, 501)
        assert await peer.ended()
        assert opened.front.handled == []


@pytest.mark.parametrize(
    "data",
    [
        b"POST /a HTTP/1.1\nHost: x\nContent-Length: 1\n\na",
        b"POST /a HTTP/1.1\r\nHost: x\r\n\n",
        b"POST /a HTTP/1.1\r\n Host: x\r\n\r\n",
        b"POST /a b HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST\t/a\tHTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /a HTTP/1.10\r\nHost: x\r\n\r\n",
        b"POST /a http/1.1\r\nHost: x\r\n\r\n",
        b"GET /a\r\n\r\n",
        b"POST /a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
async def test_a_head_that_can_be_read_in_two_ways_is_refused(data: bytes) -> None:
    async with echo() as opened:
        peer = await opened.connect()
        peer.send(data + post("/smuggled"))

        assert (await peer.answer()).status in (400, 505)
        assert await peer.ended()
        assert opened.front.handled == []


@pytest.mark.parametrize(
    "chunks",
    [
        b"1\na\r\n0\r\n\r\n",
        b"1\r\na\n0\r\n\r\n",
        b"1;x\ny\r\na\r\n0\r\n\r\n",
        b"-1\r\na\r\n0\r\n\r\n",
        b"0x1\r\na\r\n0\r\n\r\n",
        b"1 \r\na\r\n0\r\n\r\n",
        b"10000000000000001\r\na\r\n0\r\n\r\n",
        b"1\r\nab\r\n0\r\n\r\n",
        b"\r\n0\r\n\r\n",
    ],
)
async def test_chunks_that_can_be_read_in_two_ways_are_refused(chunks: bytes) -> None:
    async with echo() as opened:
        peer = await opened.connect()
        head = b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        peer.send(head + chunks + post("/smuggled"))

        assert (await peer.answer()).status == 400
        assert await peer.ended()
        assert opened.front.handled == []


async def test_a_body_in_chunks_is_read_and_its_trailer_changes_nothing() -> None:
    async with echo() as opened:
        peer = await opened.connect()
        peer.send(
            b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nHost: evil\r\nX: y\r\n\r\n"
        )

        assert (await peer.answer()).body == b"/a abcde"
        assert opened.front.handled[0].headers == {b"host": b"x", b"transfer-encoding": b"chunked"}


async def test_a_body_that_is_too_large_is_refused_before_it_is_read() -> None:
    async with echo() as opened:
        head = f"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: {LIMIT + 1}\r\n\r\n"
        chunked = b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"

        assert (await opened.ask(head.encode()))[0] == 413
        assert (await opened.ask(chunked + b"%x\r\n" % (LIMIT + 1) + b"x" * (LIMIT + 1)))[0] == 413
        assert (await opened.ask(post("/a", b"x" * LIMIT)))[1] == b"/a " + b"x" * LIMIT
        assert len(opened.front.handled) == 1


async def test_who_is_refused_can_read_why_while_still_sending() -> None:
    async with echo() as opened:
        peer = await opened.connect()
        peer.send(post("/no", b"x" * LIMIT) + post("/a"))

        assert (await peer.answer()).status == 403
        assert await peer.ended()
        assert opened.front.handled == []


async def test_who_is_refused_without_a_body_may_go_on() -> None:
    async with echo() as opened:
        peer = await opened.connect()
        peer.send(post("/no") + post("/a"))

        assert [(await peer.answer()).status for _ in "ab"] == [403, 200]


@pytest.mark.parametrize(
    "head",
    [
        "X: " + "y" * (reading.HEAD_BYTES + 1),
        "\r\n".join(f"X{n}: y" for n in range(reading.HEAD_LINES + 1)),
        "\r\n".join("X: y" for _ in range(reading.HEAD_LINES + 1)),
    ],
)
async def test_a_head_that_is_too_large_is_refused(head: str) -> None:
    async with echo() as opened:
        assert (await opened.ask(post("/a", b"", head)))[0] == 431
        assert opened.front.handled == []


async def test_a_target_that_is_too_long_is_refused() -> None:
    async with echo() as opened:
        assert (await opened.ask(post("/" + "a" * reading.HEAD_BYTES)))[0] == 431
        assert opened.front.handled == []


async def test_a_head_that_comes_byte_by_byte_has_no_more_time_than_another() -> None:
    async with echo() as opened:
        await opened.connect()
        await until(lambda: bool(opened.server.connections))
        (connection,) = opened.server.connections
        start = opened.server.now
        connection.data_received(b"POST /a HTTP/1.1\r\nX: ")
        for late in range(int(reading.HEAD_TIME)):
            opened.server.now = start + late
            connection.data_received(b"y")
            connection.tick(opened.server.now)
        assert opened.server.connections
        connection.tick(start + reading.HEAD_TIME + 2)
        await until(lambda: not opened.server.connections)


async def test_a_body_that_stops_coming_is_given_up() -> None:
    async with echo() as opened:
        peer = await opened.connect()
        peer.send(post("/a", b"x" * 100, "Expect: 100-continue")[:-50])
        assert (await peer.head())[0] == 100  # its body is awaited now
        (connection,) = opened.server.connections
        now = opened.server.now
        connection.tick(now + reading.BODY_TIME - 1)
        assert opened.server.connections
        connection.tick(now + reading.BODY_TIME + 3)
        await until(lambda: not opened.server.connections)
        assert opened.front.handled == []


async def test_a_head_without_an_end_is_refused_soon() -> None:
    async with echo() as opened:
        peer = await opened.connect()
        peer.send(b"POST /a HTTP/1.1\r\nX: ")
        for _ in range(12):
            peer.send(b"y" * 65536)

        assert (await peer.answer()).status == 431


async def test_whoever_is_slow_with_a_head_or_idle_too_long_is_cut_off() -> None:
    async with echo() as opened:
        slow, silent, idle = [await opened.connect() for _ in range(3)]
        slow.send(b"POST /a HTTP/1.1\r\nHost")
        idle.send(post("/a"))
        await idle.answer()
        await until(lambda: len(opened.server.connections) == 3)
        later = opened.server.now + reading.HEAD_TIME + 2

        for connection in tuple(opened.server.connections):
            connection.tick(later)
        for peer in (slow, silent):
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await peer.answer()
        idle.send(post("/b"))
        assert (await idle.answer()).body == b"/b "
        for connection in tuple(opened.server.connections):
            connection.tick(later + server.IDLE_TIME)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await idle.answer()


async def test_a_request_under_way_has_no_time_limit_of_ours() -> None:
    async with echo() as opened:
        peer = await opened.connect()
        peer.send(post("/held"))
        await until(lambda: bool(opened.front.held))
        for connection in tuple(opened.server.connections):
            connection.tick(opened.server.now + 10_000)

        opened.front.held[0].plain(Reply(200, b"at last"))
        assert (await peer.answer()).body == b"at last"


async def test_a_peer_that_leaves_is_noticed_and_nothing_is_written_to_it() -> None:
    async with echo() as opened:
        peer = await opened.connect()
        peer.send(post("/held"))
        await until(lambda: bool(opened.front.held))

        peer.close()
        await until(lambda: opened.front.gone == 1)

        (response,) = opened.front.held
        assert response.over
        response.plain(Reply(200, b"nobody"))
        response.stream()
        response.send(b"nobody")
        response.end()
        assert opened.server.connections == set()


async def test_a_stream_that_nobody_reads_is_ended_not_waited_for() -> None:
    async with echo() as opened:
        opened_socket = socket.create_connection(("127.0.0.1", opened.server.port))
        with opened_socket:
            opened_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            opened_socket.sendall(post("/held"))
            await until(lambda: bool(opened.front.held))
            (response,) = opened.front.held
            response.stream()
            sent = 0
            while not response.over:
                response.send(b"x" * 100_000)
                sent += 100_000
                await asyncio.sleep(0)

        assert opened.front.gone == 1
        assert sent < 8 * messages.BACKLOG_BYTES


async def test_a_reader_that_takes_nothing_for_long_is_cut_off() -> None:
    async with echo() as opened:
        peer = socket.create_connection(("127.0.0.1", opened.server.port))
        with peer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            peer.sendall(post("/held"))
            await until(lambda: bool(opened.front.held))
            opened.front.held[0].plain(Reply(200, b"x" * (16 << 20)))
            (connection,) = opened.server.connections
            await until(lambda: connection.backlog > 0)
            now = opened.server.now
            connection.tick(now)
            connection.tick(now + 1)
            assert opened.server.connections
            connection.tick(now + server.STALL_TIME + 2)
            await until(lambda: not opened.server.connections)


async def test_old_clients_get_a_stream_that_ends_with_the_connection() -> None:
    async with echo() as opened:
        peer = await opened.connect()
        peer.send(b"GET /held HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        await until(lambda: bool(opened.front.held))
        (response,) = opened.front.held
        response.stream()
        response.send(b"data: x\n\n")
        response.end()

        status, headers = await peer.head()
        assert (status, headers["connection"]) == (200, "close")
        assert "transfer-encoding" not in headers
        assert await peer.reader.read() == b"data: x\n\n"


async def test_a_question_about_a_head_gets_no_body() -> None:
    async with echo() as opened:
        peer = await opened.connect()
        peer.send(b"HEAD /a HTTP/1.1\r\nHost: x\r\n\r\n" + post("/b"))

        assert (await peer.head())[1]["content-length"] == "3"
        assert (await peer.answer()).body == b"/b "


async def test_a_client_that_waits_for_a_go_ahead_gets_it_only_when_let_in() -> None:
    async with echo() as opened:
        peer = await opened.connect()
        peer.send(post("/a", b"x", "Expect: 100-continue")[:-1])
        assert (await peer.head())[0] == 100
        peer.send(b"x")
        assert (await peer.answer()).body == b"/a x"
        refused = await opened.connect()
        refused.send(post("/no", b"x", "Expect: 100-continue")[:-1])
        assert (await refused.answer()).status == 403


async def test_an_offer_to_speak_something_else_is_not_taken() -> None:
    async with echo() as opened:
        offer = ("Connection: Upgrade", "Upgrade: h2c")
        peer = await opened.connect()
        peer.send(post("/a", b"", *offer) + b"PRI * HTTP/2.0")
        assert (await peer.answer()).body == b"/a "
        assert await peer.ended()

        assert (await opened.ask(post("/b", post("/smuggled"), *offer)))[0] == 501
        assert (await opened.ask(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))[0] == 400
        assert (await opened.ask(b"GET /a HTTP/2.0\r\nHost: x\r\n\r\n"))[0] == 505
        assert [request.target for request in opened.front.handled] == [b"/a"]


async def test_a_fault_of_ours_costs_one_request(caplog: pytest.LogCaptureFixture) -> None:
    async with echo() as opened:
        peer = await opened.connect()
        peer.send(post("/bad") + post("/a"))

        assert [(await peer.answer()).status for _ in "ab"] == [500, 200]
        assert "ValueError" in caplog.text


async def test_the_port_takes_a_bounded_number_of_peers() -> None:
    async with echo() as opened:
        assert 0 < opened.server.most <= resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
        opened.server.most = 2
        peers = [await opened.connect() for _ in range(2)]
        for peer in peers:
            peer.send(post("/held"))
        await until(lambda: len(opened.front.held) == 2)
        assert (await (await opened.connect()).answer()).status == 503
        for response in opened.front.held:
            response.plain(Reply(200, b"held"))
        for peer in peers:
            assert (await peer.answer()).status == 200


async def test_a_port_that_stops_closes_the_idle_and_lets_the_others_finish() -> None:
    async with echo() as opened:
        idle, busy = await opened.connect(), await opened.connect()
        busy.send(post("/held"))
        idle.send(post("/a"))
        await idle.answer()
        await until(lambda: bool(opened.front.held))

        opened.server.stop()

        assert await idle.ended()
        opened.front.held[0].plain(Reply(200, b"done"))
        answer = await busy.answer()
        assert (answer.body, answer.headers["connection"]) == (b"done", "close")
        with pytest.raises(ConnectionRefusedError):
            await opened.connect()


@given(st.binary(max_size=200))
@settings(max_examples=60, deadline=None)
def test_noise_is_refused_or_waited_for_and_never_breaks_anything(noise: bytes) -> None:
    async def scene() -> None:
        async with echo() as opened:
            peer = await opened.connect()
            peer.send(noise)
            peer.writer.write_eof()
            await peer.reader.read()
            assert (await opened.ask(post("/a")))[0] == 200

    asyncio.run(scene())
