"""`"scope": "principal"`: people who share one port sign in for themselves, and nobody's call goes out as another's."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitRequestURLParams, ElicitResult, TextContent

from tests.kit.authorization_server import (
    AuthorizationServer,
    ProtectedServer,
    authorization_server,
    browser_variables,
    protected_server,
)
from tests.kit.authorization_server.connect import begin, connect
from tests.kit.authorization_server.person import Browser, NotSignedIn, sign_in
from tests.kit.clock import PATIENCE
from tests.kit.command import HttpCommand, run_command, serving
from tests.kit.config import config_file
from tests.kit.results import MODERN, Json

pytestmark = [pytest.mark.peers, pytest.mark.usefixtures("workplace")]

TOKENS = {"anna": "anna-" + "a" * 32, "ben": "ben-" + "b" * 32}
LOGINS = {"anna": "alice", "ben": "bob"}  # who they are at the authorization server
CALLS = 1000
MODES = ("legacy", MODERN)
WHOAMI = {"tool": {"toolbox": "dev", "server": "p", "tool": "whoami"}, "arguments": {}}


@pytest.fixture(scope="module")
def issuer(workplace: object) -> Iterator[AuthorizationServer]:
    with authorization_server() as server:
        yield server


@pytest.fixture(scope="module")
def server(issuer: AuthorizationServer) -> Iterator[ProtectedServer]:
    with protected_server(issuer.issuer, "mcp") as running:
        yield running


class Office(NamedTuple):
    """A workbench on a port that several people share."""

    folder: Path
    command: HttpCommand
    env: dict[str, str]

    def run(self, *words: str, **more: str) -> tuple[int, str]:
        done = run_command(*words, cwd=self.folder, **{**self.env, **more})
        return done.status, done.out + done.err


@contextmanager
def office(
    folder: Path, issuer: AuthorizationServer, url: str, http: Json | None = None
) -> Generator[Office]:
    entry = {"url": url, "scope": "principal", "auth": {"allowedOrigins": [issuer.origin]}}
    tokens = {name: {"token": token} for name, token in TOKENS.items()}
    config = config_file(folder, {"p": entry}, http=http or {"tokens": tokens})
    env = {
        key: value
        for key, value in browser_variables("carol").items()
        if key in ("BROWSER", "PERSON")
    } | {"MCP_WORKBENCH_HOME": str(folder / "home"), "WORKBENCH_CONFIG": str(config)}
    with serving(config, "0", env) as command:
        command.drain()
        yield Office(folder, command, env)
        assert "Traceback" not in command.complaints


@pytest.fixture
def place(tmp_path: Path, issuer: AuthorizationServer, server: ProtectedServer) -> Iterator[Office]:
    with office(tmp_path, issuer, server.url) as opened:
        yield opened


class Visitor:
    """What a person does with the addresses that their host shows."""

    def __init__(self, name: str, *, proof: str = "", login: str = "") -> None:
        self.name = name
        self.proof = proof or TOKENS.get(name, "")
        self.login = login or LOGINS[name]
        self.shown: list[ElicitRequestURLParams] = []
        self.pages: list[str] = []
        self._doing: list[asyncio.Task[None]] = []

    async def __call__(self, context: Any, params: Any) -> ElicitResult:
        assert isinstance(params, ElicitRequestURLParams)
        self.shown.append(params)
        self._doing.append(asyncio.create_task(self._connect(params)))
        return ElicitResult(action="accept")

    async def _connect(self, params: ElicitRequestURLParams) -> None:
        code = re.search(r"[A-Z]{4}-[A-Z]{4}", params.message)
        proof = self.proof or (code[0] if code else "")
        self.pages.append(await asyncio.to_thread(connect, params.url, proof, self.login))


@asynccontextmanager
async def host(url: str, token: str, mode: Any, visit: Any = None) -> AsyncGenerator[Client]:
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=PATIENCE, trust_env=False) as http,
        Client(
            streamable_http_client(url, http_client=http),
            mode=mode,
            cache=None,
            elicitation_callback=visit,
            read_timeout_seconds=PATIENCE,
        ) as client,
    ):
        yield client


async def text_of(client: Client, tool: str = "use_tool", arguments: Json = WHOAMI) -> str:
    [content] = (await client.call_tool(tool, arguments)).content
    assert isinstance(content, TextContent)
    return content.text


async def sub_of(client: Client) -> str:
    text = await text_of(client)
    try:
        return json.loads(text)["sub"]
    except ValueError:
        return text


@pytest.mark.parametrize("mode", MODES)
async def test_each_call_goes_out_as_whoever_made_it(
    place: Office, server: ProtectedServer, mode: str
) -> None:
    url = place.command.url
    people = {name: Visitor(name) for name in TOKENS}
    async with AsyncExitStack() as stack:
        hosts = {
            name: await stack.enter_async_context(host(url, TOKENS[name], mode, people[name]))
            for name in TOKENS
        }
        first = await asyncio.gather(*(sub_of(client) for client in hosts.values()))
        assert first == list(LOGINS.values())
        crossed: list[str] = []

        async def calls(name: str, count: int) -> None:
            subs = [await sub_of(hosts[name]) for _ in range(count)]
            crossed.extend(f"{name}: {sub}" for sub in subs if sub != LOGINS[name])

        lanes = [name for name in TOKENS for _ in range(5)]
        await asyncio.gather(*(calls(name, CALLS // len(lanes)) for name in lanes))
        assert crossed == []
    assert [len(person.shown) for person in people.values()] == [1, 1]
    for person in people.values():
        assert TOKENS[person.name] not in person.shown[0].message + person.shown[0].url
        assert f"{person.name} can use dev/p now" in person.pages[0]
    assert len(set(server.tokens_seen())) >= 2


@pytest.mark.parametrize("mode", MODES)
async def test_a_missing_credential_is_never_replaced(place: Office, mode: str) -> None:
    """Neither by that of whoever runs the workbench, nor by that of somebody else on the port."""
    status, said = place.run("login", "dev/p")
    assert status == 0, said
    status, said = place.run("login", "dev/p", "--principal", "ben", PERSON="bob")
    assert status == 0, said
    url = place.command.url
    async with host(url, TOKENS["ben"], mode) as ben, host(url, TOKENS["anna"], mode) as anna:
        assert await sub_of(ben) == "bob"
        text = await text_of(anna)
        assert "needs login: anna is not signed in there" in text
        assert "mcp-workbench login dev/p --principal anna" in text
        assert await sub_of(ben) == "bob"
    assert json.loads(place.run("call", "dev/p/whoami")[1])["sub"] == "carol"  # on this machine


async def test_a_link_of_somebody_else_is_refused(place: Office) -> None:
    refusals: list[str] = []

    async def send_to_ben(context: Any, params: Any) -> ElicitResult:
        """Ben opens the link that anna's host shows."""
        for _ in range(2):
            with pytest.raises(NotSignedIn) as refusal:
                await asyncio.to_thread(begin, params.url, TOKENS["ben"], Browser())
            refusals.append(str(refusal.value))
        # The link itself is still good for anna, but the authorization server's answer is for her browser alone.
        browser = Browser()
        target = await asyncio.to_thread(begin, params.url, TOKENS["anna"], browser)
        back = await asyncio.to_thread(
            lambda: sign_in(target, "bob", follow=False, browser=Browser())
        )
        with pytest.raises(NotSignedIn, match="another browser"):
            await asyncio.to_thread(Browser().load, back)
        with pytest.raises(NotSignedIn, match="was used"):
            await asyncio.to_thread(browser.load, params.url)
        return ElicitResult(action="decline")

    async with host(place.command.url, TOKENS["anna"], "legacy", send_to_ben) as anna:
        assert "needs login" in await text_of(anna)
    assert len(refusals) == 2
    assert all("403" in text and "belongs to somebody else" in text for text in refusals)
    assert "nobody is signed in" in place.run("logout", "dev/p", "--principal", "anna")[1]


