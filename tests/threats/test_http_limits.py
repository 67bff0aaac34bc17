"""What hosts may send over HTTP: counted as it comes, on a connection and in all; strangers lose first."""

from __future__ import annotations

import asyncio
import signal
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from mcp_workbench.core.spec import HttpSettings
from mcp_workbench.transport.http import reading, server
from mcp_workbench.transport.http.messages import Reply
from mcp_workbench.transport.http.reading import HEAD_BYTES
from mcp_workbench.transport.http.server import HttpConnection
from tests.http.test_connection import LIMIT, Scene, echo, post
from tests.kit.clock import until
from tests.kit.command import serving, stopped
from tests.kit.config import config_file, entry
from tests.kit.http_host import Peer, port, rpc
from tests.kit.results import Message

TOKEN = "right-" + "r" * 32
CHUNKED = b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


async def connection_of(opened: Scene) -> tuple[Peer, HttpConnection]:
    """A new peer and our end of it."""
    before = set(opened.server.connections)
    peer = await opened.connect()
    await until(lambda: len(opened.server.connections) > len(before))
    (ours,) = opened.server.connections - before
    return peer, ours


@pytest.mark.parametrize(
    ("start", "more", "status"),
    [
        (b"POST /", b"a" * 8192, 431),
        (b"POST /a HTTP/1.1\r\n", b"X" * 8192, 431),
        (b"POST /a HTTP/1.1\r\nX: ", b"y" * 8192, 431),
        (b"POST /a HTTP/1.1\r\n", b"X: y\r\n" * 1000, 431),
        (b"", b"\r\n" * 4096, 431),
        (CHUNKED + b"1\r\na\r\n0\r\n", b"X" * 8192, 431),
        (CHUNKED + b"1\r\na\r\n0\r\nX: ", b"y" * 8192, 431),
        (CHUNKED + b"1\r\na\r\n0\r\n", b"X: y\r\n" * 1000, 431),
        (CHUNKED + b"1;", b"x" * 8192, 431),
        (CHUNKED, b"1;" + b"x" * 30_000 + b"\r\na\r\n", 400),
    ],
    ids=[
        "target", "name", "value", "headers", "line ends", "trailer's name", "trailer's value", "trailers",
        "extension", "extensions",
    ],
)  # fmt: skip
async def test_what_never_ends_is_refused_after_the_size_of_a_head(
    start: bytes, more: bytes, status: int
) -> None:
    async with echo() as opened:
        peer, ours = await connection_of(opened)
        ours.data_received(start)
        sent = 0
        while not ours.deaf and sent < 8 * HEAD_BYTES:
            ours.data_received(more)
            sent += len(more)

        assert sent <= 2 * HEAD_BYTES + len(more)
        assert (await peer.answer()).status == status
        assert await peer.ended()
        assert opened.front.handled == []


async def test_a_trailer_and_the_framing_of_a_body_have_their_room() -> None:
    async with echo() as opened:
        peer = await opened.connect()
        chunks = b"".join(b"1\r\n%c\r\n" % n for n in b"0123456789" * 2000)
        trailer = b"".join(b"X%d: y\r\n" % n for n in range(1000))
        peer.send(CHUNKED + chunks + b"0\r\n" + trailer + b"\r\n" + post("/b"))

        assert (await peer.answer()).body == b"/a " + b"0123456789" * 2000
        assert (await peer.answer()).body == b"/b "


async def test_only_as_many_headers_are_joined_as_a_head_may_have() -> None:
    async with echo() as opened:
        peer, ours = await connection_of(opened)
        ours.data_received(b"POST /a HTTP/1.1\r\nHost: x\r\n" + b"a:\r\n" * 60_000)

        assert (await peer.answer()).status == 431
        assert opened.front.handled == []


async def test_what_is_pipelined_behind_a_call_is_no_more_than_a_message_may_have() -> None:
    async with echo() as opened:
        peer, ours = await connection_of(opened)
        peer.send(post("/held"))
        await until(lambda: bool(opened.front.held))
        for _ in range(30):
            peer.send(post("/b", b"x" * (LIMIT - 10)))
        await until(lambda: ours.deaf)

        assert 0 < opened.server.held <= LIMIT + HEAD_BYTES
        opened.front.held[0].plain(Reply(200, b"a"))
        assert (await peer.answer()).body == b"a"
        assert (await peer.answer()).status == 200
        refused = await peer.answer()
        assert (refused.status, refused.headers["connection"]) == (413, "close")
        assert b"wait on this connection" in refused.body
        assert len(opened.front.handled) == 2
        assert opened.server.held == 0


