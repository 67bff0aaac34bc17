"""What servers may send over HTTP: counted as it comes, and read in steps between which others have theirs."""

from __future__ import annotations

import asyncio
import gzip
import time
import zlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from mcp_workbench.transport.http import client_response
from mcp_workbench.transport.http.client import HEAD_BYTES, INTERIM, ClientConnection
from mcp_workbench.transport.http.client_response import (
    ClientResponse,
    ExchangeFailed,
    ResponseTooLarge,
)
from mcp_workbench.transport.http.sse import NAME_BYTES, EventReader
from mcp_workbench.transport.jsonrpc import NOTHING, Envelope
from mcp_workbench.upstream.conversation import Conversation
from mcp_workbench.upstream.http.event_streams import Pace
from mcp_workbench.upstream.http.requests import OutgoingRequest
from mcp_workbench.upstream.http.responses import Exchange
from tests.fuzz.test_fuzz_http_answer import Keeper, Transport
from tests.fuzz.test_fuzz_http_messages import Holder, Road
from tests.http_servers.scenes import bench, echo, trouble
from tests.kit.clock import PATIENCE
from tests.kit.config import url_spec
from tests.kit.servers.bad_http import Hung, Request, bad_http, result

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
GZIP = OK + b"Content-Encoding: gzip\r\n\r\n"
EMPTY = gzip.compress(b"", mtime=0)


def asked() -> tuple[ClientConnection, Transport, ClientResponse]:
    wire, transport = ClientConnection(Keeper()), Transport()
    wire.connection_made(transport)
    return wire, transport, wire.ask(b"GET / HTTP/1.1\r\n\r\n")


async def body_of(*pieces: bytes, limit: int = 1 << 24) -> bytes:
    """What is read of an answer that comes so, and then ends."""
    wire, _, answer = asked()
    for piece in pieces:
        wire.data_received(piece)
    wire.connection_lost(None)
    async with asyncio.timeout(PATIENCE):
        await answer.head(None)
        return await answer.whole(limit)


@pytest.mark.parametrize(
    ("start", "more"),
    [
        (b"HTTP/1.1 200 ", b"O" * 8192),
        (OK, b"X" * 8192),
        (OK + b"X: ", b"y" * 8192),
        (OK, b"X: y\r\n" * 1000),
        (OK, b"a:\r\n" * 2000),
        (b"", b"\r\n" * 4096),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 300),
        (b"", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 200),
        (CHUNKED + b"1\r\na\r\n0\r\n", b"X" * 8192),
        (CHUNKED + b"1\r\na\r\n0\r\nX: ", b"y" * 8192),
        (CHUNKED + b"1\r\na\r\n0\r\n", b"X: y\r\n" * 1000),
        (CHUNKED + b"1;", b"x" * 8192),
        (CHUNKED, b"1;" + b"x" * 30_000 + b"\r\na\r\n"),
        (CHUNKED, b"0" * 8192),
    ],
    ids=[
        "reason", "name", "value", "headers", "repeated headers", "line ends", "interim", "hints", "trailer's name",
        "trailer's value", "trailers", "extension", "extensions", "zeros",
    ],
)  # fmt: skip
async def test_what_never_ends_is_broken_off_after_the_size_of_a_head(
    start: bytes, more: bytes
) -> None:
    wire, transport, answer = asked()
    wire.data_received(start)
    sent = 0
    while not transport.closed and sent < 8 * HEAD_BYTES:
        wire.data_received(more)
        sent += len(more)

    assert sent <= 2 * HEAD_BYTES + len(more)
    with pytest.raises(ExchangeFailed, match="the response is not HTTP"):
        await (answer.whole(1 << 24) if answer.begun else answer.head(None))


async def test_a_few_interim_answers_are_fine() -> None:
    interim = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * INTERIM
    assert await body_of(interim + OK + b"Content-Length: 2\r\n\r\nab") == b"ab"


async def test_a_stream_of_small_chunks_goes_on_for_ever() -> None:
    wire, transport, answer = asked()
    wire.data_received(CHUNKED)
    for _ in range(20):
        wire.data_received(b"2\r\n:\n\r\n" * 5000)
        assert len(await answer.read()) == 10_000
    assert not transport.closed


async def test_a_trailer_changes_no_header() -> None:
    wire, _, answer = asked()
    wire.data_received(CHUNKED + b"1\r\na\r\n0\r\nContent-Encoding: gzip\r\nX: y\r\n\r\n")
    await answer.head(None)

    assert answer.headers == {"transfer-encoding": "chunked"}
    assert await answer.whole(10) == b"a"


# Compression


@pytest.mark.parametrize("size", [0, 1])
async def test_members_without_end_are_broken_off(size: int) -> None:
    member = gzip.compress(b"x" * size, mtime=0)
    with pytest.raises(ExchangeFailed, match="too many parts"):
        await body_of(GZIP, *[member * 1000] * 20)


async def test_some_members_are_fine_and_so_are_many_that_hold_something() -> None:
    assert await body_of(GZIP + (EMPTY + gzip.compress(b"ab", mtime=0)) * 20) == b"ab" * 20
    block = bytes(range(256)) * 8
    stored = gzip.compress(block, 0, mtime=0)
    assert await body_of(GZIP, stored * 400) == block * 400


