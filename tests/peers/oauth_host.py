"""The SDK's own OAuth client as a host, with a person before it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from mcp_types import TextContent
from pydantic import AnyUrl

from tests.kit.authorization_server.person import sign_in

REDIRECT = "http://127.0.0.1:1/callback"  # nobody listens: the person reads the address out


class Storage:
    """In memory."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class SignIn:
    """The SDK's OAuth client, with a person before it."""

    def __init__(self, url: str, *, document: str | None = None, deny: bool = False) -> None:
        self.storage = Storage()
        self.deny = deny
        self.landed = ""
        self.metadata = OAuthClientMetadata(
            client_name="judge",
            redirect_uris=[AnyUrl(REDIRECT)],
            grant_types=["authorization_code", "refresh_token"],
            token_endpoint_auth_method="none",
        )
        self.auth = OAuthClientProvider(
            url, self.metadata, self.storage, self.visit, self.callback, document
        )

    async def visit(self, url: str) -> None:
        self.landed = await asyncio.to_thread(sign_in, url, follow=False, deny=self.deny)

    async def callback(self) -> AuthorizationCodeResult:
        query = dict(parse_qsl(urlsplit(self.landed).query))
        return AuthorizationCodeResult(
            code=query["code"], state=query["state"], iss=query.get("iss")
        )


@asynccontextmanager
async def host(url: str, person: SignIn, mode: Any = "auto") -> AsyncGenerator[Client]:
    async with (
        httpx2.AsyncClient(auth=person.auth, timeout=30, trust_env=False) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode, cache=None) as client,
    ):
        yield client


async def said(client: Client, tool: str, /, **arguments: Any) -> str:
    (block,) = (await client.call_tool(tool, arguments)).content
    assert isinstance(block, TextContent)
    return block.text
