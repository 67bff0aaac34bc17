"""Certificates and proxies: what the environment says is respected."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import pytest

from mcp_workbench.transport.http.urls import BadUrl, parse_url, proxy_for
from tests.http_servers.scenes import bench, echo, reason
from tests.kit.certificates import files
from tests.kit.clock import until
from tests.kit.config import url_spec
from tests.kit.servers.bad_http import bad_http


def server_tls(begins: int = -1, ends: int = 1) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files(begins, ends))
    return context


def secured(url: str) -> str:
    return url.replace("http:", "https:")


async def test_an_untrusted_certificate_is_told_with_the_remedy() -> None:
    async with bad_http(server_tls()) as bad, bench(url_spec(secured(bad.url("/ok")))) as workbench:
        told = await reason(workbench)

    assert "its certificate is not trusted" in told
    assert "SSL_CERT_FILE" in told


@pytest.mark.parametrize(("begins", "ends"), [(1, 2), (-2, -1)])
async def test_a_certificate_out_of_its_time_may_be_a_wrong_clock(begins: int, ends: int) -> None:
    async with bad_http(server_tls(begins, ends)) as bad:
        spec = url_spec(secured(bad.url("/ok")))
        async with bench(spec, SSL_CERT_FILE=files(begins, ends)[0]) as workbench:
            told = await reason(workbench)

    assert "check that the clock of this machine is right" in told


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
async def test_an_authority_of_the_environment_is_trusted(name: str) -> None:
    async with bad_http(server_tls()) as bad:
        spec = url_spec(secured(bad.url("/sse")))
        async with bench(spec, limits=None, **{name: files()[0]}) as workbench:
            answers = await asyncio.gather(*(echo(workbench, str(n)) for n in range(8)))
            assert answers == list("01234567")


async def test_a_bundle_that_is_none_is_told() -> None:
    async with bench(url_spec("https://127.0.0.1:1/mcp"), SSL_CERT_FILE="/no/such") as workbench:
        assert "SSL_CERT_FILE is not a file with certificates" in await reason(workbench)


async def test_a_proxy_carries_plain_requests() -> None:
    async with bad_http() as proxy:
        login = f"http://me:secret@127.0.0.1:{proxy.port}"
        async with bench(url_spec("http://server.test/sse"), http_proxy=login) as workbench:
            assert await echo(workbench) == "hi"
        [call] = proxy.calls()

    assert call.headers["x-proxied"] == "yes"
    assert call.headers["host"] == "server.test"
    assert call.headers["proxy-authorization"] == "Basic bWU6c2VjcmV0"


@asynccontextmanager
async def tunnels(status: bytes, port: int) -> AsyncGenerator[tuple[int, list[bytes]]]:
    """A proxy that opens tunnels, or does not."""
    heads: list[bytes] = []
    running = 0

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal running
        running += 1
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 " + status + b"\r\n\r\n")
        if status.startswith(b"200"):
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(pump(reader, inner_writer), pump(inner_reader, writer))
        writer.close()
        running -= 1

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], heads
    finally:
        server.close()
        await until(lambda: running == 0)


async def test_a_proxy_opens_a_tunnel_for_encrypted_requests() -> None:
    async with (
        bad_http(server_tls()) as bad,
        tunnels(b"200 Connection established", bad.port) as (port, heads),
        bench(
            url_spec("https://server.test/sse"),
            HTTPS_PROXY=f"127.0.0.1:{port}",
            SSL_CERT_FILE=files()[0],
        ) as workbench,
    ):
        assert await echo(workbench) == "hi"
        assert heads[0].startswith(b"CONNECT server.test:443 HTTP/1.1\r\n")


async def test_a_proxy_that_refuses_is_named_without_its_password() -> None:
    async with tunnels(b"407 Proxy Authentication Required", 0) as (port, _):
        login = f"http://me:hush@127.0.0.1:{port}"
        async with bench(url_spec("https://server.test/mcp"), https_proxy=login) as workbench:
            told = await reason(workbench)

    assert f"the proxy http://127.0.0.1:{port} refused to connect (HTTP 407)" in told
    assert "hush" not in told


@pytest.mark.parametrize(
    ("url", "environ", "proxy"),
    [
        ("http://a.test/", {}, ""),
        ("http://a.test/", {"http_proxy": "p:1"}, "http://p:1"),
        ("http://a.test/", {"HTTP_PROXY": "p:1"}, ""),  # a web server may have set it
        ("https://a.test/", {"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
        ("https://a.test/", {"ALL_PROXY": "http://p:1"}, "http://p:1"),
        ("https://a.test/", {"https_proxy": "p:1", "no_proxy": "b.test, .test"}, ""),
        ("https://a.test/", {"https_proxy": "p:1", "no_proxy": "*"}, ""),
        ("https://a.test/", {"https_proxy": "p:1", "no_proxy": "a.test:443"}, ""),
        ("https://a.test/", {"https_proxy": "p:1", "no_proxy": "a.test:80"}, "http://p:1"),
        ("https://xa.test/", {"https_proxy": "p:1", "no_proxy": "a.test"}, "http://p:1"),
        ("https://b.a.test/", {"https_proxy": "p:1", "no_proxy": "*.a.test"}, ""),
        ("http://localhost/", {"http_proxy": "p:1"}, ""),
        ("http://127.0.0.9/", {"http_proxy": "p:1"}, ""),
    ],
)
def test_which_proxy_the_environment_means(url: str, environ: dict[str, str], proxy: str) -> None:
    found = proxy_for(parse_url(url), environ)

    assert (found.origin if found else "") == proxy


@pytest.mark.parametrize("proxy", ["socks5://p:1", "https://p:1", "http://", "http://p:x"])
def test_a_proxy_of_another_kind_is_told(proxy: str) -> None:
    with pytest.raises(BadUrl, match=r"proxy .* not an http:// URL"):
        proxy_for(parse_url("https://a.test"), {"https_proxy": proxy})


@pytest.mark.parametrize("url", ["http://a b/", "http://\x1b/", "http://a\x7f:1/", "http://[a"])
def test_a_host_that_fits_in_no_header_is_told(url: str) -> None:
    with pytest.raises(BadUrl):
        parse_url(url)
    with pytest.raises(BadUrl):
        parse_url("http://fine").joined(url)


@pytest.mark.parametrize(
    ("url", "origin", "target"),
    [
        ("http://A.test", "http://a.test", "/"),
        ("http://a.test:80/x", "http://a.test", "/x"),
        ("https://a.test:80/x?q=1#f", "https://a.test:80", "/x?q=1"),
        ("http://[::1]:9/", "http://[::1]:9", "/"),
        ("http://u:p@a.test/ü x%20y", "http://a.test", "/%C3%BC%20x%20y"),
        ("https://bücher.test/", "https://xn--bcher-kva.test", "/"),
    ],
)
def test_a_url_is_read(url: str, origin: str, target: str) -> None:
    address = parse_url(url)

    assert (address.origin, address.target) == (origin, target)
    assert "p@" not in repr(address)


@pytest.mark.parametrize(
    "reference",
    ["http://a.test/x", "http://a.test:443/x", "https://a.test:444/x", "https://b.test/x"],
)
def test_what_began_encrypted_leads_to_no_plain_or_other_port(reference: str) -> None:
    here = parse_url("https://a.test/mcp")

    assert not here.joined(reference).same_origin(here)


@pytest.mark.parametrize(
    ("reference", "same"),
    [
        ("/x", True),
        ("x?y", True),
        ("http://a.test:80/x", True),
        ("http://A.TEST/x", True),
        ("https://a.test/x", False),
        ("http://a.test:81/x", False),
        ("//b.test/x", False),
        ("http://a.test@b.test/", False),
        ("http://a.test.b.test/", False),
    ],
)
def test_an_origin_is_scheme_host_and_port(reference: str, same: bool) -> None:
    here = parse_url("http://a.test/mcp")

    assert here.joined(reference).same_origin(here) == same
