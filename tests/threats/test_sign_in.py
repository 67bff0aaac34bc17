"""Sign-in at a hostile server: what it writes becomes a failure with a reason, and nothing that is obeyed."""

from __future__ import annotations

import asyncio
import json
import os
import time
from base64 import urlsafe_b64encode
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from mcp_workbench.core.spec import HttpEndpoint
from mcp_workbench.protocol import oauth, oauth_tokens
from mcp_workbench.protocol.oauth import Challenge, OAuthClient, SignInFailed
from mcp_workbench.protocol.oauth_tokens import DeviceCode
from mcp_workbench.upstream.oauth import sign_in as sign_in_module
from mcp_workbench.upstream.oauth.authorization import Authorization
from mcp_workbench.upstream.oauth.redirect import MOST
from mcp_workbench.upstream.oauth.sign_in import PendingSignIn, SignIn, store_of
from mcp_workbench.upstream.oauth.store import Credential, CredentialStore
from tests.kit.clock import PATIENCE
from tests.threats.hostile_issuer import Answer, Form, HostileIssuer, hostile_issuer

DEEP = b"[" * 100_000 + b"]" * 100_000
BAD_ADDRESSES = ["https://[", "https://a\u2100b", "https://a:x/", "//"]


@pytest.fixture
async def issuer() -> AsyncGenerator[HostileIssuer]:
    async with hostile_issuer() as running:
        yield running


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"MCP_WORKBENCH_HOME": str(tmp_path)}


async def failure(sign_in: SignIn) -> SignInFailed:
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(SignInFailed) as failed:
            async with sign_in.open():
                pass
    return failed.value


@pytest.mark.parametrize("page", ["resource", "server", "registration"])
async def test_a_document_of_many_levels_is_refused(
    issuer: HostileIssuer, environ: dict[str, str], page: str
) -> None:
    path = {
        "resource": "/.well-known/oauth-protected-resource/mcp",
        "server": "/.well-known/oauth-authorization-server",
        "registration": "/register",
    }[page]
    issuer.pages[path] = (200, b'{"x":%b}' % DEEP)

    assert (await failure(SignIn(issuer.target(), environ))).code == "WB-AUTH-005"


@pytest.mark.parametrize("read", [oauth_tokens.read_tokens, oauth_tokens.read_device_code])
def test_an_answer_of_many_levels_is_refused(read: Any) -> None:
    with pytest.raises(SignInFailed):
        read(b'{"x":%b}' % DEEP, "source")
    assert oauth_tokens.read_error(b'{"x":%b}' % DEEP) == ("", "")


def test_an_id_token_of_many_levels_names_nobody() -> None:
    claims = urlsafe_b64encode(b'{"sub":"a","x":%b}' % DEEP).decode()
    answer = json.dumps({"access_token": "t", "id_token": f"a.{claims}.c"}).encode()

    assert oauth_tokens.read_tokens(answer, "source").account == ""


@pytest.mark.parametrize("address", BAD_ADDRESSES)
@pytest.mark.parametrize("place", ["resource", "issuer", "authorization_endpoint", "challenge"])
async def test_an_address_that_is_none_is_refused(
    issuer: HostileIssuer, environ: dict[str, str], place: str, address: str
) -> None:
    if place == "resource":
        issuer.resource["resource"] = address
    elif place == "issuer":
        issuer.resource["authorization_servers"] = [address]
    elif place == "challenge":
        issuer.challenge = f'Bearer resource_metadata="{address}"'.encode().decode("latin-1")
    else:
        issuer.metadata["authorization_endpoint"] = address

    assert (await failure(SignIn(issuer.target(), environ))).code in ("WB-AUTH-005", "WB-AUTH-010")


@pytest.mark.parametrize(
    "issuer_name",
    ["{}/\x1b[2J", "{}/a b", "{}/\u202ea", "{}/?x", "{}/" + "a" * 600, "{}/<b>", "{}/\\x", "{}/é"],
)
async def test_a_name_of_an_issuer_that_could_mislead_is_refused(
    issuer: HostileIssuer, environ: dict[str, str], issuer_name: str
) -> None:
    name = issuer_name.format(issuer.origin)
    issuer.resource["authorization_servers"] = [name]
    issuer.metadata["issuer"] = name
    for path in ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"):
        issuer.pages[path + urlsplit(name).path.rstrip("/")] = (200, issuer.metadata)

    assert (await failure(SignIn(issuer.target(), environ))).code == "WB-AUTH-005"


@pytest.mark.parametrize(
    "path", ["/\x1b]0;x\x07", "/\u202emoc", "/a b", "/a\nb", "/`id`", "/$(id)", "/\x9b2J", '/"&<']
)
async def test_the_address_for_the_browser_has_nothing_that_a_terminal_obeys(
    issuer: HostileIssuer, environ: dict[str, str], path: str
) -> None:
    issuer.metadata["authorization_endpoint"] = issuer.origin + path

    async with SignIn(issuer.target(), environ).open() as pending:
        assert pending.url.startswith(issuer.origin + "/")
        assert pending.url.isascii()
        assert pending.url.isprintable()
        assert not set(pending.url) & set(' "`<>\\')