async def test_one_person_s_logout_does_not_touch_the_other(place: Office) -> None:
    for name, login in LOGINS.items():
        assert place.run("login", "dev/p", "--principal", name, PERSON=login)[0] == 0
    url = place.command.url
    async with host(url, TOKENS["anna"], "legacy") as anna, host(url, TOKENS["ben"], MODERN) as ben:
        assert [await sub_of(anna), await sub_of(ben)] == ["alice", "bob"]
        assert place.run("logout", "dev/p", "--principal", "anna")[0] == 0
    _, said = place.run("check")
    assert "signed in for ben" in said
    assert "signed in for anna" not in said
    async with host(url, TOKENS["ben"], "legacy") as ben:
        assert await sub_of(ben) == "bob"


async def test_unknown_people_and_shared_servers_are_refused_by_login(place: Office) -> None:
    status, said = place.run("login", "dev/p", "--principal", "zoe")
    assert status != 0
    assert "there is no principal 'zoe'" in said


@pytest.mark.parametrize("mode", MODES)
async def test_people_of_an_issuer_type_the_code_that_their_host_shows(
    tmp_path: Path, issuer: AuthorizationServer, server: ProtectedServer, mode: str
) -> None:
    from oauth_host import SignIn
    from test_sign_in_to_us import free_port

    number = free_port()
    url = f"http://127.0.0.1:{number}/mcp"
    entry = {"url": server.url, "scope": "principal", "auth": {"allowedOrigins": [issuer.origin]}}
    http = {"auth": {"issuer": issuer.issuer, "audience": url}}
    config = config_file(tmp_path, {"p": entry}, http=http)
    env = {"MCP_WORKBENCH_HOME": str(tmp_path / "home")}
    visitor = Visitor("sub:alice", login="carol")
    wrong: list[str] = []

    async def visit(context: Any, params: Any) -> ElicitResult:
        with pytest.raises(NotSignedIn) as refusal:
            await asyncio.to_thread(begin, params.url, "BBBB-BBBB", Browser())
        wrong.append(str(refusal.value))
        return await visitor(context, params)

    with serving(config, str(number), env) as command:
        command.drain()
        auth = SignIn(url).auth
        async with (
            httpx2.AsyncClient(auth=auth, timeout=PATIENCE, trust_env=False) as http_client,
            Client(
                streamable_http_client(url, http_client=http_client),
                mode=mode,
                cache=None,
                elicitation_callback=visit,
                read_timeout_seconds=PATIENCE,
            ) as client,
        ):
            assert await sub_of(client) == "carol"
        assert "Traceback" not in command.complaints
    assert "Wrong code" in wrong[0]
    done = run_command("check", cwd=tmp_path, WORKBENCH_CONFIG=str(config), **env)
    assert f"signed in for sub:alice@{issuer.issuer}" in done.out
