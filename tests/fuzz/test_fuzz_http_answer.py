"""Answers over HTTP: read whole and right, or broken in the documented way."""

# What is made up has no types.
# pyright: basic

from __future__ import annotations

import asyncio
import gzip
import zlib
from typing import Any

from hypothesis import strategies as st

from mcp_workbench.transport.http.client import ClientConnection
from mcp_workbench.transport.http.client_response import HIGH, ExchangeFailed, ResponseTooLarge
from mcp_workbench.upstream.http.requests import LONGEST_WAIT, retry_after
from tests.fuzz.effort import fuzzed, size
from tests.fuzz.material import cuts, in_chunks, mutated
from tests.kit.clock import PATIENCE

LIMIT = 100_000

Outcome = tuple[int, str, bytes]  # status, how it ended, body

bodies = st.binary(max_size=size(60)) | st.binary(max_size=20).map(lambda part: part * 3000)
packers = st.sampled_from(["", "gzip", "deflate", "two members"])


class Transport(asyncio.Transport):
    """The near end of a connection whose far end is the test."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False
        self.paused = False

    def write(self, data: Any) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


class Keeper:
    def __init__(self) -> None:
        self.free: list[ClientConnection] = []

    def received(self) -> None:
        pass

    def freed(self, connection: ClientConnection) -> None:
        self.free.append(connection)

    def lost(self, connection: ClientConnection) -> None:
        pass

    def weighed(self, bytes: int) -> None:
        pass


def packed(body: bytes, how: str) -> bytes:
    match how:
        case "gzip":
            return gzip.compress(body, 6, mtime=0)
        case "deflate":
            return zlib.compress(body)
        case "two members":
            half = len(body) // 2
            return gzip.compress(body[:half], mtime=0) + gzip.compress(body[half:], mtime=0)
        case _:
            return body


def written(body: bytes, how: str, frame: str, chunk: int) -> bytes:
    coding = how and f"Content-Encoding: {'deflate' if how == 'deflate' else 'gzip'}\r\n"
    data = packed(body, how)
    lines = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{coding}"
    match frame:
        case "length":
            return f"{lines}Content-Length: {len(data)}\r\n\r\n".encode() + data
        case "chunks":
            pieces = [data[n : n + chunk] for n in range(0, len(data), chunk)]
            sent = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in [*pieces, b""])
            return f"{lines}Transfer-Encoding: chunked\r\n\r\n".encode() + sent
        case _:
            return f"{lines}Connection: close\r\n\r\n".encode() + data


RUNNER = asyncio.Runner()  # one loop for all examples: making one costs more than most of them

frames = st.sampled_from(["length", "chunks", "end"])
answers = st.builds(written, bodies, packers, frames, st.integers(1, 5000))


async def hear(chunks: list[bytes], limit: int) -> Outcome:
    """What comes of these bytes, after which the server hangs up."""
    wire, transport = ClientConnection(Keeper()), Transport()
    wire.connection_made(transport)
    answer = wire.ask(b"GET / HTTP/1.1\r\n\r\n")
    for chunk in chunks:
        if not transport.closed:
            wire.data_received(chunk)
        assert transport.paused == (answer._size > HIGH) or transport.closed
    wire.connection_lost(None)
    try:
        await answer.head(None)
        body = await answer.whole(limit)
    except ResponseTooLarge:
        return answer.status, "too large", b""
    except ExchangeFailed:
        return answer.status, "broken", b""
    assert len(body) <= limit
    return answer.status, "whole", body


def heard(chunks: list[bytes], limit: int = LIMIT) -> Outcome:
    return RUNNER.run(asyncio.wait_for(hear(chunks, limit), PATIENCE))


@fuzzed(bodies, packers, frames, st.integers(1, 5000), cuts)
def test_an_answer_arrives_whole(
    body: bytes, how: str, frame: str, chunk: int, at: list[int]
) -> None:
    data = written(body, how, frame, chunk)

    assert heard(in_chunks(data, at)) == (200, "whole", body)


@fuzzed(mutated(answers), cuts)
def test_any_answer_is_whole_or_broken_whatever_the_chunks(data: bytes, at: list[int]) -> None:
    assert heard(in_chunks(data, at)) == heard([data])


@fuzzed(bodies, packers, frames, st.integers(0, 30_000))
def test_no_more_than_the_cap_is_kept(body: bytes, how: str, frame: str, limit: int) -> None:
    outcome = heard([written(body, how, frame, 1000)], limit)

    assert outcome == ((200, "whole", body) if len(body) <= limit else (200, "too large", b""))


@fuzzed(mutated(bodies.map(lambda body: packed(body, "gzip")), 2), cuts)
def test_what_is_unpacked_is_what_was_packed(data: bytes, at: list[int]) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n"
    _, how, body = heard([head, *in_chunks(data, at)], 1 << 24)

    if how != "whole":
        return
    engine = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
    first = engine.decompress(data)
    assert body.startswith(first)
    assert engine.eof or not data


dates = st.sampled_from(
    ["Sun, 15 Nov 2026 08:00:00 GMT", "5", "0", " 7 ", "-1", "1e9", "9" * 50, "1²"]
)


@fuzzed(
    mutated(dates.map(lambda text: text.encode("latin-1"))) | st.binary(max_size=12),
    st.floats(0, 2e9),
)
def test_a_wait_is_a_sensible_time_or_none(text: bytes, now: float) -> None:
    wait = retry_after({"retry-after": text.decode("latin-1")}, now)

    assert wait is None or 0 <= wait <= LONGEST_WAIT
