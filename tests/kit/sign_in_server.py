"""An MCP server and its authorization server in one, without Node: every secret is known, and it fails as it is told.

The real one is in `authorization_server/`. This one is for what a real one never does: secrets in its messages, wrong
metadata, half an answer. `secrets` has every token, code, verifier, state and client secret that it gave or was given.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from tests.kit.clock import PATIENCE
from tests.kit.loopback import QuietLog, loopback_server

Json = dict[str, Any]

DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
RESOURCE_METADATA = "/.well-known/oauth-protected-resource/mcp"
METADATA = "/.well-known/oauth-authorization-server"
SIGN_INS = f"credentials/{'[0-9a-f]' * 32}.json"  # the files of sign-ins in a state folder
VISITOR = (sys.executable, "-E", "-S", str(Path(__file__).with_name("visitor.py")))
TOOLS = [{"name": "whoami", "inputSchema": {"type": "object"}, "description": "Who is it?"}]


class Asked(NamedTuple):
    """A request: its path, its form or query (of MCP: the message), and its Authorization header."""

    path: str
    form: Json
    authorization: str = ""

    @property
    def token(self) -> str:
        return self.authorization.removeprefix("Bearer ")

    @property
    def method(self) -> str:
        return self.form.get("method", "")


class Answer(NamedTuple):
    """A response; `body` is JSON unless it is text."""

    status: int = 200
    body: Json | str = ""
    headers: Mapping[str, str] = MappingProxyType({})


Act = Callable[[Asked], Answer | None]


class SignInServer:
    """`acts` by path replace what it does; an act that returns None leaves it as it is."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.url = f"{origin}/mcp"
        self.acts: dict[str, Act] = {}
        self.asked: list[Asked] = []
        self.secrets: dict[str, str] = {}  # what each is, by its value
        self.seconds: float | None = 3600  # that access tokens last; None: it says nothing
        self.client_secret = ""  # how registered clients prove themselves: `basic`, `post`
        self.good: set[str] = set()  # access tokens
        self.refresh_tokens: set[str] = set()  # that were not used yet
        self.clients: set[str] = set()
        self.tools: list[Json] = TOOLS
        self.metadata: Json = {
            "issuer": origin,
            "authorization_endpoint": f"{origin}/authorize",
            "token_endpoint": f"{origin}/token",
            "registration_endpoint": f"{origin}/register",
            "device_authorization_endpoint": f"{origin}/device",
            "revocation_endpoint": f"{origin}/revoke",
            "authorization_response_iss_parameter_supported": True,
        }
        self.resource: Json = {"resource": self.url, "authorization_servers": [origin]}

    # What tests ask it and tell it

    def count(self, path: str, **form: str) -> int:
        """How often was this path requested with these fields?"""
        return sum(
            asked.path == path and all(asked.form.get(k) == v for k, v in form.items())
            for asked in self.asked
        )

    @property
    def refreshes(self) -> int:
        return self.count("/token", grant_type="refresh_token")

    def end_tokens(self) -> None:
        """No access token is good any more; refresh tokens are."""
        self.good.clear()

    def secret(self, kind: str) -> str:
        value = f"canary-{kind.replace(' ', '-')}-{secrets.token_hex(16)}"
        self.secrets[value] = kind
        return value

    def checkpoint(self) -> Callable[[], None]:
        """What puts it back into the state that it is in now, so that several tests can begin there."""
        state = deepcopy(vars(self))
        return lambda: vars(self).update(deepcopy(state))

    # What it answers

    def answer(self, asked: Asked) -> Answer:
        self.asked.append(asked)
        self._note(asked)
        act = self.acts.get(asked.path)
        if act is not None and (answer := act(asked)) is not None:
            return answer
        places: dict[str, Act] = {
            RESOURCE_METADATA: lambda _: Answer(body=self.resource),
            METADATA: lambda _: Answer(body=self.metadata),
            "/register": self._register,
            "/authorize": self._authorize,
            "/token": self._token,
            "/device": self._device,
            "/revoke": lambda _: Answer(),
            "/mcp": self._mcp,
        }
        return places.get(asked.path, lambda _: Answer(404))(asked) or Answer(404)

    def _note(self, asked: Asked) -> None:
        for name, kind in (("code_verifier", "verifier"), ("state", "state")):
            if asked.form.get(name):
                self.secrets[asked.form[name]] = kind

    def _register(self, asked: Asked) -> Answer:
        client = f"client-{len(self.clients)}"
        self.clients.add(client)
        given: Json = {"client_id": client, "token_endpoint_auth_method": "none"}
        if self.client_secret:
            given["client_secret"] = self.secret("client secret")
            given["token_endpoint_auth_method"] = f"client_secret_{self.client_secret}"
        return Answer(201, given)

    def _authorize(self, asked: Asked) -> Answer:
        query = {
            "code": self.secret("code"),
            "state": asked.form["state"],
            "iss": self.metadata["issuer"],
        }
        return Answer(302, headers={"Location": f"{asked.form['redirect_uri']}?{urlencode(query)}"})

    def denied(self, asked: Asked) -> Answer:
        """For `/authorize`: the person does not want to."""
        query = {
            "error": "access_denied",
            "state": asked.form["state"],
            "iss": self.metadata["issuer"],
        }
        return Answer(302, headers={"Location": f"{asked.form['redirect_uri']}?{urlencode(query)}"})

    def _device(self, asked: Asked) -> Answer:
        return Answer(
            body={
                "device_code": self.secret("device code"),
                "user_code": "WDJB-MJHT",
                "verification_uri": f"{self.origin}/activate",
                "expires_in": 600,
                "interval": 1,
            }
        )

    def _token(self, asked: Asked) -> Answer:
        form = asked.form
        if form.get("client_id") and form["client_id"] not in self.clients:
            return Answer(401, {"error": "invalid_client"})
        if form["grant_type"] == "refresh_token":
            if form["refresh_token"] not in self.refresh_tokens:
                return Answer(400, {"error": "invalid_grant"})
            self.refresh_tokens.discard(form["refresh_token"])
        return Answer(body=self.tokens())

    def tokens(self) -> Json:
        """A new pair."""
        given: Json = {
            "access_token": self.secret("access token"),
            "refresh_token": self.secret("refresh token"),
            "token_type": "Bearer",
        }
        if self.seconds is not None:
            given["expires_in"] = self.seconds
        self.good.add(given["access_token"])
        self.refresh_tokens.add(given["refresh_token"])
        return given

    def _mcp(self, asked: Asked) -> Answer:
        if asked.token not in self.good:
            challenge = f'Bearer resource_metadata="{self.origin}{RESOURCE_METADATA}"'
            return Answer(401, headers={"WWW-Authenticate": challenge})
        if "id" not in asked.form:
            return Answer(202 if asked.form else 405)
        return Answer(body=reply(asked, self._result(asked)))

    def _result(self, asked: Asked) -> Json:
        if asked.method == "initialize":
            return {
                "protocolVersion": asked.form["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "protected", "version": "1"},
            }
        if asked.method == "tools/list":
            return {"tools": self.tools}
        return {"content": [{"type": "text", "text": "alice"}]}


def reply(asked: Asked, result: Json) -> Json:
    """The message with this result."""
    return {"jsonrpc": "2.0", "id": asked.form["id"], "result": result}


def _handler(server: SignInServer) -> type[BaseHTTPRequestHandler]:
    class Handler(QuietLog, BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            self.reply(Asked(parts.path, dict(parse_qsl(parts.query)), self.login))

        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["content-length"])).decode()
            is_json = "json" in self.headers.get("content-type", "")
            form: Json = json.loads(text) if is_json else dict(parse_qsl(text))
            self.reply(Asked(self.path, form, self.login))

        def do_DELETE(self) -> None:
            self.reply(Asked(self.path, {}, self.login))

        @property
        def login(self) -> str:
            return unquote(self.headers.get("authorization", ""))

        def reply(self, asked: Asked) -> None:
            answer = server.answer(asked)
            is_text = isinstance(answer.body, str)
            body = str(answer.body).encode() if is_text else json.dumps(answer.body).encode()
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Type", "text/plain" if is_text else "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


@contextmanager
def sign_in_server() -> Generator[SignInServer]:
    """One that answers on a loopback port for the length of the block."""
    with loopback_server() as server:
        told = SignInServer(server.url)
        server.RequestHandlerClass = _handler(told)
        yield told


def browser() -> dict[str, str]:
    """The environment of a command whose browser is that of a person who signs in here."""
    return {**os.environ, "BROWSER": shlex.join(VISITOR)}


class Gate:
    """An act that keeps everybody waiting until it is opened, and then does what is usual."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._arrived = threading.Semaphore(0)

    def __call__(self, asked: Asked) -> None:
        self._arrived.release()
        self._open.wait(3 * PATIENCE)

    def wait(self) -> None:
        """Until somebody else has come here and waits."""
        assert self._arrived.acquire(timeout=PATIENCE), "nobody came"

    def open(self) -> None:
        self._open.set()


def after(seconds: float) -> Act:
    """An act that takes so long, and then does what is usual."""

    def act(asked: Asked) -> None:
        time.sleep(seconds)

    return act
