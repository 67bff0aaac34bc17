"""Many processes with one sign-in: exactly one of them refreshes it each time, and no call fails."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import TextContent

from tests.kit.authorization_server import authorization_server, protected_server
from tests.kit.clock import PATIENCE
from tests.peers.test_sign_in import COMMAND, Place, use

pytestmark = [pytest.mark.peers, pytest.mark.usefixtures("workplace")]

TOKEN_SECONDS = 5
SECONDS = float(
    os.environ.get("SIGN_IN_SECONDS", "22")
)  # `make soak-sign-in` runs it for ten minutes
PAUSE = 0.05  # between two calls of one host


async def calls_of(place: Place, command: list[str], end: float, failures: list[str]) -> int:
    """A host that calls until `end`; how often did it?"""
    program, *words = command
    server = StdioServerParameters(command=program, args=words, env=place.env)
    made = 0
    async with Client(stdio_client(server), mode="legacy", read_timeout_seconds=PATIENCE) as host:
        while time.monotonic() < end:
            result = await host.call_tool("use_tool", use("whoami"))
            [content] = result.content
            text = content.text if isinstance(content, TextContent) else ""
            if result.is_error or json.loads(text)["sub"] != "alice":
                failures.append(text)
            made += 1
            await asyncio.sleep(PAUSE)
    return made


async def commands_of(place: Place, end: float, failures: list[str]) -> int:
    """A person who uses `call` again and again."""
    made = 0
    while time.monotonic() < end:
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            *("call", "dev/p/whoami"),
            env=place.env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(PATIENCE):
            _, errors = await process.communicate()
        if process.returncode:
            failures.append(errors.decode())
        made += 1
    return made


async def test_one_process_refreshes_for_all(tmp_path: Path) -> None:
    with (
        authorization_server(accessTokenSeconds=TOKEN_SECONDS) as issuer,
        protected_server(issuer.issuer, "mcp") as server,
    ):
        place = Place(tmp_path, issuer, server.url)
        assert place.run("login", "dev/p").returncode == 0
        assert place.run("up").returncode == 0
        failures: list[str] = []
        end = time.monotonic() + SECONDS
        alone = [*COMMAND, "serve", "--attach", "never"]
        try:
            made = await asyncio.gather(
                *(calls_of(place, alone, end, failures) for _ in range(3)),
                calls_of(place, [*COMMAND, "serve"], end, failures),
                commands_of(place, end, failures),
            )
        finally:
            place.run("down")
        assert failures == []
        assert min(made) > 0
        assert issuer.count("consent") == 1
        assert issuer.count("reused") == 0
        refreshed = issuer.count("token", grant="refresh_token")
        assert SECONDS / TOKEN_SECONDS - 1 <= refreshed <= SECONDS / (TOKEN_SECONDS / 2) + 1
        print(f"{sum(made)} calls, {refreshed} refreshes, in {SECONDS:g} s")
