"""Addresses that a server names for sign-in: none on this machine or its network is ever connected to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress

import pytest

from mcp_workbench.protocol.oauth import SignInFailed
from mcp_workbench.transport.http.addresses import is_public
from mcp_workbench.transport.http.urls import proxy_for
from mcp_workbench.upstream.oauth.outgoing import Outgoing
from tests.kit.clock import PATIENCE

PRIVATE = [
    *("0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.254"),
    *("127.0.0.1", "127.1.2.3", "169.254.169.254", "172.16.0.1", "172.31.255.255"),
    *("192.168.0.1", "192.168.255.255", "192.0.0.1", "192.0.2.1", "198.18.0.1", "198.51.100.1"),
    *("203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255"),
    *("::", "::1", "fc00::1", "fdff::1", "fe80::1", "fe80::1%eth0", "ff02::1", "fec0::1"),
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1", "::7f00:1"),
    *("64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::1", "2002:a00:1::"),
    *("2001::1", "2001:db8::1", "100::1", "localhost", "", "1", "0x7f000001", "127.1"),
]


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "172.32.0.1"])
def test_public_addresses(address: str) -> None:
    assert is_public(address)


# `{port}` is where a canary listens.
HOSTILE = [
    *("http://127.0.0.1:{port}/", "https://127.0.0.1:{port}/", "https://localhost:{port}/"),
    *("https://[::1]:{port}/", "https://[::ffff:127.0.0.1]:{port}/", "https://0.0.0.0:{port}/"),
    *("https://127.1:{port}/", "https://2130706433:{port}/", "https://0x7f000001:{port}/"),
    *("https://0177.0.0.1:{port}/", "https://127.0.0.1.:{port}/", "https://LOCALHOST:{port}/"),
    *("https://localhost.:{port}/", "https://user@127.0.0.1:{port}/", "https://a:b@example.com/"),
    *("https://example.com@127.0.0.1:{port}/", "https://127.0.0.1:{port}#@example.com/"),
    *("https://127.0.0.1:{port}\\@example.com/", "https://[64:ff9b::7f00:1]:{port}/"),
    *("https://①②⑦.0.0.1:{port}/", "https://127。0。0。1:{port}/", "https://[::127.0.0.1]:{port}/"),
    *(
        "http://example.com:{port}/",
        "ftp://127.0.0.1:{port}/",
        "file:///etc/passwd",
        "//127.0.0.1:{port}/",
    ),
    *(
        "javascript:alert(1)",
        "data:text/html,x",
        "gopher://127.0.0.1:{port}/_x",
        "-oProxyCommand=x",
    ),
    *("$(touch x)", "`touch x`", "https://", "https:///x", "https://:{port}/", "https://[::1/"),
    *("https://127.0.0.1:{port}:80/", "https://127.0.0.1:99999/", "https://a b/", "https://a\nb/"),
    *("unix:/run/docker.sock", "http+unix://%2Frun%2Fdocker.sock/", "", " ", "https://\x00/"),
    *("http://localhost:{port}/", "http://[::1]:{port}/", "http://0:{port}/", "https://0:{port}/"),
]


@pytest.mark.parametrize("number", range(len(HOSTILE)))
async def test_no_hostile_address_is_connected_to(number: int) -> None:
    connected: list[object] = []

    def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.append(writer)
        writer.close()

    async with await asyncio.start_server(meet, "127.0.0.1") as canary:
        port = canary.sockets[0].getsockname()[1]
        outgoing = Outgoing(("https://server.example",), {})

        def post(url: str) -> Awaitable[object]:
            return outgoing.post(url, b"", b"x", "text/plain")

        for send in (outgoing.get, post):
            async with asyncio.timeout(PATIENCE):
                with pytest.raises(SignInFailed) as failed:
                    await send(HOSTILE[number].format(port=port))
            assert failed.value.code in ("WB-AUTH-004", "WB-AUTH-005", "WB-AUTH-010")
    assert connected == []


async def test_the_origin_of_the_operator_may_be_anywhere() -> None:
    outgoing = Outgoing(("http://127.0.0.1:8080", "http://localhost:*"), {})

    assert outgoing.checked("http://127.0.0.1:8080/x").port == 8080
    assert outgoing.checked("http://localhost:1/x").port == 1
    for other in (
        "http://127.0.0.1:8081/x",
        "https://127.0.0.1:8080/x",
        "http://localhost.example:1/",
    ):
        if other.startswith("https"):
            outgoing.checked(other)  # its address is looked at when it is connected to
        else:
            with pytest.raises(SignInFailed, match="blocked_address"):
                outgoing.checked(other)


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "10.0.0.1", "0x7f000001", "0x7f.1", "127.0x1", "2130706433", "[::1]"),
        *("127.0.0.1.", "0x7f000001.", "localhost.", "a.localhost.", "0177.1", "169.254.169.254"),
    ],
)
def test_no_private_address_is_asked_of_a_proxy(host: str) -> None:
    environ = {"https_proxy": "http://proxy.example:3128"}
    outgoing = Outgoing((), environ)

    with suppress(SignInFailed):  # those of the loopback have no proxy, and are refused later
        assert proxy_for(outgoing.checked(f"https://{host}/"), environ) is None
    assert outgoing.checked("https://login.example/").host == "login.example"
    assert outgoing.checked("https://8.8.8.8/").host == "8.8.8.8"
