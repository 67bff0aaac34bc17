"""A server that knows its users, and the authorization server for it, without Node and without a login page.

Its tools are `whoami`, and one that is named after the user: `notes_of_alice`. A code is the login of whoever
consents: `personal.code("alice")`.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Generator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler
from secrets import token_hex
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

from tests.kit.loopback import QuietLog, loopback_server

Json = dict[str, Any]


class PersonalServer:
    """What happened at it, and who may use it."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.url = f"{origin}/mcp"
        self.logins: dict[str, str] = {}  # by token; one that is removed is refused
        self.calls: list[str] = []  # the login of each call
        self.registered: list[Json] = []
        self._codes: dict[str, tuple[str, str]] = {}  # a login, and the challenge of PKCE

    def consent(self, url: str, login: str) -> str:
        """Where this person is sent back to from the page at this address."""
        asked = dict(parse_qsl(urlsplit(url).query))
        code = token_hex(8)
        self._codes[code] = (login, asked["code_challenge"])
        answer = urlencode({"code": code, "state": asked["state"], "iss": self.origin})
        return f"{asked['redirect_uri']}?{answer}"

    def tokens(self, form: Json) -> tuple[int, Json]:
        login, challenge = self._codes.pop(form.get("code", ""), ("", ""))
        digest = sha256(form.get("code_verifier", "").encode()).digest()
        if not login or urlsafe_b64encode(digest).rstrip(b"=").decode() != challenge:
            return 400, {"error": "invalid_grant"}
        token = f"{login}-{token_hex(8)}"
        self.logins[token] = login
        return 200, {"access_token": token, "token_type": "Bearer", "expires_in": 3600}

    def document(self, path: str) -> tuple[int, Json]:
        if path.startswith("/.well-known/oauth-protected-resource"):
            return 200, {"resource": self.url, "authorization_servers": [self.origin]}
        if path == "/.well-known/oauth-authorization-server":
            return 200, {
                "issuer": self.origin,
                "authorization_endpoint": f"{self.origin}/authorize",
                "token_endpoint": f"{self.origin}/token",
                "registration_endpoint": f"{self.origin}/register",
                "code_challenge_methods_supported": ["S256"],
                "authorization_response_iss_parameter_supported": True,
            }
        return 404, {}

    def answer(self, message: Json, login: str) -> Json | None:
        method = message.get("method")
        if "id" not in message:
            return None
        if method == "initialize":
            return {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "personal", "version": "1"},
            }
        if method == "tools/list":
            names = ("whoami", f"notes_of_{login}")
            return {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in names]}
        if method == "tools/call":
            self.calls.append(login)
            return {"content": [{"type": "text", "text": json.dumps({"sub": login})}]}
        return {}


class _Handler(QuietLog, BaseHTTPRequestHandler):
    personal: PersonalServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.reply(*self.personal.document(self.path))

    def do_DELETE(self) -> None:
        self.reply(405, {})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/register":
            asked = json.loads(body)
            self.personal.registered.append(asked)
            self.reply(201, {**asked, "client_id": token_hex(4)})
        elif self.path == "/token":
            self.reply(*self.personal.tokens({k: v[0] for k, v in parse_qs(body.decode()).items()}))
        else:
            self.serve(json.loads(body))

    def serve(self, message: Json) -> None:
        token = self.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in self.personal.logins:
            where = f"{self.personal.origin}/.well-known/oauth-protected-resource/mcp"
            self.reply(401, {}, ("WWW-Authenticate", f'Bearer resource_metadata="{where}"'))
            return
        if message.get("method") == "server/discover":
            error = {"code": -32601, "message": "not here"}
            self.reply(200, {"jsonrpc": "2.0", "id": message["id"], "error": error})
            return
        result = self.personal.answer(message, self.personal.logins[token])
        if result is None:
            self.reply(202, None)
        else:
            self.reply(200, {"jsonrpc": "2.0", "id": message["id"], "result": result})

    def reply(self, status: int, answer: Json | None, *headers: tuple[str, str]) -> None:
        body = b"" if answer is None else json.dumps(answer).encode()
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def personal_server() -> Generator[PersonalServer]:
    """One that answers on a loopback port for the length of the block."""
    with loopback_server() as server:
        personal = PersonalServer(server.url)
        server.RequestHandlerClass = type("Handler", (_Handler,), {"personal": personal})
        yield personal