async def test_a_page_at_another_origin_than_the_issuer_s_is_named(
    issuer: HostileIssuer, environ: dict[str, str]
) -> None:
    async with SignIn(issuer.target(), environ).open() as pending:
        assert pending.issuer == issuer.origin
    issuer.metadata["authorization_endpoint"] = "https://accounts.example/authorize"

    async with SignIn(issuer.target(), environ).open() as pending:
        assert pending.issuer == f"{issuer.origin} (its page is at https://accounts.example)"


async def test_the_reason_of_a_failure_is_short_and_printable(
    issuer: HostileIssuer, environ: dict[str, str]
) -> None:
    issuer.metadata["registration_endpoint"] = f"{issuer.origin}/\x1b[2J\u202e{'x' * 5000}"

    text = str(await failure(SignIn(issuer.target(), environ)))

    assert text.isprintable()
    assert len(text) <= oauth.LONGEST_REASON


async def test_documents_that_come_slowly_have_one_deadline(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sign_in_module, "DISCOVERY", 0.3)
    writers: list[asyncio.StreamWriter] = []

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await reader.readuntil(b"\r\n\r\n")  # and no answer

    async with await asyncio.start_server(slow, "127.0.0.1") as server:
        target = HttpEndpoint(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp")
        async with asyncio.timeout(10):
            failed = await failure(SignIn(target, environ))
        for writer in writers:
            writer.close()
    assert failed.code == "WB-AUTH-004"


# Device codes


def device(issuer: HostileIssuer, **members: Any) -> None:
    code = {"device_code": "d", "user_code": "U", "verification_uri": f"{issuer.origin}/device"}
    issuer.pages["/device"] = (200, {**code, **members})


@pytest.mark.parametrize(
    "address", ["javascript:alert(1)", "http://example.com/", "-x", "file:///etc/passwd"]
)
@pytest.mark.parametrize("name", ["verification_uri", "verification_uri_complete"])
async def test_no_address_of_a_device_code_is_shown_unchecked(
    issuer: HostileIssuer, environ: dict[str, str], name: str, address: str
) -> None:
    device(issuer, **{name: address})
    shown: list[DeviceCode] = []

    with pytest.raises(SignInFailed):
        await SignIn(issuer.target(), environ).by_device(shown.append)
    assert shown == []


async def test_addresses_of_a_device_code_are_shown_without_controls(
    issuer: HostileIssuer, environ: dict[str, str]
) -> None:
    device(issuer, verification_uri_complete=f"{issuer.origin}/\x1b[2J")
    shown: list[DeviceCode] = []

    await SignIn(issuer.target(), environ).by_device(shown.append)
    assert shown[0].verification_uri_complete == f"{issuer.origin}/%1B[2J"


async def test_an_interval_of_years_ends_with_the_device_code(
    issuer: HostileIssuer, environ: dict[str, str]
) -> None:
    device(issuer, interval=1e300, expires_in=0.2)
    issuer.pages["/token"] = (400, {"error": "authorization_pending"})

    async with asyncio.timeout(PATIENCE):
        with pytest.raises(SignInFailed, match="in time"):
            await SignIn(issuer.target(), environ).by_device(lambda _: None)


# The redirect


@asynccontextmanager
async def waiting(issuer: HostileIssuer, environ: dict[str, str]) -> AsyncGenerator[PendingSignIn]:
    async with SignIn(issuer.target(), environ).open() as pending:
        yield pending


def redirect_of(pending: PendingSignIn) -> tuple[int, str]:
    """The port that listens, and the query that completes this sign-in."""
    values = dict(oauth.parse_qsl(urlsplit(pending.url).query))
    port = urlsplit(values["redirect_uri"]).port
    assert port is not None
    return port, f"code=x&state={values['state']}"


async def visit(port: int, query: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET /callback?{query} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    try:
        return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize("query", ["&" * 60, "state=%ff", "a=%", "code=x&state=", "state=x&" * 300])
async def test_a_strange_redirect_ends_nobodys_sign_in(
    issuer: HostileIssuer, environ: dict[str, str], query: str
) -> None:
    async with asyncio.timeout(PATIENCE), waiting(issuer, environ) as pending:
        done = asyncio.ensure_future(pending.done())
        port, right = redirect_of(pending)
        assert b"Not signed in" in await visit(port, query)
        assert b"<h1>Signed in" in await visit(port, right)
        assert (await done).access_token == "t"


async def test_connections_that_send_nothing_keep_nobody_from_signing_in(
    issuer: HostileIssuer, environ: dict[str, str]
) -> None:
    async with asyncio.timeout(PATIENCE), waiting(issuer, environ) as pending:
        done = asyncio.ensure_future(pending.done())
        port, right = redirect_of(pending)
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3 * MOST)]
        assert b"<h1>Signed in" in await visit(port, right)
        await done
        for _, writer in idle:
            writer.close()


