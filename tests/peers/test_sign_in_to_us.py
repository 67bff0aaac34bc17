"""Hosts sign in at a real authorization server, and bring its tokens to the real command."""

from __future__ import annotations

import json
import re
import socket
import subprocess
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from conftest import HERE, NODE_MODULES
from oauth_host import SignIn, host, said

from tests.kit.authorization_server import (
    PERSON,
    RESOURCE_SERVER,
    SDK1,
    SECRET,
    AuthorizationServer,
    authorization_server,
    node,
)
from tests.kit.authorization_server.person import sign_in
from tests.kit.command import serving
from tests.kit.config import config_file, entry
from tests.kit.results import MODERN, Json, use_tool

pytestmark = [pytest.mark.peers, pytest.mark.usefixtures("workplace")]

INSPECTOR = NODE_MODULES / "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
SECONDS = 60
CALL = use_tool("fixture", "echo", {"text": "hi"})


class Guarded(NamedTuple):
    """The command behind an issuer."""

    issuer: AuthorizationServer
    url: str
    log: Path

    def callers(self) -> list[tuple[str, str]]:
        """Who has called which tool, as the log of calls has it."""
        lines = map(json.loads, self.log.read_text().splitlines())
        return [(line["principal"], line["tool"]) for line in lines]


def free_port() -> int:
    """The audience is in the file, so the port has to be known before."""
    with socket.create_server(("127.0.0.1", 0)) as own:
        return own.getsockname()[1]


@contextmanager
def guarded(folder: Path, issuer: AuthorizationServer, **more: Any) -> Generator[Guarded]:
    number = free_port()
    url = f"http://127.0.0.1:{number}/mcp"
    auth = {"issuer": issuer.issuer, "audience": url, **more}
    config = config_file(folder, {"fixture": entry()}, http={"auth": auth})
    log = folder / "calls"
    env = {"SECRET": SECRET}
    with serving(config, str(number), env, "--log-calls", str(log)) as command:
        assert command.remark.startswith(f"sign-in: {issuer.issuer} ")
        command.drain()
        yield Guarded(issuer, command.url, log)
        assert "Traceback" not in command.complaints


@pytest.fixture(scope="module")
def bench(workplace: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    scopes = {"mcp": ["dev"], "admin": ["*"]}
    with authorization_server() as issuer, guarded(folder, issuer, scopes=scopes) as opened:
        yield opened


@pytest.mark.parametrize("path", ["", "/dev"])
@pytest.mark.parametrize("mode", ["legacy", "auto", MODERN])
async def test_version_2_of_the_sdk_signs_in(bench: Guarded, mode: str, path: str) -> None:
    consents = bench.issuer.count("consent")
    url = bench.url + path
    async with host(url, SignIn(url), mode) as client:
        text = await said(client, "use_tool", **CALL["arguments"])

    assert json.loads(text)["arguments"] == {"text": "hi"}
    assert bench.issuer.count("consent") == consents + 1
    assert bench.callers()[-1] == ("sub:alice", "echo")


def test_version_1_of_the_sdk_signs_in(bench: Guarded) -> None:
    argv = [str(SDK1), str(HERE / "sign_in_v1.py"), bench.url, "bob"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["arguments"] == {"text": "hi"}
    assert bench.callers()[-1] == ("sub:bob", "echo")


@pytest.mark.parametrize("version_and_mode", ["1 legacy", "2 legacy", "2 auto", f"2 {MODERN}"])
def test_the_typescript_sdk_signs_in(
    bench: Guarded, workplace: Path, version_and_mode: str
) -> None:
    argv = [node(), str(workplace / "sign_in.mjs"), *version_and_mode.split()]
    argv += [bench.url, str(PERSON), "dave"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["arguments"] == {"text": "hi"}
    assert bench.callers()[-1] == ("sub:dave", "echo")


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_inspector_signs_in(bench: Guarded, era: str, tmp_path: Path) -> None:
    """It shows the address of the login page, and waits for the person."""
    back = f"http://127.0.0.1:{free_port()}/oauth/callback"
    argv = [node(), str(INSPECTOR), "--cli", "--format", "json", "--protocol-era", era]
    argv += ["--server-url", bench.url, "--transport", "http", "--callback-url", back]
    argv += ["--method", "tools/call", "--tool-name", "use_tool"]
    argv += ["--tool-args-json", json.dumps(CALL["arguments"])]
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "MCP_AUTO_OPEN_ENABLED": "true"}
    shown = ""
    with subprocess.Popen(
        argv,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            shown += line
            if found := re.search(rf"{bench.issuer.issuer}/auth\S+", line):
                sign_in(found[0], "carol")
        assert process.stdout is not None
        answer = process.stdout.read()
        assert process.wait(SECONDS) == 0, shown
    block = json.loads(answer)["result"]["content"][0]["text"]

    assert json.loads(block)["arguments"] == {"text": "hi"}
    assert bench.callers()[-1] == ("sub:carol", "echo")


async def test_an_opaque_token_is_one_the_issuer_is_asked_about(
    workplace: object, tmp_path: Path
) -> None:
    """That of a machine has no subject there, so it is refused: it could be anybody's."""
    asking = {"clientId": RESOURCE_SERVER, "clientSecret": "${SECRET}"}
    with (
        authorization_server(opaque=True) as issuer,
        guarded(tmp_path, issuer, introspection=asking, scopes={"mcp": ["dev"]}) as opened,
    ):
        person = SignIn(opened.url)
        async with host(opened.url, person) as client:
            text = await said(client, "use_tool", **CALL["arguments"])
        assert person.storage.tokens is not None
        token = person.storage.tokens.access_token
        tokens = [token, issuer.machine_token(opened.url, "mcp"), "made-up"]
        statuses = [call(opened.url, one).status_code for one in tokens]
        asked = issuer.count("request", path="/token/introspection")
        callers = opened.callers()

    assert "." not in token
    assert json.loads(text)["arguments"] == {"text": "hi"}
    assert (statuses, asked) == ([200, 401, 401], 3)
    assert callers == [("sub:alice", "echo")] * 2


def test_a_machine_signs_in_by_itself(bench: Guarded) -> None:
    good = call(bench.url, bench.issuer.machine_token(bench.url, "mcp"))
    nothing = call(bench.url, bench.issuer.machine_token(bench.url))
    foreign = call(bench.url, bench.issuer.machine_token("http://127.0.0.1:1/mcp", "mcp"))

    assert (good.status_code, nothing.status_code, foreign.status_code) == (200, 403, 401)
    assert 'error="insufficient_scope"' in nothing.headers["www-authenticate"]
    assert bench.callers()[-1] == ("sub:machine-basic", "echo")


def call(url: str, token: str) -> httpx2.Response:
    meta: Json = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {**CALL, "_meta": meta}}
    headers = {
        "authorization": f"Bearer {token}",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": MODERN,
        "mcp-method": "tools/call",
        "mcp-name": "use_tool",
    }
    return httpx2.post(url, json=body, headers=headers, timeout=SECONDS, trust_env=False)
