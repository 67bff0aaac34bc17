"""Tokens, codes, verifiers, states, client secrets and device codes stand in the credential files, and nowhere else."""

from __future__ import annotations

import json
import shutil
from base64 import b64encode
from collections.abc import Generator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.kit.command import Done, typed
from tests.kit.config import config_file, write_config
from tests.kit.forked import Streams
from tests.kit.pipe_host import PipeHost
from tests.kit.shared import Shared
from tests.kit.sign_in_server import (
    SIGN_INS,
    Act,
    Answer,
    Asked,
    SignInServer,
    browser,
    reply,
    sign_in_server,
)

pytestmark = pytest.mark.usefixtures("forked_commands", "no_self_test")

READS = [
    ("check", "--connect"),
    ("check", "--connect", "--json"),
    ("doctor",),
    ("doctor", "--json"),
    ("status",),
    ("status", "--json"),
    ("tools", "--refresh"),
    ("tools", "--refresh", "--json"),
    ("list",),
    ("list", "--json"),
    ("call", "dev/p/whoami"),
    ("call", "dev/p/whoami", "--json"),
]

CALLS = [
    ("call", "dev/p/whoami"),
    ("call", "dev/p/whoami", "--json"),
]

CONNECTS = [
    ("check", "--connect", "--json"),
    ("tools", "--refresh"),
    *CALLS,
]

REFRESHES = [*CONNECTS, ("doctor",)]  # if the token has ended


class Place:
    """A configuration with one server, a home, and everything that was ever shown there."""

    def __init__(self, folder: Path, server: SignInServer) -> None:
        self.folder = folder
        self.server = server
        self.config = config_file(folder, {"p": {"url": server.url, "connectTimeout": 15}})
        self.bench = Shared(self.config)
        self.home = self.bench.home
        self.env = {**browser(), "MCP_WORKBENCH_HOME": str(self.home)}
        self.texts: list[str] = []

    def run(self, *words: str, **env: str) -> Done:
        argv = [*words, "-v", "--config", str(self.config)]
        done = typed(argv, self.folder, Streams(), {**self.env, **env})
        self.texts += [done.out, done.err]
        return done

    def sign_in(self) -> None:
        """The address that is shown has to have the state; nothing else is in it that is secret."""
        done = self.run("login", "dev/p")
        assert done.status == 0, done.err
        shown, self.texts = self.texts, []
        self.texts = [without_addresses(text) for text in shown]

    def leaks(self) -> list[str]:
        """The secrets that can be read in what was shown, or in a file that is no credential."""
        files = [
            path.read_bytes().decode("latin-1")
            for path in self.folder.rglob("*")
            if path.is_file() and path.parent.name != "credentials"
        ]
        return found(self.server, [*self.texts, *files])


def without_addresses(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if "/authorize?" not in line)


def found(server: SignInServer, texts: list[str]) -> list[str]:
    """Each secret as it is, and as a header, a URL or base64 spells it."""
    hits: list[str] = []
    for secret, kind in server.secrets.items():
        forms = {secret, quote(secret, safe=""), b64encode(secret.encode()).decode()}
        hits += [
            f"{kind}: {text[max(text.index(form) - 80, 0) :][:160]!r}"
            for form in forms
            for text in texts
            if form in text
        ]
    return hits


@pytest.fixture
def new_place(tmp_path: Path) -> Generator[Place]:
    with sign_in_server() as running:
        running.client_secret = "basic"
        yield Place(tmp_path, running)


class SignedIn:
    """A place where somebody has signed in; the client proves itself in this way. Tests have copies of it."""

    def __init__(self, folder: Path, server: SignInServer, way: str) -> None:
        server.client_secret = way
        self._place = Place(folder, server)
        self._place.sign_in()
        self._restore = server.checkpoint()

    def copy(self, folder: Path) -> Place:
        """With the server as it was, which only one test at a time can use."""
        self._restore()
        shutil.copytree(self._place.home, folder / "home")
        place = Place(folder, self._place.server)
        place.texts = list(self._place.texts)
        return place


