"""Whoever runs the engine, or reaches the internal port, gets nowhere with bytes of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.cluster.census import member_name, read_census
from mcp_workbench.cluster.forwarding import MOST_HOPS, read_request
from mcp_workbench.cluster.keys import ValueSeal, derive
from mcp_workbench.cluster.link import AcceptedLink, ConnectingLink, LinkBroken
from mcp_workbench.cluster.placed_links import ATTACH, read_attach
from mcp_workbench.cluster.records import (
    LONGEST_MEMBER,
    LONGEST_SESSION,
    ReplicaAddress,
    SessionRecord,
    read_record,
    session_name,
    write_record,
)
from mcp_workbench.cluster.resp import EngineError
from mcp_workbench.cluster.shared_credentials import SharedCredential
from mcp_workbench.cluster.shared_results import ResultRecord
from mcp_workbench.upstream.oauth.store import LARGEST

KEY = b"0123456789abcdef0123456789abcdef"
RECORD = SessionRecord("s", "a", 1, "alice", "/mcp", b"{}", "127.0.0.1", 1, ("dev",), b'"info"')
ID, OTHER = "0123456789ab", "ba9876543210"


@given(st.binary(max_size=300))
def test_a_value_that_no_replica_wrote_does_not_exist(value: bytes) -> None:
    assert ValueSeal(KEY).open(b"name", value) is None
    kinds = ((SessionRecord, LONGEST_SESSION), (ReplicaAddress, LONGEST_MEMBER))
    more = ((ResultRecord, LONGEST_SESSION), (SharedCredential, LARGEST))
    for kind, longest in (*kinds, *more):
        record = read_record(kind, value, longest)
        assert record is None or isinstance(record, kind)
    request = read_request(value)
    assert request is None or 0 < request.hops <= MOST_HOPS
    attach = read_attach(ATTACH + value)
    assert attach is None or isinstance(attach.server, str)


REPLY = st.recursive(
    st.none() | st.integers() | st.binary(max_size=40) | st.sampled_from([b"9" * 5000, b"1", b""]),
    lambda inner: st.lists(inner, max_size=7),
    max_leaves=12,
)


@given(REPLY)
def test_any_reply_tells_who_lives_or_is_an_error(reply: object) -> None:
    try:
        census = read_census(reply, ValueSeal(KEY))
    except EngineError:
        return
    assert census.members == {}


def test_a_replica_with_another_key_is_counted_and_not_believed() -> None:
    member = write_record(ReplicaAddress(ID, "127.0.0.1", 1))
    own = ValueSeal(KEY).close(member_name(ID), member)
    foreign = ValueSeal(KEY[::-1]).close(member_name(OTHER), member)
    time_and_members = [b"1790000000", b"5", ID.encode(), own, OTHER.encode(), foreign]

    census = read_census(time_and_members, ValueSeal(KEY))

    assert list(census.members) == [ID]
    assert census.strangers == 1
    assert read_census([*time_and_members, OTHER.encode(), own], ValueSeal(KEY)).strangers == 2


@given(st.integers(0, 200), st.integers(1, 255))
def test_a_value_that_was_changed_does_not_exist(at: int, change: int) -> None:
    sealed = bytearray(ValueSeal(KEY).close(b"name", write_record(RECORD)))
    sealed[at % len(sealed)] ^= change

    assert ValueSeal(KEY).open(b"name", bytes(sealed)) is None


def test_a_value_can_be_read_with_its_name_and_key_alone() -> None:
    sealed = ValueSeal(KEY).close(b"name", write_record(RECORD))

    opened = ValueSeal(KEY).open(b"name", sealed)
    assert read_record(SessionRecord, opened, LONGEST_SESSION) == RECORD
    assert ValueSeal(KEY).open(b"other", sealed) is None
    assert ValueSeal(KEY[::-1]).open(b"name", sealed) is None
    assert b"alice" not in sealed


def test_names_and_keys_tell_nothing_about_what_they_are_made_from() -> None:
    assert "s3cret" not in session_name("s3cret")
    assert derive(KEY, b"a") != derive(KEY, b"b")
    assert KEY not in derive(KEY, b"a")


class Recorder:
    """The serving side of a link: notes what reaches it."""

    def __init__(self) -> None:
        self.opened_streams: list[bytes] = []
        self.links: list[AcceptedLink] = []

    def opened(self, link: AcceptedLink, stream: int, payload: bytes) -> None:
        self.opened_streams.append(payload)

    def more(self, link: AcceptedLink, stream: int, payload: bytes) -> None: ...

    def gone(self, link: AcceptedLink, stream: int) -> None: ...

    def asked(self, link: AcceptedLink, stream: int, payload: bytes) -> None:
        link.frame(7, stream, payload)

    def closed(self, link: AcceptedLink) -> None: ...


async def linked(key: bytes, named: str, recorder: Recorder) -> bytes:
    """The answer to a question over a link with this key, to a replica of this id."""
    loop = asyncio.get_running_loop()

    def accept() -> AcceptedLink:
        recorder.links.append(AcceptedLink(KEY, 1 << 20, ID, recorder))
        return recorder.links[-1]

    server = await loop.create_server(accept, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        link = ConnectingLink(key, 1 << 20, OTHER, named)
        await loop.create_connection(lambda: link, "127.0.0.1", port)
        try:
            await link.ready
            return await link.ask(b"there?", 5.0)
        finally:
            link.abort()
            for accepted in recorder.links:
                accepted.abort()


def test_two_replicas_with_the_same_key_understand_each_other() -> None:
    assert asyncio.run(linked(KEY, ID, Recorder())) == b"there?"


@pytest.mark.parametrize(("key", "named"), [(b"x" * 32, ID), (KEY, OTHER)])
def test_another_key_or_another_replica_is_refused(key: bytes, named: str) -> None:
    with pytest.raises(LinkBroken):
        asyncio.run(linked(key, named, Recorder()))


def sent(data: Callable[[bytes], bytes]) -> tuple[bytes, Recorder]:
    """What the internal port answers to bytes that are made from its first answer."""
    recorder = Recorder()

    async def scene() -> bytes:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: AcceptedLink(KEY, 1 << 20, ID, recorder), "127.0.0.1", 0
        )
        async with server:
            port = server.sockets[0].getsockname()[1]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(data(b""))
                async with asyncio.timeout(20):
                    return await reader.read()
            except ConnectionError:
                return b""
            finally:
                writer.close()

    return asyncio.run(scene()), recorder


@pytest.mark.parametrize(
    "data",
    [
        b"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer alice-token\r\n\r\n",
        b'POST /mcp HTTP/1.1\r\n\r\n{"jsonrpc":"2.0"}',
        b"MCPWB1" + OTHER.encode() + ID.encode() + b"r" * 16 + b"m" * 32 + b"\0\0\0\x10" * 40,
        b"MCPWB1" + OTHER.encode() * 2 + b"r" * 16,
        b"\0" * 200_000,
    ],
)
def test_a_stranger_gets_nothing_from_the_internal_port(data: bytes) -> None:
    answer, recorder = sent(lambda _: data)

    assert len(answer) in (0, 48)  # at most the other side of the handshake
    assert recorder.opened_streams == []


@given(st.binary(max_size=120))
def test_any_bytes_after_the_handshake_end_the_connection_or_wait(data: bytes) -> None:
    async def scene() -> None:
        recorder = Recorder()
        link = AcceptedLink(KEY, 1 << 20, ID, recorder)
        link._agree(b"transcript", connects=False)  # pyright: ignore[reportPrivateUsage]
        link.data_received(data)
        link.abort()
        assert recorder.opened_streams == []

    asyncio.run(scene())
