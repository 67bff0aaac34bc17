"""Limits of principals, seen by hosts: refused calls, requests and sessions, and who is not affected."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from mcp_workbench.core.spec import IssuerSettings, Limits, PrincipalLimits, Snapshot
from mcp_workbench.server.http import session_limits
from tests.kit.clock import until
from tests.kit.config import snapshot, spec
from tests.kit.http_host import rpc
from tests.kit.issuer import AUDIENCE, TokenIssuer, token_issuer
from tests.kit.results import INITIALIZE, MODERN, use_tool
from tests.kit.sdk_host import by_identifier, text
from tests.limits.scenes import (
    CODE,
    NOISY,
    QUIET,
    RETRY,
    accepted,
    bearer,
    first_text,
    limited_port,
    modern_call,
    refused,
    sdk_host,
    settings,
)

modes = pytest.mark.parametrize("mode", ["legacy", MODERN])
servers = pytest.mark.parametrize("server", ["fixture", "new"])


def call(server: str, tool: str = "stats", **arguments: Any) -> tuple[str, dict[str, Any]]:
    return by_identifier(server, tool, arguments, "dev")


# Calls per minute


@modes
@servers
async def test_an_sdk_host_is_told_when_to_call_again(mode: str, server: str) -> None:
    async with (
        limited_port(settings(PrincipalLimits(calls_per_minute=3))) as opened,
        sdk_host(opened, NOISY, mode) as host,
    ):
        for _ in range(3):
            assert not (await host.call_tool(*call(server))).is_error
        late = await host.call_tool(*call(server))
        assert late.is_error
        assert (late.meta or {})[CODE] == "overloaded"
        assert (late.meta or {})[RETRY] == 61
        assert "3 calls per minute are allowed" in first_text(late)
        assert (
            json.loads(text(await quiet_call(opened, mode, server)))["methods"].count("tools/call")
            == 4
        )

        opened.clock.now += 61
        assert not (await host.call_tool(*call(server))).is_error


async def quiet_call(opened: Any, mode: str, server: str) -> Any:
    async with sdk_host(opened, QUIET, mode) as host:
        return await host.call_tool(*call(server))


async def test_prompts_and_resources_are_calls_too() -> None:
    from tests.http.test_tokens import two_boxes

    limits = settings(PrincipalLimits(calls_per_minute=2))
    async with (
        limited_port(limits, two_boxes()) as opened,
        sdk_host(opened, NOISY, "legacy") as host,
    ):
        await host.get_prompt("dev__fixture__greet", {"who": "x"})
        await host.read_resource("mcp-workbench://dev/fixture/note://fixture-notes/own")
        told = await opened.ask(
            *opened.modern(
                "prompts/get",
                {"name": "dev__fixture__greet", "arguments": {"who": "x"}},
                **bearer(NOISY),
            )
        )
        assert told.error["data"][CODE] == "overloaded"
        assert told.error["data"][RETRY] == 61


async def test_calls_to_different_servers_and_endpoints_share_one_limit() -> None:
    async with limited_port(settings(PrincipalLimits(calls_per_minute=2))) as opened:
        assert accepted(await modern_call(opened, NOISY))
        params = use_tool("new", "stats")
        other = await opened.ask(
            *opened.modern("tools/call", params, **bearer(NOISY)), path="/mcp/dev"
        )
        assert accepted(other)
        refused(await modern_call(opened, NOISY))


# Calls in flight


@modes
async def test_calls_in_flight_are_bounded_and_their_end_makes_room(mode: str) -> None:
    limits = settings(PrincipalLimits(concurrent_calls=2))
    async with limited_port(limits) as opened, sdk_host(opened, NOISY, mode) as host:
        assert not (
            await host.call_tool(*call("fixture"))
        ).is_error  # its server is ready from now on
        async with asyncio.TaskGroup() as tasks:
            held = [
                tasks.create_task(host.call_tool(*call("fixture", "hold", key=key))) for key in "ab"
            ]
            await until(lambda: opened.running() == 2)
            third = await host.call_tool(*call("fixture"))
            assert (third.meta or {})[CODE] == "overloaded"
            assert (third.meta or {})[RETRY] == 1
            assert "2 calls in flight" in first_text(third)
            for key in "ab":
                async with sdk_host(opened, QUIET, mode) as other:
                    assert not (
                        await other.call_tool(*call("fixture", "release", key=key))
                    ).is_error
        assert all(not task.result().is_error for task in held)
        assert opened.running() == 0
        assert not (await host.call_tool(*call("fixture"))).is_error


async def test_calls_that_wait_for_a_slow_server_count() -> None:
    slow = snapshot(spec("fixture"), spec("mute", "hang"))
    async with limited_port(settings(PrincipalLimits(concurrent_calls=1)), slow) as opened:
        waiting = await opened.connect()
        body, headers = opened.modern("tools/call", use_tool("mute", "stats"), **bearer(NOISY))
        waiting.send(opened.request(body, headers))
        await until(lambda: opened.running() == 1)
        refused(await modern_call(opened, NOISY))
        assert accepted(await modern_call(opened, QUIET))
        waiting.close()
        await until(lambda: opened.running() == 0)
        assert accepted(await modern_call(opened, NOISY))


# Requests over HTTP


async def test_a_flood_of_requests_gets_429_before_its_bodies_are_read() -> None:
    async with limited_port(settings(PrincipalLimits(calls_per_minute=1))) as opened:
        answers = [await opened.ask_modern("ping", **bearer(NOISY)) for _ in range(601)]
        statuses, answer = [one.status for one in answers], answers[-1]
        assert statuses.count(429) == 1
        assert statuses[-1] == 429
        assert answer.headers["retry-after"] == "61"
        assert answer.error["data"] == {CODE: "overloaded", RETRY: 61}
        assert (await opened.ask_modern("server/discover", **bearer(QUIET))).status == 200
        opened.clock.now += 61
        assert accepted(await modern_call(opened, NOISY))


async def test_requests_on_one_connection_are_counted_too() -> None:
    async with limited_port(settings(PrincipalLimits(calls_per_minute=1))) as opened:
        peer = await opened.connect()
        one = opened.request(*opened.modern("ping", **bearer(NOISY)))
        seen: list[int] = []
        for _ in range(601):
            peer.send(one)
            seen.append((await peer.answer()).status)
        assert seen.count(429) == 1
        assert seen[-1] == 429


# Sessions


async def test_sessions_of_a_principal_are_bounded_by_its_own_limit() -> None:
    begin = rpc("initialize", INITIALIZE, 1)
    limits = settings(PrincipalLimits(sessions=2))
    async with limited_port(limits) as opened:
        first = await opened.open(**bearer(NOISY))
        await opened.open(**bearer(NOISY))
        full = await opened.ask(begin, bearer(NOISY))
        assert (full.status, full.headers["retry-after"]) == (429, "60")
        assert full.error["data"] == {CODE: "overloaded", RETRY: 60}
        assert full.message["id"] == 1
        assert "mcp-session-id" not in full.headers
        assert (await opened.ask(begin, bearer(QUIET))).status == 200
        await first.post(b"", method="DELETE")
        assert (await opened.ask(begin, bearer(NOISY))).status == 200


async def test_all_sessions_together_keep_their_limit() -> None:
    few = snapshot(spec("fixture"), limits=Limits(sessions=2))
    begin = rpc("initialize", INITIALIZE, 1)
    async with limited_port(settings(PrincipalLimits(sessions=5)), few) as opened:
        statuses = [(await opened.ask(begin, bearer(NOISY))).status for _ in range(3)]
        assert statuses == [200, 200, 503]


async def test_a_host_that_vanished_does_not_lock_out_its_principal() -> None:
    limits = settings(PrincipalLimits(sessions=2))
    async with limited_port(limits) as opened:
        now = opened.server.now
        vanished = await opened.open(**bearer(NOISY))
        other = await opened.open(**bearer(NOISY))
        opened.front.tick(now + session_limits.SPARE + 1)
        assert (await other.post(other.ask("ping"))).status == 200
        await opened.open(**bearer(NOISY))
        assert (await vanished.post(vanished.ask("ping"))).status == 404
        assert (await other.post(other.ask("ping"))).status == 200
        full = await opened.ask(rpc("initialize", INITIALIZE, 1), bearer(NOISY))
        assert full.status == 429


async def test_a_session_that_is_in_use_makes_no_room() -> None:
    limits = settings(PrincipalLimits(sessions=2))
    async with limited_port(limits) as opened:
        now = opened.server.now
        busy, listening = await opened.open(**bearer(NOISY)), await opened.open(**bearer(NOISY))
        await busy.begin("hang")
        await listening.listen()
        await until(lambda: opened.running() == 1)
        opened.front.tick(now + 10 * session_limits.SPARE)
        full = await opened.ask(rpc("initialize", INITIALIZE, 1), bearer(NOISY))
        assert full.status == 429


# People who sign in


@pytest.fixture
def issuer() -> Iterator[TokenIssuer]:
    with token_issuer() as opened:
        yield opened


@modes
async def test_each_person_who_signs_in_has_the_limits_for_themselves(
    mode: str, issuer: TokenIssuer
) -> None:
    auth = IssuerSettings(
        issuer.url, AUDIENCE, AUDIENCE, toolboxes=("*",), limits=PrincipalLimits(1, 1, 1)
    )
    http = msgspec.structs.replace(settings(None), auth=auth)
    async with limited_port(http) as opened:
        for person in ("alice", "bob"):
            async with sdk_host(opened, issuer.token(sub=person), mode) as host:
                assert not (await host.call_tool(*call("fixture"))).is_error
                # Another token of the same person changes nothing.
                renewed = issuer.token(sub=person, jti="2")
                assert refused(await modern_call(opened, renewed)) == 61
        assert accepted(await modern_call(opened, NOISY))


# Reload


async def test_a_reload_changes_limits_and_keeps_counts() -> None:
    async with limited_port(settings(PrincipalLimits(calls_per_minute=3))) as opened:
        for _ in range(2):
            assert accepted(await modern_call(opened, NOISY))
        opened.reload(settings(PrincipalLimits(calls_per_minute=2)))
        refused(await modern_call(opened, NOISY))
        opened.reload(settings(PrincipalLimits(calls_per_minute=4)))
        statuses = [accepted(await modern_call(opened, NOISY)) for _ in range(4)]
        assert statuses == [True, True, False, False]
        opened.reload(settings(None))
        assert accepted(await modern_call(opened, NOISY))


async def test_limits_that_come_with_a_reload_apply_to_open_sessions() -> None:
    async with limited_port(settings(None, quiet=PrincipalLimits(100))) as opened:
        session = await opened.open(**bearer(NOISY))
        assert accepted(await session.use("stats"))
        opened.reload(settings(PrincipalLimits(calls_per_minute=1)))
        assert accepted(await session.use("stats"))
        refused(await session.use("stats"))


async def test_calls_in_flight_survive_a_reload_that_removes_the_limits() -> None:
    async with limited_port(settings(PrincipalLimits(concurrent_calls=1))) as opened:
        session = await opened.open(**bearer(NOISY))
        assert accepted(await session.use("stats"))  # its server is ready from now on
        held = await session.begin("hold", {"key": "a"})
        await until(lambda: opened.running() == 1)
        opened.reload(settings(None))
        assert accepted(await session.use("release", {"key": "a"}))
        assert accepted(await held.answer())
        opened.reload(settings(PrincipalLimits(concurrent_calls=1)))
        assert opened.running() == 0
        assert accepted(await session.use("stats"))


async def test_a_port_without_limits_has_no_quotas() -> None:
    from tests.kit.http_host import port

    plain: Snapshot = msgspec.structs.replace(snapshot(spec("fixture")), http=settings(None))
    async with port(plain, settings(None)) as opened:
        assert accepted(await modern_call(opened, NOISY))
        assert opened.front.gateway.quotas is None