@pytest.fixture(scope="module")
def signed_in(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[SignedIn]:
    with sign_in_server() as running:
        way = getattr(request, "param", "basic")
        yield SignedIn(tmp_path_factory.mktemp("signed-in"), running, way)


@pytest.fixture
def place(tmp_path: Path, signed_in: SignedIn) -> Place:
    """A place where somebody is signed in."""
    return signed_in.copy(tmp_path)


def test_every_kind_of_secret_is_among_the_canaries(new_place: Place) -> None:
    new_place.sign_in()
    new_place.run("login", "dev/p", "--device")

    kinds = {"access token", "refresh token", "code", "verifier", "state", "client secret"}
    assert set(new_place.server.secrets.values()) == {*kinds, "device code"}
    assert new_place.leaks() == []


def test_the_credential_files_are_where_they_are(place: Place) -> None:
    """So that the other tests show something: what they look for does exist."""

    files = [path.read_text() for path in place.home.glob("credentials/*.json")]
    assert {hit.partition(":")[0] for hit in found(place.server, files)} == {
        "access token",
        "refresh token",
        "client secret",
    }


def test_no_command_shows_one(place: Place) -> None:
    for words in READS:
        place.run(*words)
    for words in REFRESHES:
        place.server.end_tokens()
        place.run(*words)
    place.run("logout", "dev/p")

    assert place.server.refreshes == len(REFRESHES)
    assert place.leaks() == []


def test_no_preview_shows_one(place: Place) -> None:
    secret = place.server.secret("client secret")
    auth = {"clientId": "us", "clientSecret": secret}
    headers = {"Authorization": f"Bearer {place.server.secret('access token')}"}
    entries = {
        "q": {"url": f"{place.server.url}/q", "auth": auth},
        "r": {"url": f"{place.server.url}/r", "headers": headers},
    }
    home = place.folder.parent / f"{place.folder.name}-host"
    home.mkdir()
    host = str(write_config(home, {"mcpServers": entries}, "mcp.json"))
    previews = [
        ("import", host, "--dry-run"),
        ("import", host, "--dry-run", "--json"),
        ("add", "q", "--dry-run", json.dumps(entries["q"])),
        ("add", "r", "--dry-run", json.dumps(entries["r"])),
        ("install", "cursor", "--dry-run"),
    ]

    assert [place.run(*words, HOME=str(home)).status for words in previews] == [0] * len(previews)
    assert found(place.server, place.texts) == []


# A server that repeats what it was sent


def echoed(asked: Asked) -> str:
    return f"bad request: Authorization: {asked.authorization} ({asked.token[:30]}"


def with_status(status: int, *methods: str) -> Act:
    def act(asked: Asked) -> Answer | None:
        if asked.token.startswith("canary") and asked.method in methods:
            return Answer(status, echoed(asked))
        return None

    return act


def as_json_error(status: int, *methods: str) -> Act:
    def act(asked: Asked) -> Answer | None:
        if asked.token.startswith("canary") and asked.method in methods:
            error = {"code": -32000, "message": echoed(asked), "data": echoed(asked)}
            return Answer(status, {"jsonrpc": "2.0", "id": asked.form["id"], "error": error})
        return None

    return act


def as_problem(status: int, *methods: str) -> Act:
    """JSON that is no message."""

    def act(asked: Asked) -> Answer | None:
        if asked.token.startswith("canary") and asked.method in methods:
            return Answer(status, {"title": "Bad", "detail": echoed(asked)})
        return None

    return act


STARTS = ("server/discover", "initialize", "tools/list")
ECHOES = {
    "500 at the start": with_status(500, *STARTS),
    "400 at the start": with_status(400, *STARTS),
    "403 at the start": with_status(403, *STARTS),
    "404 at the start": with_status(404, *STARTS),
    "a problem at the start": as_problem(502, *STARTS),
    "an error at the start": as_json_error(200, *STARTS),
    "an error and 400 at the start": as_json_error(400, *STARTS),
    "500 in a list": with_status(500, "tools/list"),
    "an error in a list": as_json_error(200, "tools/list"),
    "500 in a call": with_status(500, "tools/call"),
    "400 in a call": with_status(400, "tools/call"),
    "403 in a call": with_status(403, "tools/call"),
    "a problem in a call": as_problem(500, "tools/call"),
}


@pytest.mark.parametrize("name", ECHOES)
def test_a_server_that_repeats_the_header_is_not_quoted(place: Place, name: str) -> None:
    place.server.acts["/mcp"] = ECHOES[name]
    place.texts.clear()
    for words in CALLS if name.endswith("in a call") else CONNECTS:
        place.run(*words)

    assert place.leaks() == []
    assert "500" not in name or "[secret:access token]" in "".join(place.texts), place.texts


@pytest.mark.parametrize("name", ["500 at the start", "500 in a call"])
def test_nor_in_the_logs_of_those_that_serve(place: Place, name: str) -> None:
    place.server.acts["/mcp"] = ECHOES[name]
    log = place.folder / "calls"
    with PipeHost(
        place.config, "-v", "--attach", "never", "--log-calls", str(log), env=place.env
    ) as host:
        host.handshake()
        place.texts.append(str(host.use("p", "whoami")))
    place.texts.append(host.stderr)
    place.bench.up("-v")
    try:
        with place.bench.host() as host:
            host.handshake()
            place.texts.append(str(host.use("p", "whoami")))
        place.run("logs")
        place.run("status", "--json")
    finally:
        place.bench.end()
    place.texts.append(place.bench.log())

    assert log.exists()
    assert place.leaks() == []


def test_what_a_server_puts_into_its_own_answer_is_passed_on_and_kept_nowhere(place: Place) -> None:
    """A result belongs to the server and the host, and is not changed; our own texts have no part of it."""

    def act(asked: Asked) -> Answer | None:
        if not asked.token.startswith("canary"):
            return None
        if asked.method == "tools/list":
            tool = {"name": "whoami", "inputSchema": {"type": "object"}, "description": asked.token}
            return Answer(body=reply(asked, {"tools": [tool]}))
        if asked.method == "tools/call":
            content = [{"type": "text", "text": echoed(asked)}]
            return Answer(body=reply(asked, {"content": content, "isError": True}))
        return None

    place.server.acts["/mcp"] = act
    log = place.folder / "calls"
    with PipeHost(
        place.config, "-v", "--attach", "never", "--log-calls", str(log), env=place.env
    ) as host:
        host.handshake()
        result = host.use("p", "whoami")
    place.texts.append(host.stderr)

    assert result["isError"]
    assert "canary-access-token" in str(result)
    assert log.exists()
    assert place.leaks() == []


# An authorization server that repeats what it was sent


def repeats(status: int, error: str) -> Act:
    def act(asked: Asked) -> Answer | None:
        basic = asked.authorization.removeprefix("Basic ")
        secrets = " ".join(map(str, asked.form.values()))
        text = (
            f"{asked.form.get('refresh_token') or asked.form.get('code') or ''} {basic} {secrets}"
        )
        return Answer(status, {"error": error, "error_description": text})

    return act


@pytest.mark.parametrize("error", ["invalid_grant", "invalid_client", "server_error", "odd"])
@pytest.mark.parametrize("signed_in", ["basic", "post"], indirect=True)
def test_an_authorization_server_that_repeats_the_request_is_not_quoted(
    place: Place, error: str
) -> None:
    place.server.end_tokens()
    place.server.acts["/token"] = repeats(400, error)
    for words in CONNECTS:
        place.run(*words)
    place.server.acts["/token"] = lambda asked: (
        None if asked.form["grant_type"] == "refresh_token" else repeats(400, error)(asked)
    )
    done = place.run("login", "dev/p")
    assert done.status == 1
    place.texts = [without_addresses(text) for text in place.texts]
    if error != "server_error":
        assert "[secret:" in done.err
    place.run("login", "dev/p", "--device", "--timeout", "1")

    assert place.leaks() == []
    ended = [path.read_text() for path in place.home.glob(SIGN_INS)]
    assert [hit for hit in found(place.server, ended) if "ended" in hit] == []


def test_a_redirect_that_repeats_the_request_is_not_quoted(new_place: Place) -> None:
    def act(asked: Asked) -> Answer:
        query = f"error=odd&error_description={asked.form['state']}&state={asked.form['state']}"
        issuer = quote(new_place.server.origin, safe="")
        return Answer(
            302, headers={"Location": f"{asked.form['redirect_uri']}?{query}&iss={issuer}"}
        )

    new_place.server.acts["/authorize"] = act
    done = new_place.run("login", "dev/p")
    new_place.texts = [without_addresses(text) for text in new_place.texts]

    assert done.status == 1
    assert "[secret:state]" in done.err
    assert new_place.leaks() == []


# Processes


def test_no_process_has_one_in_its_arguments(place: Place) -> None:
    lines: list[str] = []

    def look(asked: Asked) -> None:
        for folder in Path("/proc").iterdir():
            if folder.name.isdecimal():
                try:
                    lines.append((folder / "cmdline").read_bytes().decode("latin-1"))
                except OSError:
                    continue

    place.server.acts["/mcp"] = look
    place.server.acts["/token"] = look
    place.server.end_tokens()
    place.run("call", "dev/p/whoami")
    place.run("login", "dev/p")

    assert place.server.refreshes > 0
    here = [line for line in lines if place.server.origin not in line]  # the browser has the state
    assert here
    assert found(place.server, here) == []


def test_what_python_prints_of_objects_has_none_in_it() -> None:
    from mcp_workbench.core.spec import AuthSettings, HttpEndpoint
    from mcp_workbench.protocol import oauth, oauth_tokens
    from mcp_workbench.upstream.oauth.outgoing import Fetched
    from mcp_workbench.upstream.oauth.store import Credential

    canary = "canary-" + "0f" * 16
    client = oauth.OAuthClient(canary, canary)
    server = oauth.AuthorizationServer("https://a.example")
    tokens = {"access_token": canary, "refresh_token": canary, "id_token": canary}
    body = json.dumps(tokens).encode()
    kinds: list[Any] = [
        client,
        oauth.AuthorizationRequest(server, client, "", "", (), canary, canary),
        oauth_tokens.Tokens(canary, canary),
        oauth_tokens.read_tokens(body, "https://a.example"),
        oauth_tokens.DeviceCode(canary, canary, canary),
        Credential("https://s.example", "https://a.example", "", "", client, canary, canary),
        Fetched(200, body, secrets={canary: "x"}),
        HttpEndpoint("https://s.example", auth=AuthSettings(client_secret=canary)),
        oauth_tokens._TokenResponse(canary, refresh_token=canary),  # pyright: ignore[reportPrivateUsage]
        oauth._Registration(canary, canary),  # pyright: ignore[reportPrivateUsage]
    ]

    assert [repr(one) for one in kinds if canary in repr(one)] == []
