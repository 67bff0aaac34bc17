"""A server and its authorization server at one origin, whose every answer can be anything."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs

from mcp_workbench.core.spec import AuthSettings, HttpEndpoint

Json = dict[str, Any]
Answer = tuple[int, Json | bytes]
Form = dict[str, str]


class HostileIssuer:
    """Answers as `pages` says: by path, with a status and a document, or with a function of the form."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.url = f"{origin}/mcp"
        self.challenge = "Bearer"
        self.requests: list[tuple[str, Form]] = []
        self.metadata: Json = {
            "issuer": origin,
            "authorization_endpoint": f"{origin}/authorize",
            "token_endpoint": f"{origin}/token",
            "registration_endpoint": f"{origin}/register",
            "device_authorization_endpoint": f"{origin}/device",
        }
        self.resource: Json = {"resource": self.url, "authorization_servers": [origin]}
        self.pages: dict[str, Answer | Callable[[Form], Answer]] = {
            "/mcp": (401, {}),
            "/register": (201, {"client_id": "c"}),
            "/token": (200, {"access_token": "t", "token_type": "bearer", "refresh_token": "r"}),
        }

    def target(self, **auth: Any) -> HttpEndpoint:
        return HttpEndpoint(self.url, auth=AuthSettings(**auth))

    def count(self, path: str) -> int:
        return sum(asked == path for asked, _ in self.requests)

    def answer(self, path: str, form: Form) -> Answer:
        learned = {
            "/.well-known/oauth-protected-resource/mcp": (200, self.resource),
            "/.well-known/oauth-authorization-server": (200, self.metadata),
        }
        page = self.pages.get(path) or learned.get(path, (404, {}))
        return page(form) if callable(page) else page

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            length = head.lower().partition("content-length:")[2].partition("\r\n")[0].strip()
            text = (await reader.readexactly(int(length or 0))).decode()
            path = head.split(" ", 2)[1]
            form = {name: values[0] for name, values in parse_qs(text).items()}
            self.requests.append((path, form))
            status, page = self.answer(path, form)
            body = page if isinstance(page, bytes) else json.dumps(page).encode()
            lines = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nContent-Type: application/json\r\n"
            writer.write(
                f"{lines}WWW-Authenticate: {self.challenge}\r\nConnection: close\r\n\r\n".encode()
                + body
            )
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()


@asynccontextmanager
async def hostile_issuer() -> AsyncGenerator[HostileIssuer]:
    """One that answers on a loopback port for the length of the block."""
    running: list[HostileIssuer] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await running[0].serve(reader, writer)

    async with await asyncio.start_server(serve, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        running.append(HostileIssuer(f"http://127.0.0.1:{port}"))
        yield running[0]