# A server that refuses


def signed_in(issuer: HostileIssuer, environ: dict[str, str], **auth: Any) -> None:
    """Keep a sign-in whose every refresh gives other tokens."""
    numbers = count(1)

    def renew(form: Form) -> Answer:
        number = next(numbers)
        return 200, {
            "access_token": f"access-{number}",
            "refresh_token": f"refresh-{number}",
            "expires_in": 3600,
        }

    issuer.pages["/token"] = renew
    credential = Credential(
        issuer.url,
        issuer.origin,
        f"{issuer.origin}/token",
        issuer.url,
        OAuthClient("c"),
        "access-0",
        "refresh-0",
        time.time() + 3600,
        3600,
    )
    store_of(issuer.target(**auth), environ, "").write(credential)


MACHINE = {"grant": "client_credentials", "client_id": "c", "client_secret": "client-secret"}


@pytest.mark.parametrize("auth", [{}, MACHINE], ids=["person", "machine"])
async def test_a_server_that_refuses_every_token_costs_the_issuer_one_refresh(
    issuer: HostileIssuer, environ: dict[str, str], auth: dict[str, str]
) -> None:
    signed_in(issuer, environ, **auth)

    for _ in range(5):  # each connection has its own
        authorization = Authorization(issuer.target(**auth), environ, {})
        for _ in range(5):
            line = authorization.line
            if not await authorization.refused(401, Challenge(), line):
                break

    assert issuer.count("/token") == 1


async def test_the_secret_of_a_client_goes_to_no_other_issuer(
    issuer: HostileIssuer, environ: dict[str, str]
) -> None:
    await SignIn(issuer.target(**MACHINE), environ).for_machine()
    assert issuer.count("/token") == 1
    other = f"{issuer.origin}/other"
    issuer.resource["authorization_servers"] = [other]
    changed = {**issuer.metadata, "issuer": other, "token_endpoint": f"{issuer.origin}/steal"}
    issuer.pages["/.well-known/oauth-authorization-server/other"] = (200, changed)

    with pytest.raises(SignInFailed, match="another issuer than before"):
        await SignIn(issuer.target(**MACHINE), environ).for_machine()
    assert issuer.count("/steal") == 0

    with pytest.raises(SignInFailed):  # the operator has named it
        await SignIn(issuer.target(**MACHINE, issuer=other), environ).for_machine()
    assert issuer.count("/steal") == 1


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
async def test_a_lock_that_is_something_else_is_not_followed(
    issuer: HostileIssuer, environ: dict[str, str], tmp_path: Path, kind: str
) -> None:
    signed_in(issuer, environ)
    store = store_of(issuer.target(), environ, "")
    lock = next((tmp_path / "credentials").iterdir()).with_suffix(".lock")
    victim = tmp_path / "victim"
    if kind == "link":
        lock.symlink_to(victim)
    elif kind == "pipe":
        os.mkfifo(lock)
    else:
        lock.mkdir()

    async with asyncio.timeout(PATIENCE):
        with (
            pytest.raises(SignInFailed, match="can't be kept") if kind != "pipe" else nullcontext()
        ):
            async with store.locked():
                pass
    assert not victim.exists()


@pytest.mark.parametrize("content", [b"[" * 100_000, b"\xff", b'{"url":"\xff"}', b"{}", b""])
def test_a_credential_that_can_t_be_read_is_none(
    environ: dict[str, str], tmp_path: Path, content: bytes
) -> None:
    target = HttpEndpoint("https://a.example/mcp")
    (tmp_path / "credentials").mkdir(mode=0o700)
    store_of(target, environ, "").write(Credential(target.url, "i", "t", "r", OAuthClient("c")))
    [file] = (tmp_path / "credentials").iterdir()
    file.write_bytes(content)

    assert store_of(target, environ, "").read() is None


def test_a_credential_is_never_that_of_another_server(
    environ: dict[str, str], tmp_path: Path
) -> None:
    stores: dict[str, CredentialStore] = {}
    for name in ("a", "b"):
        target = HttpEndpoint(f"https://{name}.example/mcp")
        stores[name] = store_of(target, environ, "")
        stores[name].write(Credential(target.url, "i", "t", "r", OAuthClient("c"), name))
    one, two = (tmp_path / "credentials").iterdir()
    one.rename(tmp_path / "kept")
    two.rename(one)
    (tmp_path / "kept").rename(two)

    assert [store.read() for store in stores.values()] == [None, None]
