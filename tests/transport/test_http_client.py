"""Connections to one origin: counted, shared in turn, and given back."""

from __future__ import annotations

import asyncio
import socket

import pytest

from mcp_workbench.transport.http.client import BlockedAddress, HttpClient
from mcp_workbench.transport.http.client_response import ExchangeFailed, ResponseTimeout
from mcp_workbench.transport.http.urls import parse_url
from tests.kit.clock import PATIENCE, until
from tests.kit.servers.bad_http import BadHttp, Hung, Request, bad_http

BODY = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}'


async def post(client: HttpClient, path: bytes, patience: float | None = PATIENCE) -> bytes:
    answer = await client.send(b"POST " + path, b"", BODY, patience=patience)
    try:
        return await answer.whole(1 << 20, patience)
    finally:
        answer.close()


def to(bad: BadHttp, most: int = 4) -> HttpClient:
    return HttpClient(parse_url(bad.url("/")), {}, most)


async def test_more_requests_than_connections_take_turns() -> None:
    async with bad_http() as bad, asyncio.timeout(PATIENCE):
        client = to(bad, most=2)
        answers = await asyncio.gather(*(post(client, b"/ok") for _ in range(20)))
        client.close()

        assert all(b"ok" in answer for answer in answers)
        assert bad.connects == 2
        assert client.backlog == 0


async def test_who_leaves_the_queue_costs_nobody_his_turn() -> None:
    go = asyncio.Event()

    async def act(request: Request, out: Hung) -> None:
        await go.wait()
        await bad.good(request, out)

    async with bad_http() as bad, asyncio.timeout(PATIENCE):
        bad.acts["/gate"] = act
        client = to(bad, most=1)
        first, second, third = (asyncio.ensure_future(post(client, b"/gate")) for _ in range(3))
        await until(lambda: bool(bad.seen))
        assert client.backlog > 0
        second.cancel()
        go.set()
        await first
        await third
        client.close()

        assert client.backlog == 0


async def test_a_request_that_is_given_up_frees_its_place() -> None:
    async with bad_http() as bad, asyncio.timeout(PATIENCE):
        client = to(bad, most=1)
        with pytest.raises(ResponseTimeout):
            await post(client, b"/hang", 0.05)
        assert b"ok" in await post(client, b"/ok")
        client.close()


@pytest.mark.parametrize("seconds", [1, 3])
async def test_a_connection_is_given_up_before_its_server_does(seconds: int) -> None:
    async def act(request: Request, out: Hung) -> None:
        await out.reply(200, b"{}", Keep_Alive=f"timeout={seconds}")

    async with bad_http() as bad, asyncio.timeout(PATIENCE):
        bad.acts["/brief"] = act
        client = to(bad)
        await post(client, b"/brief")
        await post(client, b"/brief")
        client.close()

        assert bad.connects == (2 if seconds == 1 else 1)


async def test_what_nobody_asked_for_ends_a_connection() -> None:
    async with bad_http() as bad, asyncio.timeout(PATIENCE):
        client = to(bad)
        await post(client, b"/twice")
        await until(lambda: bad.open == 0)
        assert b"ok" in await post(client, b"/ok")
        client.close()

        assert bad.connects == 2


async def test_a_second_response_to_one_request_is_not_read_as_more_of_the_first() -> None:
    async def act(request: Request, out: Hung) -> None:
        await out.reply(200, b"{}")

    async def twice(request: Request, out: Hung) -> None:
        await act(request, out)
        await read.wait()
        await act(request, out)

    read = asyncio.Event()
    async with bad_http() as bad, asyncio.timeout(PATIENCE):
        bad.acts |= {"/one": act, "/two": twice}
        client = to(bad)
        for _ in range(2):
            await post(client, b"/one")
        answer = await client.send(b"POST /two", b"", BODY)
        read.set()
        await until(lambda: bad.open == 0)  # we have ended the connection
        body = await answer.whole(1 << 20)
        answer.close()
        client.close()

    assert body == b"{}"


