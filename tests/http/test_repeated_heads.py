"""A connection that repeats its head: what was decided for it holds for exactly these bytes, and no longer than its reasons."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mcp_workbench.core.spec import HttpSettings, Limits
from mcp_workbench.server.http.access import Access, Principals, names_of
from mcp_workbench.transport.http.messages import RepeatedHead
from tests.kit.clock import until
from tests.kit.config import snapshot, spec
from tests.kit.http_host import Answer, OwnPort, Peer, Session, port
from tests.kit.results import use_tool

TOKEN = "a-token-of-thirty-two-characters"
OTHER = "another-token-of-32-characters!!"
BEARER = {"authorization": f"Bearer {TOKEN}"}

# Each header that decides something, with a value that does not pass, and the status of its refusal.
WRONG: list[tuple[str, Any, int]] = [
    ("host", "evil.example", 421),
    ("host", None, 421),
    ("origin", "https://evil.example", 403),
    ("authorization", "Bearer wrong", 401),
    ("authorization", None, 401),
    ("accept", "application/json", 406),
    ("accept", None, 406),
    ("content-type", "text/plain", 415),
    ("content-type", None, 415),
    ("content-length", "3000", 413),
    ("mcp-session-id", "unknown", 404),
    ("mcp-session-id", None, 400),
    ("transfer-encoding", "gzip", 400),
    ("expect", "something", 417),
]
MODERN_WRONG: list[tuple[str, Any, int]] = [
    *WRONG[:10],
    ("mcp-protocol-version", "2025-06-18", 400),
    ("mcp-protocol-version", "2030-01-01", 400),
    ("mcp-method", "tools/list", 400),
    ("mcp-method", None, 400),
    ("mcp-name", "open_toolbox", 400),
    ("mcp-name", None, 400),
]


@asynccontextmanager
async def guarded() -> AsyncGenerator[OwnPort]:
    """A port with a token and a small limit."""
    configuration = snapshot(spec("fixture"), limits=Limits(message_bytes=2048))
    async with port(configuration, HttpSettings(TOKEN)) as opened:
        yield opened


def call(session: Session, text: str, **headers: Any) -> bytes:
    body = session.ask("tools/call", use_tool("fixture", "echo", {"text": text}))
    return session.request(body, **headers)


def modern_call(opened: OwnPort, text: str, **headers: Any) -> bytes:
    params = use_tool("fixture", "echo", {"text": text})
    body, whole = opened.modern("tools/call", params, **headers)
    return opened.request(body, {**BEARER, **whole})


def echoed(answer: Answer) -> str:
    return answer.json_text["arguments"]["text"]


def repeats(opened: OwnPort) -> bool:
    """Whether the one connection of this port has a head that it takes without parsing."""
    (connection,) = opened.server.connections
    return connection.repeats


async def settle(peer: Peer, *requests: bytes) -> None:
    """Send these requests one after the other; each succeeds."""
    for request in requests:
        peer.send(request)
        assert (await peer.answer()).status == 200


@pytest.mark.parametrize(("header", "value", "status"), WRONG)
async def test_one_other_header_is_judged_on_its_own(header: str, value: Any, status: int) -> None:
    async with guarded() as opened:
        session = await opened.open(**BEARER)
        opened.close()
        peer = await opened.connect()
        await settle(peer, *(call(session, text) for text in ("a", "bb", "ccc")))
        assert repeats(opened)

        peer.send(call(session, "dddd", **{header: value}))

        assert (await peer.answer()).status == status


@pytest.mark.parametrize(("header", "value", "status"), MODERN_WRONG)
async def test_one_other_header_of_a_modern_request_is_judged_on_its_own(
    header: str, value: Any, status: int
) -> None:
    async with guarded() as opened:
        peer = await opened.connect()
        await settle(peer, *(modern_call(opened, text) for text in ("a", "bb", "ccc")))
        assert repeats(opened)

        peer.send(modern_call(opened, "dddd", **{header: value}))

        assert (await peer.answer()).status == status


async def test_another_body_under_the_same_modern_head_is_checked() -> None:
    async with guarded() as opened:
        peer = await opened.connect()
        await settle(peer, *(modern_call(opened, text) for text in ("a", "b")))
        body, headers = opened.modern("tools/call", use_tool("fixture", "echo", {"text": "c"}))
        wrong = body.replace(b'"name": "use_tool"', b'"name": "open_toolbox"')
        old = body.replace(b"2026-07-28", b"2026-01-01")
        assert body not in (wrong, old)

        for other in (wrong, old):
            peer.send(opened.request(other, {**BEARER, **headers}))
            answer = await peer.answer()
            assert (answer.status, answer.error["code"]) == (400, -32020)


@pytest.mark.parametrize(
    ("start", "status"),
    [(b"POST /mcp/dev ", 404), (b"POST /mcpx ", 404), (b"POST /mcp/no ", 404), (b"PUT /mcp ", 405)],
)
async def test_another_path_or_verb_is_judged_on_its_own(start: bytes, status: int) -> None:
    async with guarded() as opened:
        session = await opened.open(**BEARER)
        opened.close()
        peer = await opened.connect()
        await settle(peer, call(session, "a"), call(session, "b"))

        peer.send(call(session, "c").replace(b"POST /mcp ", start))

        assert (await peer.answer()).status == status


async def test_a_revoked_token_ends_with_the_next_request() -> None:
    async with guarded() as opened:
        session = await opened.open(**BEARER)
        opened.close()
        peer = await opened.connect()
        await settle(peer, call(session, "a"), call(session, "b"))
        names = names_of("127.0.0.1", opened.server.port, ())

        opened.front.access = Access(names, (), Principals(OTHER))
        peer.send(call(session, "c"))

        assert (await peer.answer()).status == 401


async def test_a_toolbox_that_was_removed_is_gone_for_a_connection_that_used_it() -> None:
    async with port() as opened:
        peer = await opened.connect()
        params = use_tool("fixture", "echo", {"text": "a"})

        def request() -> bytes:
            return opened.request(*opened.modern("tools/call", params), path="/mcp/dev")

        await settle(peer, request(), request())
        assert repeats(opened)
        opened.front.gateway.reload(snapshot(spec("other", toolbox="ops")))

        peer.send(request())

        assert (await peer.answer()).status == 404


async def test_a_session_that_was_ended_is_gone_for_a_connection_that_used_it() -> None:
    async with port() as opened:
        session = await opened.open()
        opened.close()
        peer = await opened.connect()
        await settle(peer, call(session, "a"), call(session, "b"))
        assert (await session.post(b"", "DELETE")).status == 200

        peer.send(call(session, "c"))

        assert (await peer.answer()).status == 404


async def test_while_the_workbench_ends_new_requests_are_refused_here_as_well() -> None:
    async with port() as opened:
        session = await opened.open()
        opened.close()
        peer = await opened.connect()
        await settle(peer, call(session, "a"), call(session, "b"))

        opened.front.stop()
        peer.send(call(session, "c"))

        assert (await peer.answer()).status == 503


async def test_bodies_of_any_size_and_cut_are_read_the_same() -> None:
    async with port() as opened:
        session = await opened.open()
        opened.close()
        peer = await opened.connect()
        texts = ["x" * size for size in (1, 10, 1000, 9000, 70_000, 400_000, 5)]
        for text in texts:
            request = call(session, text)
            middle = len(request) // 2
            for parts in ((request,), (request[:middle], request[middle:])):
                for part in parts:
                    peer.send(part)
                    await asyncio.sleep(0.01 if len(parts) > 1 else 0)
                assert echoed(await peer.answer()) == text
                request = call(session, text)


async def test_two_requests_in_one_piece_are_two() -> None:
    async with port() as opened:
        session = await opened.open()
        opened.close()
        peer = await opened.connect()
        await settle(peer, call(session, "a"), call(session, "b"))

        peer.send(call(session, "c") + call(session, "d"))

        assert [echoed(await peer.answer()) for _ in "cd"] == ["c", "d"]


async def test_a_length_that_does_not_fit_is_left_to_the_parser() -> None:
    async with port() as opened:
        session = await opened.open()
        opened.close()
        peer = await opened.connect()
        await settle(peer, call(session, "a"), call(session, "b"))
        request = call(session, "c")
        head, _, body = request.partition(b"\r\n\r\n")

        peer.send(request + b"GET /healthz HTTP/1.1\r\nHost: " + opened.name.encode() + b"\r\n\r\n")
        assert (await peer.answer()).status == 200
        assert (await peer.answer()).body == b"ok"
        peer.send(head.replace(b"content-length: ", b"content-length: -") + b"\r\n\r\n" + body)
        assert (await peer.answer()).status == 400


@pytest.mark.parametrize("cut", [1, 12, -1])
async def test_what_was_read_with_the_end_of_something_else_is_no_head(cut: int) -> None:
    async with port() as opened:
        session = await opened.open()
        opened.close()
        peer = await opened.connect()
        first, second = (session.request(session.ask("ping")) for _ in "ab")
        await settle(peer, first)
        whole = first + second if cut < 0 else first
        end = len(first) - 1 if cut < 0 else cut
        (connection,) = opened.server.connections
        peer.send(whole[:end])
        await until(lambda: not connection.is_idle)  # until these bytes have arrived
        peer.send(whole[end:])
        for _ in range(2 if cut < 0 else 1):
            assert (await peer.answer()).status == 200

        peer.send(whole[end:])

        assert (await peer.answer()).status == 400


HEAD = b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nAccept: b\r\n\r\n"


@pytest.mark.parametrize(
    "data",
    [
        HEAD.replace(b"2", b"") + b"{}",
        HEAD.replace(b"2", b"3") + b"{}",
        HEAD.replace(b"2", b"1") + b"{}",
        HEAD.replace(b"2", b"+2") + b"{}",
        HEAD.replace(b"2", b"2 ") + b"{}",
        HEAD.replace(b"2", b"0x2") + b"{}",
        HEAD.replace(b"2", b"2\r\nContent-Length: 2") + b"{}",
        HEAD.replace(b"2", "\u0662".encode()) + b"{}",
        HEAD.replace(b"2", b"2" * 5000) + b"{}",
        HEAD.replace(b"\r\nAccept", b"\nAccept") + b"{}",
        HEAD.replace(b"Accept: b", b"Accept: b, c") + b"{}",
        HEAD + b"{} ",
        HEAD + b"{",
        HEAD[:-1],
        b"",
    ],
)
def test_only_a_whole_message_with_the_same_head_is_taken(data: bytes) -> None:
    head = RepeatedHead.of(HEAD + b"{}", 2, 3)
    assert head is not None

    assert head.body(data) is None
    assert head.body(HEAD + b"[]") == b"[]"
    assert head.body(HEAD.replace(b"2", b"12") + b"x" * 12) == b"x" * 12


@pytest.mark.parametrize(
    ("data", "size", "lines"),
    [
        (b"\r\n" + HEAD + b"{}", 2, 3),  # an empty line before it
        (HEAD + b"{}", 0, 3),  # the body is part of what would be the head
        (HEAD + b"{}\r\n", 2, 3),
        (HEAD + b"{}", 2, 2),  # a line that was not counted
        (HEAD.replace(b"\r\nAccept", b"\nAccept") + b"{}", 2, 3),
        (HEAD.replace(b"Content-Length: 2\r\n", b"") + b"{}", 2, 2),
    ],
)
def test_what_is_unusual_is_not_remembered(data: bytes, size: int, lines: int) -> None:
    assert RepeatedHead.of(data, size, lines) is None
