"""Sessions that modern requests leave for those to come: few, each for one `_meta` of one principal, none after the port."""

# It looks at what is kept.
# pyright: basic

from __future__ import annotations

import json
from typing import Any

import pytest

from mcp_workbench.core.spec import HttpSettings, NamedToken
from mcp_workbench.server.http.modern import FREE, ModernExchange, ModernExchanges
from tests.kit.clock import until
from tests.kit.http_host import OwnPort, Peer, port
from tests.kit.results import ENVELOPE, META, use_tool

ANN, BEN = "token-of-ann-with-32-characters!", "token-of-ben-with-32-characters!"


def exchanges(opened: OwnPort) -> ModernExchanges:
    return opened.front._exchanges


def kept(opened: OwnPort) -> list[ModernExchange]:
    return [one for free in exchanges(opened)._free.values() for one in free]


def named(client: str, **more: Any) -> dict[str, Any]:
    """A `_meta` of this client."""
    return {**ENVELOPE, META + "clientInfo": {"name": client, "version": "1"}, **more}


def call(opened: OwnPort, meta: Any, text: str = "hi", tool: str = "echo", **headers: Any) -> bytes:
    params = {**use_tool("fixture", tool, {"text": text, "n": 1}), "_meta": meta}
    return opened.request(*opened.modern("tools/call", params, **headers))


async def settle(peer: Peer, *requests: bytes) -> None:
    for request in requests:
        peer.send(request)
        assert (await peer.answer()).status == 200


async def test_a_session_is_kept_and_used_again() -> None:
    async with port() as opened:
        peer = await opened.connect()
        await settle(peer, *(call(opened, named("a")) for _ in range(3)))
        (first,) = kept(opened)
        await settle(peer, *(call(opened, named("a")) for _ in range(3)))

        assert kept(opened) == [first]
        assert not exchanges(opened).busy


async def test_two_kinds_of_meta_never_share_a_session() -> None:
    elicits = {META + "clientCapabilities": {"elicitation": {}}}
    metas = [named("a"), named("b"), named("a", **elicits), named("a", extra=1)]
    owners = (NamedToken("ann", ANN), NamedToken("ben", BEN, ("dev",)))
    async with port(http=HttpSettings(tokens=owners)) as opened:
        for token in (ANN, BEN):
            for meta in metas:
                peer = await opened.connect()
                request = call(opened, meta, authorization=f"Bearer {token}")
                await settle(peer, *[request] * 4)

        free = exchanges(opened)._free
        assert len(free) == 2 * len(metas)
        assert len({id(one.session) for one in kept(opened)}) == len(kept(opened)) == 2 * len(metas)
        for (endpoint, meta), (exchange,) in free.items():
            session = exchange.session
            declared = json.loads(meta)
            assert session._known_meta[0] == meta
            assert session.host[0] == declared[META + "clientInfo"]["name"]
            told = json.loads(bytes(session.elicitation.declared))
            assert told.pop("extensions")
            assert told == declared[META + "clientCapabilities"]
            assert session.view.principal == endpoint._view.principal


async def test_one_connection_with_another_meta_in_each_call_keeps_none() -> None:
    async with port() as opened:
        peer = await opened.connect()
        for number in range(20):
            await settle(peer, call(opened, named("a", progressToken=number)))

        assert kept(opened) == []


async def test_the_sessions_that_are_kept_are_bounded() -> None:
    async with port() as opened:
        for number in range(FREE + 10):
            peer = await opened.connect()
            await settle(peer, *(call(opened, named(f"host {number}")) for _ in range(2)))
            opened.close()
            assert exchanges(opened)._free_count == len(kept(opened)) <= FREE

        assert len(kept(opened)) >= 1


async def test_nothing_is_left_of_a_meta_whose_session_was_given_up() -> None:
    async with port() as opened:
        peer = await opened.connect()
        await settle(peer, *(call(opened, named("a")) for _ in range(2)))
        (first,) = kept(opened)
        peer.send(call(opened, named("a"), tool="hang"))
        await until(lambda: exchanges(opened).busy)
        peer.close()
        await until(lambda: not exchanges(opened).busy)

        assert exchanges(opened)._free == {}
        assert exchanges(opened)._free_count == 0
        assert not first.session.under_way


async def test_the_sessions_that_are_kept_are_closed_with_the_port() -> None:
    async with port() as opened:
        listeners = opened.front.gateway._listeners
        before = len(listeners)
        peer = await opened.connect()
        await settle(peer, *(call(opened, named("a")) for _ in range(3)))
        assert len(listeners) == before + len(kept(opened)) > before
        opened.front.close()

        assert kept(opened) == []
        assert len(listeners) == before
        assert exchanges(opened)._free_count == 0


@pytest.mark.parametrize("id", [b"1.5", b"null", b"true", b"[1]", b"{}"])
async def test_an_id_that_is_none_is_refused_under_a_repeated_head_as_well(id: bytes) -> None:
    async with port() as opened:
        peer = await opened.connect()
        await settle(peer, *(call(opened, named("a")) for _ in range(3)))
        body, headers = opened.modern(
            "tools/call", {**use_tool("fixture", "echo", {"text": "x"}), "_meta": named("a")}
        )
        number = body.rpartition(b'"id": ')[2].removesuffix(b"}")
        peer.send(opened.request(body.replace(b'"id": ' + number, b'"id": ' + id), headers))

        assert (await peer.answer()).status == 400
        assert not exchanges(opened).busy
