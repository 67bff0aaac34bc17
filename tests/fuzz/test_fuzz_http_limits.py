"""Parts of HTTP without end, in any order and cut anywhere: whoever reads them keeps within its limits."""

# What is made up has no types.
# pyright: basic

from __future__ import annotations

import asyncio
import gzip
from typing import Any, cast

import msgspec
import pytest
from hypothesis import strategies as st

from mcp_workbench.transport import jsonrpc
from mcp_workbench.transport.http import client, reading, server
from mcp_workbench.transport.http.client import ClientConnection
from mcp_workbench.transport.http.client_response import HIGH, ExchangeFailed
from mcp_workbench.transport.http.server import HttpConnection
from mcp_workbench.transport.jsonrpc import BATCH, Malformed
from tests.fuzz.effort import fuzzed
from tests.fuzz.material import cuts, in_chunks, mutated, values, writers
from tests.fuzz.test_fuzz_conversation import no_fault_of_ours
from tests.fuzz.test_fuzz_http_answer import Keeper
from tests.fuzz.test_fuzz_http_answer import Transport as FarTransport
from tests.fuzz.test_fuzz_http_requests import BODY, Port
from tests.fuzz.test_fuzz_http_requests import Transport as NearTransport
from tests.kit.clock import PATIENCE

RUNNER = asyncio.Runner()
LIMIT = 100_000

amounts = st.integers(1, 200) | st.sampled_from([5_000, 20_000])


def repeated(*units: bytes) -> st.SearchStrategy[bytes]:
    return st.builds(lambda unit, count: unit * min(count, 150_000 // len(unit)), st.sampled_from(units), amounts)  # fmt: skip


def sequences(*parts: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return mutated(st.lists(st.one_of(*parts), max_size=6).map(b"".join), 2)


lines = repeated(
    b"a:\r\n", b"b: %b\r\n" % (b"x" * 500), b"c", b": ", b"x", b"\r\n", b"\r\n\r\n", b"\0"
)
chunks = repeated(b"1\r\na\r\n", b"0\r\n", b"1;", b"x", b"0", b"ff;x=y\r\n%b\r\n" % (b"a" * 255))
requests = repeated(
    b"POST /a HTTP/1.1\r\n", b"GET /stream HTTP/1.1\r\n\r\n", b"GET /no HTTP/1.1\r\n\r\n", b"GET / HTTP/1.0\r\n\r\n",
    b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: 300\r\n\r\n",
    b"POST / HTTP/1.1\r\nExpect: x\r\n",
)  # fmt: skip
answers = repeated(
    b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 300\r\n\r\n",
)  # fmt: skip
packed = repeated(
    gzip.compress(b"", mtime=0), gzip.compress(b"x", mtime=0), gzip.compress(b"x" * 99_999, mtime=0), b"\0\0\0\xff\xff",
    b"\x1f\x8b\x08\x08", b"\0",
)  # fmt: skip


async def sent_by_a_host(data: bytes, at: list[int]) -> None:
    port, transport = Port(asyncio.get_running_loop()), NearTransport()
    connection = HttpConnection(cast("Any", port))
    connection.connection_made(transport)
    for chunk in in_chunks(data, at):
        if transport.ended:
            break
        connection.data_received(chunk)
        assert connection._loose <= reading.HEAD_BYTES or connection.deaf
        assert len(connection._waiting) <= server.PIPELINED or transport.ended
        assert 0 <= connection._held == port.held <= BODY + reading.HEAD_BYTES
        await asyncio.sleep(0)
    connection.connection_lost(None)
    assert port.under_way == port.held == 0


@fuzzed(sequences(requests, lines, chunks), cuts)
def test_no_host_goes_beyond_the_limits(data: bytes, at: list[int]) -> None:
    with no_fault_of_ours():
        RUNNER.run(sent_by_a_host(data, at))


async def sent_by_a_server(data: bytes, at: list[int]) -> None:
    wire, transport = ClientConnection(Keeper()), FarTransport()
    wire.connection_made(transport)
    answer = wire.ask(b"GET / HTTP/1.1\r\n\r\n")
    for chunk in in_chunks(data, at):
        if not transport.closed:
            wire.data_received(chunk)
        assert wire._loose <= client.HEAD_BYTES or transport.closed
        assert wire._heads <= client.INTERIM + 1 or transport.closed
        assert answer._size <= HIGH + len(chunk) or transport.paused
    wire.connection_lost(None)
    try:
        async with asyncio.timeout(PATIENCE):
            await answer.head(None)
            assert len(await answer.whole(LIMIT)) <= LIMIT
    except ExchangeFailed:
        pass


@fuzzed(sequences(answers, lines, chunks, packed), cuts)
def test_no_server_goes_beyond_the_limits(data: bytes, at: list[int]) -> None:
    with no_fault_of_ours():
        RUNNER.run(sent_by_a_server(data, at))


members = st.lists(st.builds(lambda write, value: write(value), writers, values), max_size=4)


@fuzzed(mutated(st.builds(lambda some, count: b"[" + b",".join(some * count) + b"]", members, st.sampled_from([1, 1, 2, 200, 400])), 1))  # fmt: skip
def test_a_batch_is_its_members_or_refused(line: bytes) -> None:
    try:
        expected = [bytes(one) for one in msgspec.json.decode(line, type=list[msgspec.Raw])]
    except (msgspec.DecodeError, RecursionError):
        expected = None
    if expected is None or len(expected) > BATCH:
        with pytest.raises(Malformed):
            jsonrpc.read_batch(line)
    else:
        assert jsonrpc.read_batch(line) == expected