async def test_heads_that_wait_are_counted_as_well() -> None:
    async with echo() as opened:
        _, ours = await connection_of(opened)
        ours.data_received(post("/held"))
        for _ in range(server.PIPELINED):
            ours.data_received(post("/b", b"", "X: " + "y" * (HEAD_BYTES // 2)))

        assert ours.deaf
        assert opened.server.held <= LIMIT + HEAD_BYTES


async def test_all_connections_together_send_a_few_messages_at_a_time_and_small_ones_always() -> (
    None
):
    async with echo() as opened:
        large = post("/a", b"x" * LIMIT)
        senders = [await connection_of(opened) for _ in range(server.BODIES + 1)]
        for _, ours in senders:
            ours.data_received(large[:-1])

        assert opened.server.held <= server.BODIES * LIMIT
        refused = await senders[-1][0].answer()
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert (await opened.ask(post("/b", b"small")))[0] == 200
        senders[0][0].send(large[-1:])
        assert (await senders[0][0].answer()).status == 200
        assert (await opened.ask(large))[0] == 200
        for peer in opened.peers:
            peer.close()
        await until(lambda: not opened.server.connections)
        assert opened.server.held == 0


async def test_large_requests_in_progress_have_a_limit_together_and_small_ones_have_none() -> None:
    async with echo() as opened:
        held = post("/held", b"x" * LIMIT)
        peers = [await opened.connect() for _ in range(server.IN_PROGRESS)]
        for peer in peers:
            peer.send(held)
        await until(lambda: len(opened.front.held) == len(peers))
        refused = await opened.connect()
        refused.send(held)
        answer = await refused.answer()
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert (await opened.ask(post("/b", b"small")))[0] == 200

        opened.front.held[0].plain(Reply(200, b"a"))
        peers[1].close()
        await until(lambda: opened.server.under_way == len(peers) - 2)
        assert (await opened.ask(post("/b", b"x" * LIMIT)))[0] == 200
        for peer in opened.peers:
            peer.close()
        await until(lambda: not opened.server.connections)
        assert opened.server.bytes_under_way == 0


async def test_requests_of_one_read_are_begun_in_steps() -> None:
    async with echo() as opened:
        peer, ours = await connection_of(opened)
        many = server.AT_ONCE + server.PIPELINED
        ours.data_received(post("/a") * many)
        assert len(opened.front.handled) == server.AT_ONCE
        assert [(await peer.answer()).status for _ in range(many)] == [200] * many

        ours.data_received(post("/a") * 5000)
        assert len(opened.front.handled) == many + server.AT_ONCE
        await until(lambda: not opened.server.connections)


@pytest.mark.parametrize(
    ("start", "drip"),
    [
        (post("/a", b"x" * 50_000)[:-40_000], b"x"),
        (CHUNKED + b"1\r\na\r\n0\r\n", b"X: y\r\n"),
        (CHUNKED + b"1;", b"x"),
    ],
)
async def test_a_body_that_comes_in_drops_is_given_up(start: bytes, drip: bytes) -> None:
    async with echo() as opened:
        _, ours = await connection_of(opened)
        began = opened.server.now
        ours.data_received(start)
        for late in range(0, int(reading.BODY_TIME) + 10, 5):
            opened.server.now = began + late
            ours.data_received(drip)
            ours.tick(opened.server.now)
        await until(lambda: not opened.server.connections)
        assert opened.front.handled == []


async def test_a_large_body_has_as_much_time_as_it_needs_while_it_goes_on() -> None:
    async with echo() as opened:
        peer, ours = await connection_of(opened)
        began = opened.server.now
        ours.data_received(post("/a", b"x" * LIMIT)[:-LIMIT])
        for late, piece in enumerate([reading.PACE, LIMIT - reading.PACE], 1):
            opened.server.now = began + late * (reading.BODY_TIME - 2)
            ours.tick(opened.server.now)
            ours.data_received(b"x" * piece)

        assert (await peer.answer()).status == 200


# Strangers


async def test_strangers_make_room_for_whoever_has_a_token() -> None:
    async with port(http=HttpSettings(token=TOKEN)) as opened:
        opened.server.most = 12
        right = {"authorization": f"Bearer {TOKEN}"}
        session = await opened.open(**right)
        (holder,) = [await opened.connect()]
        holder.send(session.request(session.ask("ping")))
        assert (await holder.answer()).status == 200
        strangers = [await opened.connect() for _ in range(opened.server.most)]
        for stranger in strangers:
            stranger.send(opened.request(method="GET", path="/healthz"))
        for stranger in strangers[-4:]:
            assert (await stranger.answer()).status == 200

        for _ in range(5):
            assert (await session.post(session.ask("ping"))).status == 200
        holder.send(session.request(session.ask("ping")))
        assert (await holder.answer()).status == 200
        assert len(opened.server.connections) <= opened.server.most


async def test_strangers_that_stay_have_a_small_share() -> None:
    async with echo() as opened:
        opened.server.most = 40
        share = opened.server.most // server.STRANGERS
        guest = await opened.connect()
        guest.send(post("/a"))
        await guest.answer()
        for _ in range(3 * share):
            await opened.connect()
        await until(lambda: len(opened.server.connections) == 1 + 3 * share)

        opened.server.now += server.NEW - 1
        opened.server.thin_out()
        assert len(opened.server.strangers) == 3 * share  # they may be slow
        opened.server.now += 2
        opened.server.thin_out()
        assert len(opened.server.strangers) == share
        await until(lambda: len(opened.server.connections) == 1 + share)
        guest.send(post("/b"))
        assert (await guest.answer()).body == b"/b "


async def test_whoever_is_let_in_once_is_no_stranger_and_a_refused_one_is() -> None:
    async with echo() as opened:
        peer, ours = await connection_of(opened)
        peer.send(post("/no"))
        assert (await peer.answer()).status == 403
        assert ours in opened.server.strangers
        peer.send(post("/a"))
        assert (await peer.answer()).status == 200
        assert ours not in opened.server.strangers


# Whoever was let in


async def test_the_longest_idle_connection_makes_room_and_never_a_busy_one() -> None:
    async with echo() as opened:
        streams, begins, sends = [await opened.connect() for _ in range(3)]
        for busy in (begins, sends):
            busy.send(post("/a"))
            await busy.answer()
        streams.send(post("/held"))
        begins.send(post("/late")[:10])
        sends.send(post("/late", b"body")[:-1])
        idle = [await opened.connect() for _ in range(3)]
        for peer in idle:
            peer.send(post("/a"))
            await peer.answer()
        idle[0].send(post("/b"))  # so that the second one has been idle for longer
        await idle[0].answer()
        await until(lambda: sum(one.is_idle for one in opened.server.connections) == len(idle))
        opened.server.most = len(opened.server.connections)

        for held, longest in enumerate((idle[1], idle[2], idle[0]), 2):
            new = await opened.connect()
            new.send(post("/new"))
            assert (await new.answer()).status == 200
            assert await longest.ended()
            new.send(post("/held"))
            await until(lambda held=held: len(opened.front.held) == held)

        assert (await (await opened.connect()).answer()).status == 503
        opened.front.held[0].plain(Reply(200, b"held"))
        begins.send(post("/late")[10:])
        sends.send(b"y")
        assert (await streams.answer()).body == b"held"
        assert (await begins.answer()).body == b"/late "
        assert (await sends.answer()).body == b"/late body"


async def test_a_stranger_makes_room_before_whoever_was_let_in() -> None:
    async with echo() as opened:
        idle, stranger = await opened.connect(), await opened.connect()
        idle.send(post("/a"))
        await idle.answer()
        await until(lambda: len(opened.server.strangers) == 1)
        opened.server.most = 2

        assert await opened.ask(post("/new")) == (200, b"/new ")

        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await stranger.answer()
        idle.send(post("/b"))
        assert (await idle.answer()).body == b"/b "


async def test_a_token_holder_finds_room_among_idle_connections_of_token_holders() -> None:
    async with port(http=HttpSettings(token=TOKEN)) as opened:
        session = await opened.open(authorization=f"Bearer {TOKEN}")
        for _ in range(3):
            peer = await opened.connect()
            peer.send(session.request(session.ask("ping")))
            assert (await peer.answer()).status == 200
        opened.server.most = len(opened.server.connections)

        peer = await opened.connect()
        peer.send(session.request(session.ask("ping")))

        assert (await peer.answer()).status == 200


# HTTP as it is written


async def test_nothing_is_heard_after_a_request_of_http_1_0() -> None:
    async with echo() as opened:
        peer = await opened.connect()
        peer.send(b"GET /held HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" + post("/smuggled"))
        await until(lambda: bool(opened.front.held))
        opened.front.held[0].plain(Reply(200, b"a"))

        answer = await peer.answer()
        assert (answer.body, answer.headers["connection"]) == (b"a", "close")
        assert await peer.ended()
        assert [request.target for request in opened.front.handled] == [b"/held"]


async def test_an_earlier_answer_does_not_say_that_it_is_the_last() -> None:
    async with echo() as opened:
        peer = await opened.connect()
        peer.send(post("/held") + post("/b", b"", "Connection: close"))
        await until(lambda: bool(opened.front.held))
        await asyncio.sleep(0)
        opened.front.held[0].plain(Reply(200, b"a"))

        first, second = await peer.answer(), await peer.answer()
        assert "connection" not in first.headers
        assert (second.body, second.headers["connection"]) == (b"/b ", "close")
        assert await peer.ended()


@pytest.mark.parametrize("value", ["a-miracle", "100-continue, a-miracle", ""])
async def test_an_expectation_that_is_not_known_is_refused(value: str) -> None:
    async with echo() as opened:
        for body in (b"", b"x"):
            peer = await opened.connect()
            peer.send(post("/a", body, f"Expect: {value}"))
            assert (await peer.answer()).status == 417
        assert opened.front.handled == []


async def test_an_old_client_expects_nothing() -> None:
    async with echo() as opened:
        head = b"POST /a HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n"
        assert await opened.ask(head + b"x") == (200, b"/a x")


@pytest.mark.parametrize(
    "data",
    [
        b"POST /a HTTP/1.1\r\nHost: x\r\nX: a\r\n folded: b\r\nContent-Length: 0\r\n\r\n",
        CHUNKED + b"1\r\naXX0\r\n\r\n",
        CHUNKED + b"1\r\na\r\n0\r\nX: a\r\n b\r\n\r\n",
        CHUNKED + b"1\r\na\r\n0\r\n\r0",
    ],
)
async def test_what_older_parsers_took_is_refused(data: bytes) -> None:
    async with echo() as opened:
        peer = await opened.connect()
        peer.send(data + post("/smuggled"))

        assert (await peer.answer()).status == 400
        assert await peer.ended()
        assert opened.front.handled == []


def test_older_parsers_are_not_installed() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    wanted = {one.name: one for one in map(Requirement, project["dependencies"])}

    assert not wanted["httptools"].specifier.contains("0.6.2")


async def test_a_list_of_types_beyond_all_measure_is_not_read() -> None:
    async with port() as opened:
        endless = ", ".join(["a/b"] * 10_000 + ["application/json", "text/event-stream"])
        assert (await opened.ask(rpc("ping", id=1), {"accept": endless})).status == 406


def a_batch(members: int) -> bytes:
    return b"[" + b",".join([b"0"] * members) + b"]"


async def test_a_batch_without_end_is_refused() -> None:
    async with port() as opened:
        session = await opened.open("2025-03-26")
        answer = await session.post(a_batch(100_000))

        assert answer.status == 400
        assert "from 1 to 1000" in answer.error["message"]


def test_a_server_that_complains_is_named_on_stderr(tmp_path: Path) -> None:
    servers: dict[str, Any] = {"fixture": entry(), "broken": entry("stderr_exit")}
    with serving(config_file(tmp_path, servers), "0", {}, "-v") as command:
        session = command.open()
        tool = {"toolbox": "dev", "server": "broken", "tool": "echo"}
        wish: Message = {"name": "use_tool", "arguments": {"tool": tool, "arguments": {}}}
        command.post(rpc("tools/call", wish, 2), mcp_session_id=session)
        _, _, err = stopped(command, signal.SIGTERM)

    assert "mcp-workbench: dev/broken: Error: no DATABASE_URL in the environment\n" in err
