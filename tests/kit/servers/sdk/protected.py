"""An MCP server behind an issuer, of either version of the official SDK: protected.py ISSUER [SCOPE...].

It takes JWTs of the issuer, and asks it about other tokens; they need the scopes. Its port is the first line that it
writes, and every request with a token is a line after it: the digest of the token.

| tool | does |
|---|---|
| `whoami` | the subject, the client and the scopes of the token |
| `add(a, b)`, `slow(seconds)` | a sum; the same answer, later |
| `administer` | needs the scope `admin`: 403 without it |
"""

# pyright: basic
from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import socket
import sys
import urllib.request
from urllib.parse import urlencode

import jwt
import uvicorn
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings

try:
    from mcp.server.mcpserver import MCPServer
except ImportError:  # version 1
    from mcp.server.fastmcp import FastMCP as MCPServer  # pyright: ignore[reportAttributeAccessIssue]

RESOURCE_SERVER = "resource-server:a-secret-of-the-tests-that-is-long-enough"
SCOPED_TOOL, ITS_SCOPE = "administer", "admin"


class Verifier:
    """Accepts what the issuer has signed for this resource, or vouches for."""

    def __init__(self, issuer: str, resource: str) -> None:
        self.issuer = issuer
        self.resource = resource
        self.keys = jwt.PyJWKClient(f"{issuer}/jwks")

    async def verify_token(self, token: str) -> AccessToken | None:
        print(hashlib.sha256(token.encode()).hexdigest(), flush=True)
        return await asyncio.to_thread(self.verify, token)

    def verify(self, token: str) -> AccessToken | None:
        try:
            claims = self.decoded(token) if token.count(".") == 2 else self.introspected(token)
        except jwt.PyJWTError:
            return None
        if claims is None or claims["aud"] not in (self.resource, [self.resource]):
            return None
        return AccessToken(
            token=token,
            client_id=claims["client_id"],
            scopes=claims.get("scope", "").split(),
            expires_at=claims["exp"],
            resource=self.resource,
            subject=claims.get("sub"),
            claims={"iss": claims["iss"]},
        )

    def decoded(self, token: str) -> dict:
        key = self.keys.get_signing_key_from_jwt(token)
        return jwt.decode(
            token, key, ["RS256", "ES256"], audience=self.resource, issuer=self.issuer
        )

    def introspected(self, token: str) -> dict | None:
        form = urlencode({"token": token}).encode()
        request = urllib.request.Request(f"{self.issuer}/token/introspection", form)
        basic = base64.b64encode(RESOURCE_SERVER.encode()).decode()
        request.add_header("Authorization", f"Basic {basic}")
        with urllib.request.urlopen(request, timeout=10) as response:
            answer = json.load(response)
        return answer if answer["active"] else None


class ScopedTool:
    """One tool needs a scope of its own; the refusal is one of HTTP."""

    def __init__(self, app, metadata: str) -> None:
        self.app = app
        self.metadata = metadata

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        if self.lacks_scope(body, dict(scope["headers"])):
            await self.refuse(send)
            return
        rest = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def again():
            return next(rest, None) or await receive()

        await self.app(scope, again, send)

    def lacks_scope(self, body: bytes, headers: dict) -> bool:
        try:
            request = json.loads(body)
            if request["method"] != "tools/call" or request["params"]["name"] != SCOPED_TOOL:
                return False
            token = headers[b"authorization"].decode().split()[1]
            claims = jwt.decode(token, options={"verify_signature": False})
        except (ValueError, KeyError, IndexError, TypeError, jwt.PyJWTError):
            return False  # whatever it is, the server below refuses it
        return ITS_SCOPE not in claims.get("scope", "").split()

    async def refuse(self, send) -> None:
        challenge = (
            f'Bearer error="insufficient_scope", scope="{ITS_SCOPE}", '
            f'resource_metadata="{self.metadata}"'
        )
        headers = [
            (b"www-authenticate", challenge.encode()),
            (b"content-type", b"application/json"),
        ]
        await send({"type": "http.response.start", "status": 403, "headers": headers})
        await send({"type": "http.response.body", "body": b'{"error": "insufficient_scope"}'})


def build(issuer: str, origin: str, scopes: list[str]):
    resource = f"{origin}/mcp"
    server = MCPServer(
        "protected",
        token_verifier=Verifier(issuer, resource),
        auth=AuthSettings.model_validate(  # from text: an AnyHttpUrl would have a slash at its end
            {
                "issuer_url": issuer,
                "resource_server_url": resource,
                "required_scopes": scopes,
                "validate_token_resource": False,  # the verifier does
            }
        ),
    )

    @server.tool()
    async def whoami() -> str:
        token = get_access_token()
        assert token is not None
        about = {"sub": token.subject, "client": token.client_id, "scopes": sorted(token.scopes)}
        return json.dumps(about)

    @server.tool()
    async def add(a: int, b: int) -> str:
        return str(a + b)

    @server.tool()
    async def slow(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return await whoami()

    @server.tool()
    async def administer() -> str:
        return "done"

    metadata = f"{origin}/.well-known/oauth-protected-resource/mcp"
    return ScopedTool(server.streamable_http_app(), metadata)


def main(issuer: str, *scopes: str) -> None:
    own = socket.create_server(("127.0.0.1", 0), backlog=64)
    port = own.getsockname()[1]
    app = build(issuer, f"http://127.0.0.1:{port}", list(scopes))
    print(port, flush=True)
    config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[own])


if __name__ == "__main__":
    main(*sys.argv[1:])