async def test_blocks_of_which_nothing_comes_are_broken_off() -> None:
    engine = zlib.compressobj(wbits=31)
    start = engine.compress(b"x") + engine.flush(zlib.Z_SYNC_FLUSH)
    with pytest.raises(ExchangeFailed, match="has no content"):
        await body_of(GZIP + start, *[b"\0\0\0\xff\xff" * 10_000] * 4)


async def test_a_name_inside_the_compression_has_an_end() -> None:
    with pytest.raises(ExchangeFailed, match="has no content"):
        await body_of(GZIP + b"\x1f\x8b\x08\x08" + b"\0" * 6, *[b"n" * 50_000] * 4)


async def test_padding_behind_the_compression_has_an_end() -> None:
    packed = gzip.compress(b"ab", mtime=0)
    assert await body_of(GZIP + packed + b"\0" * 512) == b"ab"
    with pytest.raises(ExchangeFailed, match="unexpected data follows"):
        await body_of(GZIP + packed, *[b"\0" * 50_000] * 4)


async def test_what_is_larger_compressed_than_it_may_be_at_all_is_too_large() -> None:
    flushed = zlib.compressobj(wbits=31)
    pieces = [flushed.compress(b"x") + flushed.flush(zlib.Z_FULL_FLUSH) for _ in range(40_000)]
    with pytest.raises(ResponseTooLarge):
        await body_of(GZIP + b"".join(pieces), limit=50_000)


# Steps


@asynccontextmanager
async def turns() -> AsyncGenerator[list[int]]:
    """How often the loop came round to somebody else."""
    count = [0]

    async def others() -> None:
        while True:
            count[0] += 1
            await asyncio.sleep(0)

    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        task = group.create_task(others())
        yield count
        task.cancel()


async def test_a_large_answer_is_unpacked_in_steps() -> None:
    text = b"abcdefgh" * (1 << 17)
    async with turns() as others:
        assert await body_of(GZIP + gzip.compress(text)) == text
    assert others[0] >= len(text) // client_response.PIECE - 1


async def test_lines_that_came_at_once_are_read_in_steps() -> None:
    wire, _, answer = asked()
    wire.data_received(OK + b"\r\n")
    for _ in range(4):
        wire.data_received(b":\n" * 50_000)
    async with turns() as others:
        sizes = [len(await answer.read()) for _ in range(7)]
    assert sum(sizes) == 400_000
    assert max(sizes) <= client_response.PIECE
    assert others[0] >= len(sizes) - 1


async def test_events_that_came_at_once_are_heard_in_steps() -> None:
    count = 3000
    heard: list[Envelope] = []
    talk = Conversation(1 << 20, heard.append)
    flowing = asyncio.Event()
    flowing.set()
    exchange = Exchange(cast("Any", Road(modern=False)), talk, flowing, Pace())
    answer = ClientResponse(Holder())
    answer.begin(200, {"content-type": "text/event-stream"})
    answer.push(b'data: {"jsonrpc":"2.0","method":"notifications/x"}\n\n' * count)
    answer.push(b'data: {"jsonrpc":"2.0","id":1,"result":{}}\n\n')
    answer.finish()
    async with turns() as others:
        await exchange.read(OutgoingRequest(1, "tools/call", b"", NOTHING), answer)
    assert len(heard) == count
    assert others[0] >= count // client_response.EVENTS_AT_ONCE


async def test_events_that_take_long_are_heard_one_at_a_time() -> None:
    talk = Conversation(1 << 20, lambda message: time.sleep(2 * client_response.STEP))
    flowing = asyncio.Event()
    flowing.set()
    exchange = Exchange(cast("Any", Road(modern=False)), talk, flowing, Pace())
    answer = ClientResponse(Holder())
    answer.begin(200, {"content-type": "text/event-stream"})
    answer.push(b'data: {"jsonrpc":"2.0","method":"notifications/x"}\n\n' * 8)
    answer.push(b'data: {"jsonrpc":"2.0","id":1,"result":{}}\n\n')
    answer.finish()
    async with turns() as others:
        await exchange.read(OutgoingRequest(1, "tools/call", b"", NOTHING), answer)
    assert others[0] >= 8


def test_what_an_event_is_called_stays_short() -> None:
    reader = EventReader(1 << 20)
    long = b"x" * (NAME_BYTES + 1)
    events = list(reader.feed(b"id: 7\nid: %b\nevent: %b\ndata: a\n\n" % (long, long)))

    assert [event.name for event in events] == ["?"]
    assert reader.last_id == "7"


# A whole server


@pytest.mark.parametrize(
    ("start", "more", "words"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100, "too many interim responses"),
        (CHUNKED + b"1\r\na\r\n0\r\n", b"X: y\r\n" * 500, "its head is too large"),
        (OK + b"X: ", b"y" * 4000, "its head is too large"),
    ],
)
async def test_a_server_whose_answer_never_comes_to_its_point_costs_one_call(
    start: bytes, more: bytes, words: str
) -> None:
    async def act(request: Request, out: Hung) -> None:
        if request.body["params"]["arguments"]["text"] == "good":
            await out.reply(200, result(request))
            return
        await out.raw(start)
        for _ in range(1000):
            await out.raw(more)

    async with bad_http() as server, bench(url_spec(server.on("/x", act))) as workbench:
        assert words in str(await trouble(workbench, "bad"))
        assert await echo(workbench, "good") == "good"
