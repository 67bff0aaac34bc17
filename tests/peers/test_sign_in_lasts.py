"""With a real authorization server: a slow refresh delays nobody, a fault loses nothing, and no secret is shown."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.client.stdio import stdio_client

from tests.kit.authorization_server import authorization_server, protected_server
from tests.kit.clock import PATIENCE
from tests.kit.sign_in_server import SIGN_INS
from tests.peers.test_sign_in import Place, text_of, use

pytestmark = [pytest.mark.peers, pytest.mark.usefixtures("workplace")]

SLOW = 2.0  # seconds that the token endpoint takes
AT_ONCE = 8  # calls


def stored(place: Place) -> tuple[Path, dict[str, Any]]:
    [path] = place.home.glob(SIGN_INS)
    return path, json.loads(path.read_text())


def end_soon(place: Place, seconds: float) -> None:
    """Let the stored token seem to end in this time; the server takes it for longer."""
    path, credential = stored(place)
    path.write_text(json.dumps({**credential, "expires_at": time.time() + seconds}))


async def test_a_slow_refresh_delays_no_call(tmp_path: Path) -> None:
    with authorization_server() as issuer, protected_server(issuer.issuer, "mcp") as server:
        place = Place(tmp_path, issuer, server.url)
        assert place.run("login", "dev/p").returncode == 0
        issuer.change(faults={"/token": {"delay": SLOW}})
        end_soon(place, 50)
        took: list[float] = []
        async with Client(stdio_client(place.serve()), read_timeout_seconds=PATIENCE) as host:

            async def call() -> None:
                began = time.monotonic()
                result = await host.call_tool("use_tool", use("whoami"))
                took.append(time.monotonic() - began)
                assert json.loads(text_of(result))["sub"] == "alice"

            await call()  # connects, and begins to refresh
            took.clear()
            async with asyncio.timeout(PATIENCE):
                while issuer.count("token", grant="refresh_token") == 0:
                    await asyncio.gather(*(call() for _ in range(AT_ONCE)))
        print(f"{len(took)} calls during the refresh, the slowest {max(took) * 1000:.0f} ms")
        assert max(took) < SLOW
        assert issuer.count("reused") == 0


def test_a_fault_of_the_issuer_loses_nothing(tmp_path: Path) -> None:
    with authorization_server() as issuer, protected_server(issuer.issuer, "mcp") as server:
        place = Place(tmp_path, issuer, server.url)
        assert place.run("login", "dev/p").returncode == 0
        end_soon(place, -1)
        issuer.change(faults={"/token": {"status": 503}})
        for _ in range(2):
            failed = place.run("call", "dev/p/whoami")
            assert failed.returncode == 4
            assert "HTTP 503; try again later" in failed.stderr
        issuer.change(faults={})
        assert place.whoami()["sub"] == "alice"
        assert issuer.count("consent") == 1
        assert issuer.count("reused") == 0


def test_no_secret_of_a_real_issuer_is_shown_or_kept_elsewhere(tmp_path: Path) -> None:
    with authorization_server() as issuer, protected_server(issuer.issuer, "mcp") as server:
        place = Place(tmp_path, issuer, server.url)
        texts: list[str] = []
        secrets: set[str] = set()
        assert place.run("login", "dev/p").returncode == 0
        for _ in range(2):
            _, credential = stored(place)
            secrets |= {credential["access_token"], credential["refresh_token"]}
            for words in (
                ("call", "dev/p/whoami", "-v"),
                ("check", "--connect", "--json", "-v"),
                ("tools", "--json", "-v"),
                ("status", "--json"),
                ("doctor", "--json", "-v"),
            ):
                done = place.run(*words)
                texts += [done.stdout, done.stderr]
            end_soon(place, -1)
        _, credential = stored(place)
        assert credential["access_token"] not in secrets  # it was refreshed in between
        secrets |= {credential["access_token"], credential["refresh_token"]}
        files = [
            path.read_bytes().decode("latin-1")
            for path in tmp_path.rglob("*")
            if path.is_file() and path.parent.name != "credentials"
        ]
        assert [s for s in secrets for text in [*texts, *files] if s in text] == []
        assert issuer.count("reused") == 0
