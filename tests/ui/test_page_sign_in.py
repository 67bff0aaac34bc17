"""Signing in to a server from the page: the same sign-in as the command's, and nothing that the page makes up."""

from __future__ import annotations

import asyncio
import urllib.parse
import urllib.request
from collections.abc import Generator
from pathlib import Path

import pytest

from mcp_workbench.config.load import load_config
from mcp_workbench.core.spec import HttpSettings, Snapshot
from mcp_workbench.ui.page_sign_ins import is_openable
from tests.kit.clock import PATIENCE
from tests.kit.config import config_file, demo_server
from tests.kit.results import Json
from tests.kit.sign_in_server import METADATA, Answer, SignInServer, sign_in_server
from tests.ui.scene import Visitor, eventually_read, opened_page

PLACE = {"toolbox": "dev", "server": "p"}


@pytest.fixture
def server() -> Generator[SignInServer]:
    with sign_in_server() as running:
        yield running


def configured(folder: Path, server: SignInServer, **more: object) -> Snapshot:
    servers = {"p": {"url": server.url, **more}, "local": demo_server()}
    return load_config(str(config_file(folder, servers)))


async def page_of(visitor: Visitor) -> Json:
    return await visitor.api("server?toolbox=dev&server=p")


async def state_of(visitor: Visitor, state: str) -> Json:
    """The page of the server, once it is in this state."""

    async def read() -> Json | None:
        page = await page_of(visitor)
        return page if page["line"]["state"] == state else None

    return await eventually_read(read)


async def outcome(visitor: Visitor) -> Json:
    async def read() -> Json | None:
        now = (await page_of(visitor))["signingIn"]
        return now if now["state"] != "waiting" else None

    return await eventually_read(read)


def visit(url: str) -> None:
    """What the person's browser does."""
    with urllib.request.urlopen(url, timeout=PATIENCE) as page:
        page.read()


async def test_a_person_signs_in_at_the_page_and_the_server_is_ready(
    tmp_path: Path, server: SignInServer
) -> None:
    async with opened_page(configured(tmp_path, server)) as visitor:
        await visitor.act("start", {})
        before = await state_of(visitor, "failed")
        begun = await visitor.act("sign-in", PLACE)
        again = await visitor.act("sign-in", PLACE)
        waiting = await page_of(visitor)
        await asyncio.to_thread(visit, begun["url"])
        done = await outcome(visitor)
        after = await state_of(visitor, "ready")
        whole = [before, begun, waiting, done, after]

    assert before["signIn"] == "mcp-workbench login dev/p"
    assert before["canSignIn"]
    assert begun == again == waiting["signingIn"]
    assert begun["state"] == "waiting"
    assert begun["url"].startswith(f"{server.origin}/authorize?")
    assert begun["issuer"] == server.origin
    assert done == {"state": "done", "issuer": server.origin}
    assert (after["line"]["tools"], after["signIn"]) == (1, "")
    assert server.count("/token", grant_type="authorization_code") == 1
    kinds = ("token", "code", "verifier", "secret")
    private = [v for v, kind in server.secrets.items() if any(word in kind for word in kinds)]
    assert len(private) >= 3
    assert not any(value in str(whole) for value in private)


async def test_a_person_who_refuses_sees_why_it_failed_and_can_begin_again(
    tmp_path: Path, server: SignInServer
) -> None:
    async with opened_page(configured(tmp_path, server)) as visitor:
        begun = await visitor.act("sign-in", PLACE)
        back = dict(part.split("=") for part in begun["url"].partition("?")[2].split("&"))
        state = back["state"]
        uri = urllib.parse.unquote(back["redirect_uri"])
        denied = f"{uri}?error=access_denied&state={state}&iss={server.origin}"
        await asyncio.to_thread(visit, denied)
        failed = await outcome(visitor)
        second = await visitor.act("sign-in", PLACE)

    assert failed["state"] == "failed"
    assert "declined" in failed["reason"]
    assert "url" not in failed
    assert second["state"] == "waiting"
    assert second["url"] != begun["url"]


@pytest.mark.parametrize(
    "endpoint",
    ["javascript:alert(1)", "http://10.0.0.1/authorize", "file:///etc/passwd", "//evil.example/x"],
)
async def test_an_address_that_is_neither_https_nor_local_is_not_given_to_the_page(
    endpoint: str, tmp_path: Path, server: SignInServer
) -> None:
    wrong = {**server.metadata, "authorization_endpoint": endpoint}
    server.acts[METADATA] = lambda _: Answer(body=wrong)
    trusted = {"allowedOrigins": ["http://10.0.0.1"]}
    async with opened_page(configured(tmp_path, server, auth=trusted)) as visitor:
        answer = await visitor.post("api/sign-in", PLACE)
        page = await page_of(visitor)

    assert answer.status == 400
    assert "url" not in answer.json
    assert page["signingIn"] is None


@pytest.mark.parametrize(
    ("place", "status"),
    [
        ({"toolbox": "dev", "server": "local"}, 400),
        ({"toolbox": "dev", "server": "none"}, 404),
        ({**PLACE, "url": "https://evil.example/"}, 200),
    ],
)
async def test_only_configured_urls_have_a_sign_in_and_the_page_names_none(
    place: Json, status: int, tmp_path: Path, server: SignInServer
) -> None:
    async with opened_page(configured(tmp_path, server)) as visitor:
        answer = await visitor.post("api/sign-in", place)

    assert answer.status == status
    assert "evil" not in answer.body.decode()


async def test_a_browser_elsewhere_is_given_the_command(
    tmp_path: Path, server: SignInServer
) -> None:
    http = HttpSettings(allowed_hosts=("bench.example",), token="0123456789abcdef0123456789abcdef")
    async with opened_page(configured(tmp_path, server), http) as visitor:
        host = {"host": "bench.example", "origin": "https://bench.example"}
        answer = await visitor.post("api/sign-in", PLACE, **host)

    assert (answer.status, answer.json["code"]) == (403, "elsewhere")
    assert server.count("/register") == 0


def test_which_addresses_are_opened() -> None:
    assert is_openable("https://login.example/authorize?x=1")
    assert is_openable("http://127.0.0.1:8080/authorize")
    assert is_openable("http://localhost/authorize")
    assert not is_openable("http://login.example/authorize")
    assert not is_openable("http://192.168.1.1/authorize")
    assert not is_openable("http://localhost.evil.example/authorize")
