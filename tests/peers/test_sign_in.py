"""Signing in to servers: the command, calls that wait for a person, refresh, and several processes at once."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import ElicitRequestURLParams, ElicitResult, TextContent

from tests.kit.authorization_server import (
    SECRET,
    AuthorizationServer,
    ProtectedServer,
    authorization_server,
    browser_variables,
    protected_server,
)
from tests.kit.authorization_server.person import sign_in
from tests.kit.clock import PATIENCE
from tests.kit.results import MODERN

pytestmark = [pytest.mark.peers, pytest.mark.usefixtures("workplace")]

Json = dict[str, Any]
COMMAND = [sys.executable, "-m", "mcp_workbench"]


@pytest.fixture(scope="module")
def issuer(workplace: object) -> Iterator[AuthorizationServer]:
    with authorization_server() as server:
        yield server


@pytest.fixture(scope="module")
def server(issuer: AuthorizationServer) -> Iterator[ProtectedServer]:
    with protected_server(issuer.issuer, "mcp") as running:
        yield running


class Place:
    """A configuration, a home, and commands that are run there."""

    def __init__(self, folder: Path, issuer: AuthorizationServer, url: str, **auth: Any) -> None:
        self.home = folder / "home"
        self.file = folder / "workbench-config.json"
        entry = {"url": url, "auth": {"allowedOrigins": [issuer.origin], **auth}}
        self.file.write_text(json.dumps({"toolboxes": {"dev": {"mcpServers": {"p": entry}}}}))
        self.env = {
            **browser_variables("alice"),
            "MCP_WORKBENCH_HOME": str(self.home),
            "WORKBENCH_CONFIG": str(self.file),
        }

    def run(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *words],
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def whoami(self) -> Json:
        done = self.run("call", "dev/p/whoami")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def serve(self) -> StdioServerParameters:
        program, *words = [*COMMAND, "serve"]
        return StdioServerParameters(command=program, args=words, env=self.env)


@pytest.fixture
def place(tmp_path: Path, issuer: AuthorizationServer, server: ProtectedServer) -> Place:
    return Place(tmp_path, issuer, server.url)


def use(name: str, **arguments: Any) -> Json:
    return {"tool": {"toolbox": "dev", "server": "p", "tool": name}, "arguments": arguments}


def text_of(result: Any) -> str:
    [content] = result.content
    assert isinstance(content, TextContent)
    return content.text


def test_a_server_that_wants_a_login_is_named_with_the_command(place: Place) -> None:
    done = place.run("check", "--connect")
    assert done.returncode == 4
    assert "run `mcp-workbench login dev/p`" in done.stdout
    for words in (("call", "dev/p/whoami"), ("tools",)):
        done = place.run(*words)
        assert done.returncode == 4
        assert "fix: mcp-workbench login dev/p\n  WB-AUTH-012" in done.stderr


def test_a_person_signs_in_once(place: Place) -> None:
    done = place.run("login", "dev/p")
    assert done.returncode == 0, done.stderr
    assert "dev/p: signed in" in done.stdout
    assert place.whoami()["sub"] == "alice"
    assert place.run("check", "--connect").returncode == 0


def test_without_a_name_all_servers_that_need_it_are_signed_in_to(place: Place) -> None:
    assert "dev/p: signed in" in place.run("login").stdout
    assert "No server needs a login." in place.run("login").stderr


def test_logout_revokes_and_forgets(place: Place, issuer: AuthorizationServer) -> None:
    place.run("login", "dev/p")
    assert "revoked" in place.run("logout", "dev/p").stdout
    assert place.run("call", "dev/p/whoami").returncode == 4
    assert place.run("logout", "dev/p").returncode == 1


def test_a_declined_consent_is_said(place: Place) -> None:
    done = place.run("login", "dev/p", PERSON_DENIES="1")
    assert done.returncode == 1
    assert "declined" in done.stderr
    assert "WB-AUTH-002" in done.stderr


def test_the_registration_of_an_issuer_is_used_again(
    place: Place, issuer: AuthorizationServer
) -> None:
    place.run("login", "dev/p")
    registered = issuer.count("registered")
    place.run("logout", "dev/p")
    assert place.run("login", "dev/p").returncode == 0
    assert issuer.count("registered") == registered


def test_a_registration_that_the_issuer_forgot_is_made_anew(
    place: Place, issuer: AuthorizationServer
) -> None:
    place.run("login", "dev/p")
    [stored] = place.home.glob("credentials/client-*.json")
    issuer.change(forget=json.loads(stored.read_bytes())["id"])
    assert place.run("login", "dev/p").returncode == 0
    assert place.whoami()["sub"] == "alice"


def test_a_machine_signs_in_by_itself(
    tmp_path: Path, issuer: AuthorizationServer, server: ProtectedServer
) -> None:
    for way in ("post", "basic"):
        folder = tmp_path / way
        folder.mkdir()
        auth = {"clientId": f"machine-{way}", "clientSecret": "${MACHINE_SECRET}"}
        place = Place(folder, issuer, server.url, grant="client_credentials", **auth)
        place.env["MACHINE_SECRET"] = SECRET
        assert place.whoami()["client"] == f"machine-{way}"


@pytest.mark.parametrize("mode", ["legacy", MODERN])
async def test_a_call_waits_for_the_person(place: Place, mode: str) -> None:
    asked: list[str] = []

    async def visit(context: Any, params: Any) -> ElicitResult:
        assert isinstance(params, ElicitRequestURLParams)
        asked.append(params.url)
        threading.Thread(target=sign_in, args=(params.url, "bob")).start()
        return ElicitResult(action="accept")

    transport = stdio_client(place.serve())
    host = Client(transport, mode=mode, elicitation_callback=visit, read_timeout_seconds=PATIENCE)
    async with host:
        result = await host.call_tool("use_tool", use("whoami"))
        assert json.loads(text_of(result))["sub"] == "bob"
        await host.call_tool("use_tool", use("add", a=1, b=2))
    assert len(asked) == 1


@pytest.mark.parametrize("mode", ["legacy", MODERN])
async def test_a_person_who_declines_gets_the_error(place: Place, mode: str) -> None:
    async def decline(context: Any, params: Any) -> ElicitResult:
        return ElicitResult(action="decline")

    transport = stdio_client(place.serve())
    host = Client(transport, mode=mode, elicitation_callback=decline, read_timeout_seconds=PATIENCE)
    async with host:
        result = await host.call_tool("use_tool", use("whoami"))
    assert result.is_error
    assert "mcp-workbench login dev/p" in text_of(result)


@pytest.mark.parametrize("mode", ["legacy", MODERN])
async def test_a_host_that_can_not_be_asked_gets_the_command(place: Place, mode: str) -> None:
    transport = stdio_client(place.serve())
    async with Client(transport, mode=mode, read_timeout_seconds=PATIENCE) as host:
        result = await host.call_tool("use_tool", use("whoami"))
    assert result.is_error
    assert "mcp-workbench login dev/p" in text_of(result)
