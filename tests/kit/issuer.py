"""An issuer of access tokens without Node: metadata, keys, introspection, and tokens of every kind, good and bad."""

from __future__ import annotations

import json
import threading
import time
from base64 import b64decode
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from tests.kit.loopback import QuietLog, loopback_server

Json = dict[str, Any]

AUDIENCE = "http://127.0.0.1:7411/mcp"
CLIENT = ("workbench", "secret-of-the-workbench-%")


@cache
def rsa_key(name: str) -> rsa.RSAPrivateKey:
    """A key for each name: making one takes a tenth of a second."""
    return rsa.generate_private_key(65537, 2048)


@cache
def ec_key(name: str) -> ec.EllipticCurvePrivateKey:
    """The same on a curve."""
    return ec.generate_private_key(ec.SECP256R1())


def public_jwk(key: Any, **members: Any) -> Json:
    """The public half of a key as an issuer lists it."""
    algorithm: Any = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
    return {**algorithm.to_jwk(key.public_key(), as_dict=True), "use": "sig", **members}


class TokenIssuer:
    """What it serves can be changed at any time; `requests` are the paths that were asked for."""

    def __init__(self, origin: str, path: str) -> None:
        self.origin = origin
        self.url = origin + path
        self.path = path
        self.keys: list[Json] = [
            public_jwk(rsa_key("one"), kid="one"),
            public_jwk(ec_key("two"), kid="two", alg="ES256"),
        ]
        self.metadata: Json = {
            "issuer": self.url,
            "jwks_uri": f"{self.url}/jwks",
            "introspection_endpoint": f"{self.url}/introspect",
        }
        self.active: dict[str, Json] = {}  # what it says of opaque tokens
        self.status: dict[str, int] = {}  # of paths that answer with a fault
        self.redirects: dict[str, str] = {}
        self.gate = threading.Event()  # as long as it is not set, every answer waits
        self.gate.set()
        self.requests: list[str] = []
        self.forms: list[Json] = []

    def claims(self, **claims: Any) -> Json:
        now = int(time.time())
        own = {"iss": self.url, "aud": AUDIENCE, "sub": "alice", "iat": now, "exp": now + 600}
        return {name: value for name, value in (own | claims).items() if value is not None}

    def token(
        self, *, key: Any = None, alg: str = "RS256", header: Json | None = None, **claims: Any
    ) -> str:
        """A JWT; a claim or a member of the header that is None is left out."""
        own = {"kid": "one", "typ": "at+jwt"} | (header or {})
        members = {name: value for name, value in own.items() if value is not None}
        signer: Any = rsa_key("one") if key is None else key
        return jwt.encode(self.claims(**claims), signer, alg, headers=members)

    def opaque(self, text: str = "opaque-1", **claims: Any) -> str:
        """A token of which it says these claims when asked."""
        self.active[text] = {"active": True, **self.claims(**claims)}
        return text

    def answer(self, path: str, form: Json, authorization: str) -> tuple[int, Json]:
        if path == f"{self.path}/introspect":
            login = b64decode(authorization.removeprefix("Basic ")).decode()
            if login != "workbench:secret-of-the-workbench-%25":
                return 401, {"error": "invalid_client"}
            return 200, self.active.get(form["token"], {"active": False})
        places = {
            f"/.well-known/oauth-authorization-server{self.path}": self.metadata,
            f"{self.path}/jwks": {"keys": self.keys},
        }
        return (200, places[path]) if path in places else (404, {})


def _handler(issuer: TokenIssuer) -> type[BaseHTTPRequestHandler]:
    class Handler(QuietLog, BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.reply({})

        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["content-length"])).decode()
            self.reply({name: values[0] for name, values in parse_qs(text).items()})

        def reply(self, form: Json) -> None:
            issuer.requests.append(self.path)
            issuer.forms.append(form)
            issuer.gate.wait(20)
            status, answer = issuer.answer(self.path, form, self.headers.get("authorization", ""))
            status = issuer.status.get(self.path, status)
            body = json.dumps(answer).encode()
            if self.path in issuer.redirects:
                self.send_response(302)
                self.send_header("Location", issuer.redirects[self.path])
            else:
                self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


@contextmanager
def token_issuer(path: str = "") -> Generator[TokenIssuer]:
    """One that answers on a loopback port for the length of the block."""
    with loopback_server() as server:
        issuer = TokenIssuer(server.url, path)
        server.RequestHandlerClass = _handler(issuer)
        try:
            yield issuer
        finally:
            issuer.gate.set()