async def test_a_failed_connection_lets_the_next_one_try() -> None:
    async with bad_http() as bad:
        port = bad.port
    async with asyncio.timeout(PATIENCE):
        client = HttpClient(parse_url(f"http://127.0.0.1:{port}/"), {}, 1)
        done = await asyncio.gather(
            *(post(client, b"/ok") for _ in range(3)), return_exceptions=True
        )

    assert [type(one) for one in done] == [ExchangeFailed] * 3
    assert not any(one.sent for one in done if isinstance(one, ExchangeFailed))


def read_whole(listener: socket.socket, size: int) -> None:
    """Take the connection that waits, read as much of it, and answer."""
    accepted, _ = listener.accept()
    with accepted:
        accepted.settimeout(PATIENCE)
        while size > 0:
            size -= len(accepted.recv(1 << 20))
        accepted.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        assert accepted.recv(1) == b""


async def test_a_body_that_the_server_does_not_read_counts_until_it_does() -> None:
    body = b"x" * (32 << 20)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        async with asyncio.timeout(PATIENCE):
            client = HttpClient(parse_url(f"http://127.0.0.1:{port}/"), {}, 1)
            waiting = asyncio.ensure_future(client.send(b"POST /", b"", body))
            await until(lambda: client.backlog == len(body))
            reading = asyncio.ensure_future(asyncio.to_thread(read_whole, listener, len(body)))
            answer = await waiting
            assert await answer.whole(100) == b"ok"
            answer.close()
            assert client.backlog == 0
            client.close()
            await reading


async def test_who_waits_for_a_connection_is_sent_away_when_all_are_closed() -> None:
    async with bad_http() as bad, asyncio.timeout(PATIENCE):
        client = to(bad, most=1)
        first, second = (asyncio.ensure_future(post(client, b"/hang")) for _ in range(2))
        await until(lambda: bool(bad.seen))
        client.close()
        done = await asyncio.gather(first, second, return_exceptions=True)

    assert [type(one) for one in done] == [ExchangeFailed, asyncio.CancelledError]
    assert client.backlog == 0


async def test_a_server_that_never_begins_to_encrypt_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mcp_workbench.transport.http.client.CONNECT", 0.1)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        async with asyncio.timeout(PATIENCE):
            client = HttpClient(parse_url(f"https://127.0.0.1:{port}/"), {}, 1)
            with pytest.raises(ExchangeFailed) as caught:
                await post(client, b"/ok")
            client.close()

    assert str(caught.value) == "no connection within 0.1 s"
    assert not caught.value.sent


async def test_a_server_that_speaks_another_protocol_from_now_on_is_left() -> None:
    async def act(request: Request, out: Hung) -> None:
        lines = b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        await out.raw(b"HTTP/1.1 101 Switching Protocols\r\n" + lines)
        await asyncio.Event().wait()

    async with bad_http() as bad, asyncio.timeout(PATIENCE):
        bad.acts["/switch"] = act
        client = to(bad, most=1)
        with pytest.raises(ExchangeFailed) as caught:
            await post(client, b"/switch")
        assert b"ok" in await post(client, b"/ok")
        client.close()

    assert str(caught.value) == "the server switched to another protocol"


@pytest.mark.parametrize("allowed", [True, False])
async def test_an_address_that_is_not_allowed_is_not_connected_to(allowed: bool) -> None:
    looked: list[str] = []

    def allows(address: str) -> bool:
        looked.append(address)
        return allowed

    async with bad_http() as bad, asyncio.timeout(PATIENCE):
        client = HttpClient(parse_url(bad.url("/")), {}, 1, allows)
        if allowed:
            assert b"ok" in await post(client, b"/ok")
        else:
            with pytest.raises(BlockedAddress) as caught:
                await post(client, b"/ok")
            assert str(caught.value) == "127.0.0.1 is no address on the public internet"
            assert not caught.value.sent
        client.close()

        assert looked == ["127.0.0.1"]
        assert bad.connects == allowed
