"""Version 1 of the Python SDK as a host that signs in: sign_in_v1.py URL LOGIN. Run by its interpreter.

It writes what `use_tool` of the server `fixture` said.
"""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import anyio
import httpx
from mcp import ClientSession
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientMetadata
from pydantic import AnyUrl

sys.path.insert(0, str(Path(__file__).parents[1] / "kit" / "authorization_server"))
from person import sign_in

REDIRECT = "http://127.0.0.1:1/callback"


class Storage:
    tokens = client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client_info):
        self.client = client_info


async def main(url: str, login: str) -> None:
    landed = ""

    async def visit(address: str) -> None:
        nonlocal landed
        landed = await anyio.to_thread.run_sync(lambda: sign_in(address, login, follow=False))

    async def callback() -> tuple[str, str | None]:
        query = dict(parse_qsl(urlsplit(landed).query))
        return query["code"], query["state"]

    metadata = OAuthClientMetadata(
        client_name="version 1",
        redirect_uris=[AnyUrl(REDIRECT)],
        grant_types=["authorization_code", "refresh_token"],
        token_endpoint_auth_method="none",
    )
    auth = OAuthClientProvider(url, metadata, Storage(), visit, callback)
    async with (
        httpx.AsyncClient(auth=auth, timeout=30, trust_env=False) as http,
        streamable_http_client(url, http_client=http) as (receive, send, _),
        ClientSession(receive, send) as session,
    ):
        await session.initialize()
        tool = {"toolbox": "dev", "server": "fixture", "tool": "echo"}
        result = await session.call_tool("use_tool", {"tool": tool, "arguments": {"text": "hi"}})
        print(result.content[0].text)


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
