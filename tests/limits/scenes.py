"""Ports whose tokens have limits, and their hosts."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import msgspec
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent

from mcp_workbench.core.spec import HttpSettings, NamedToken, PrincipalLimits, Snapshot
from mcp_workbench.gateway.call_limits import PrincipalQuotas
from tests.kit.config import snapshot, spec
from tests.kit.http_host import Answer, OwnPort, Port, port
from tests.kit.results import Message, use_tool
from tests.kit.sdk_host import NO_AUTHORITIES, client

NOISY, QUIET = "noisy-" + "n" * 32, "quiet-" + "q" * 32
CODE, RETRY = "mcp-workbench/code", "mcp-workbench/retry_after_s"


def settings(limits: PrincipalLimits | None, quiet: PrincipalLimits | None = None) -> HttpSettings:
    """Two tokens, of which normally the first has limits."""
    return HttpSettings(
        tokens=(NamedToken("noisy", NOISY, limits=limits), NamedToken("quiet", QUIET, limits=quiet))
    )


class Clock:
    """The time that the limits see."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class LimitedPort(OwnPort):
    """A port whose principals have limits. Its clock stands still until it is moved."""

    clock: Clock

    @property
    def quotas(self) -> PrincipalQuotas:
        quotas = self.front.gateway.quotas
        assert quotas is not None
        return quotas

    def running(self, principal: str = "noisy") -> int:
        return len(self.quotas.usage(principal).running)

    def reload(self, http: HttpSettings) -> None:
        gateway = self.front.gateway
        gateway.reload(msgspec.structs.replace(gateway.snapshot, http=http))


@asynccontextmanager
async def limited_port(
    http: HttpSettings, configuration: Snapshot | None = None, *, stands: bool = True
) -> AsyncGenerator[LimitedPort]:
    configuration = configuration or snapshot(spec("fixture"), spec("new", "modern", era="modern"))
    configuration = msgspec.structs.replace(configuration, http=http)
    async with port(configuration, http) as opened:
        limited = LimitedPort(opened.front, opened.server)
        if stands:
            limited.clock = Clock()
            limited.quotas.clock = limited.clock
        try:
            yield limited
        finally:
            limited.close()


@asynccontextmanager
async def sdk_host(opened: Port, token: str, mode: str, **more: Any) -> AsyncGenerator[Client]:
    """A host of the official SDK that brings this token."""
    async with httpx2.AsyncClient(
        headers=bearer(token), timeout=30, trust_env=False, verify=NO_AUTHORITIES
    ) as http:
        place = streamable_http_client(f"http://{opened.name}/mcp", http_client=http)
        async with client(place, mode=mode, **more) as host:
            yield host


def bearer(token: str) -> dict[str, Any]:
    return {"authorization": f"Bearer {token}"}


async def modern_call(
    opened: Port, token: str, tool: str = "stats", arguments: Message | None = None
) -> Answer:
    params = use_tool("fixture", tool, arguments)
    return await opened.ask_modern("tools/call", params, **bearer(token))


def refused(answer: Answer) -> int:
    """The seconds after which a call that was refused is to be tried again."""
    result = answer.result
    assert result["isError"]
    assert result["_meta"][CODE] == "overloaded"
    return result["_meta"][RETRY]


def accepted(answer: Answer) -> bool:
    return answer.status == 200 and not answer.result.get("isError", False)


def first_text(result: CallToolResult) -> str:
    """The message of an error; a hint follows it."""
    block = result.content[0]
    assert isinstance(block, TextContent)
    return block.text
