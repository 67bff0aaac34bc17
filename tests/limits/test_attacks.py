"""Hosts and servers that misbehave: no slot is lost, no limit is passed, nobody else is affected."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from mcp_workbench.core.spec import IssuerSettings, PrincipalLimits, Snapshot
from mcp_workbench.gateway.call_limits import FEW
from tests.approvals.scenes import CAN, NO, ONCE, says, with_answer
from tests.kit.clock import until
from tests.kit.config import snapshot, spec
from tests.kit.http_host import rpc
from tests.kit.issuer import AUDIENCE, TokenIssuer, token_issuer
from tests.kit.results import MODERN, Message, use_tool
from tests.kit.sdk_host import by_identifier
from tests.limits.scenes import (
    CODE,
    NOISY,
    QUIET,
    LimitedPort,
    accepted,
    bearer,
    limited_port,
    modern_call,
    refused,
    sdk_host,
    settings,
)
from tests.tasks.scenes import ERAS, HAS_TASKS, ModernHost, jobs

ONE_CALL = settings(PrincipalLimits(concurrent_calls=1))


async def is_free(opened: LimitedPort) -> None:
    """Nothing holds the one slot any more."""
    await until(lambda: opened.running() == 0)
    assert accepted(await modern_call(opened, NOISY))


# Slots that might never be given back


async def test_a_modern_host_that_vanishes_gives_its_slot_back() -> None:
    async with limited_port(ONE_CALL) as opened:
        for _ in range(20):
            peer = await opened.connect()
            body, headers = opened.modern(
                "tools/call", use_tool("fixture", "hang"), **bearer(NOISY)
            )
            peer.send(opened.request(body, headers))
            await until(lambda: opened.running() == 1)
            peer.close()
            await is_free(opened)


async def test_a_cancelled_call_gives_its_slot_back() -> None:
    async with limited_port(ONE_CALL) as opened:
        session = await opened.open(**bearer(NOISY))
        for id in range(100, 120):
            peer = await opened.connect()
            peer.send(session.request(rpc("tools/call", use_tool("fixture", "hang"), id)))
            await until(lambda: opened.running() == 1)
            cancel = {"requestId": id, "reason": "test"}
            assert (await session.post(rpc("notifications/cancelled", cancel))).status == 202
            await is_free(opened)


async def test_a_cancelled_call_that_waits_for_its_server_gives_its_slot_back() -> None:
    slow = snapshot(spec("fixture"), spec("mute", "hang"))
    async with limited_port(ONE_CALL, slow) as opened:
        session = await opened.open(**bearer(NOISY))
        peer = await opened.connect()
        peer.send(session.request(rpc("tools/call", use_tool("mute", "stats"), 100)))
        await until(lambda: opened.running() == 1)
        refused(await session.use("stats"))
        await session.post(rpc("notifications/cancelled", {"requestId": 100}))
        await is_free(opened)


async def test_a_legacy_host_that_ends_its_session_gives_all_slots_back() -> None:
    async with limited_port(settings(PrincipalLimits(concurrent_calls=5))) as opened:
        session = await opened.open(**bearer(NOISY))
        for _ in range(5):
            await session.begin("hang")
        await until(lambda: opened.running() == 5)
        await session.post(b"", method="DELETE")
        await is_free(opened)


async def test_calls_that_time_out_or_lose_their_server_give_their_slots_back() -> None:
    brief = snapshot(spec("fixture", timeout=0.3))
    async with limited_port(ONE_CALL, brief) as opened:
        assert not accepted(await modern_call(opened, NOISY, "hang"))
        await is_free(opened)
        assert not accepted(await modern_call(opened, NOISY, "die"))
        await is_free(opened)


async def test_a_server_that_can_not_be_started_keeps_no_slot() -> None:
    broken = snapshot(spec("fixture"), spec("broken", "no-such-flag", "exit-early"))
    gone = msgspec.structs.replace(
        broken.toolboxes["dev"].servers["broken"],
        target=msgspec.structs.replace(
            broken.toolboxes["dev"].servers["broken"].target, command="/no/such/program"
        ),
    )
    broken.toolboxes["dev"].servers["broken"] = gone
    async with limited_port(ONE_CALL, broken) as opened:
        for _ in range(3):
            answer = await opened.ask_modern(
                "tools/call", use_tool("broken", "stats"), **bearer(NOISY)
            )
            assert answer.result["_meta"][CODE] == "connect_failed"
            assert opened.running() == 0
        unknown = await modern_call(opened, NOISY, "no-such-tool")
        assert unknown.result["_meta"][CODE] == "unknown_tool"
        await is_free(opened)


@pytest.mark.parametrize("decision", [ONCE, NO])
async def test_a_call_that_waits_for_approval_keeps_its_slot_no_longer(decision: str) -> None:
    guarded = snapshot(spec("fixture", approve=("echo",)))
    async with limited_port(ONE_CALL, guarded) as opened:
        params: Message = {**use_tool("fixture", "echo", {"text": "x"}), "_meta": CAN}
        asked = (await opened.ask_modern("tools/call", params, **bearer(NOISY))).result
        assert asked["resultType"] == "input_required"
        assert opened.running() == 0  # its person may take any time
        again = {**params, **with_answer(asked, says(decision))}
        answer = await opened.ask_modern("tools/call", again, **bearer(NOISY))
        assert accepted(answer) is (decision == ONCE)
        await is_free(opened)


async def test_one_that_is_refused_after_approval_was_not_sent() -> None:
    guarded = snapshot(spec("fixture", approve=("echo",)))
    async with limited_port(settings(PrincipalLimits(calls_per_minute=1)), guarded) as opened:
        params: Message = {**use_tool("fixture", "echo", {"text": "x"}), "_meta": CAN}
        asked = (await opened.ask_modern("tools/call", params, **bearer(NOISY))).result
        again = {**params, **with_answer(asked, says(ONCE))}
        refused(await opened.ask_modern("tools/call", again, **bearer(NOISY)))
        stats = (await modern_call(opened, QUIET)).json_text
        assert stats["methods"].count("tools/call") == 1  # that of this very call


# Many calls in one request


async def test_calls_of_a_batch_count_one_by_one() -> None:
    async with limited_port(settings(PrincipalLimits(calls_per_minute=3))) as opened:
        session = await opened.open("2025-03-26", **bearer(NOISY))
        calls = [json.loads(rpc("tools/call", use_tool("fixture", "stats"), id)) for id in range(9)]
        answer = await session.post(json.dumps(calls).encode())
        results = [message["result"] for message in answer.json]
        assert [bool(result.get("isError")) for result in results].count(False) == 3


async def test_pipelined_requests_count_one_by_one() -> None:
    async with limited_port(settings(PrincipalLimits(2, 1))) as opened:
        peer = await opened.connect()
        one = opened.request(
            *opened.modern("tools/call", use_tool("fixture", "stats"), **bearer(NOISY))
        )
        peer.send(one * 10)
        outcomes = [accepted(await peer.answer()) for _ in range(10)]
        assert outcomes == [True, True, *[False] * 8]
        assert accepted(await modern_call(opened, QUIET))


async def test_a_pipelined_flood_is_refused_at_the_limit_of_requests() -> None:
    async with limited_port(settings(PrincipalLimits(calls_per_minute=1))) as opened:
        one = opened.request(*opened.modern("server/discover", **bearer(NOISY)))
        answered = 0
        for _ in range(80):
            peer = await opened.connect()
            peer.send(one * 10)
            # The rest of a refused peer is not read, so that the system may reset the connection.
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                answered += [(await peer.answer()).status for _ in range(10)].count(200)
        assert answered <= 600
        assert (await opened.ask_modern("server/discover", **bearer(NOISY))).status == 429
        assert (await opened.ask_modern("server/discover", **bearer(QUIET))).status == 200


async def test_calls_of_a_script_count() -> None:
    pytest.importorskip("pydantic_monty")
    plain = snapshot(spec("fixture"))
    box = msgspec.structs.replace(plain.toolboxes["dev"], scripts=True)
    scripted: Snapshot = msgspec.structs.replace(plain, toolboxes={"dev": box})
    code = (
        "ok = 0\n"
        "for _ in range(5):\n"
        "    try:\n"
        "        await call('dev/fixture/stats')\n"
        "        ok += 1\n"
        "    except Exception as error:\n"
        "        pass\n"
        "ok"
    )
    async with limited_port(settings(PrincipalLimits(calls_per_minute=3)), scripted) as opened:
        params = {"name": "run_script", "arguments": {"code": code}}
        result = (await opened.ask_modern("tools/call", params, **bearer(NOISY))).result
        assert result["content"][0]["text"] == "3", result
        refused(await modern_call(opened, NOISY))
        assert opened.running() == 0


@pytest.mark.parametrize("era", ERAS)
async def test_tasks_count_and_can_always_be_cancelled(era: str) -> None:
    limits = settings(PrincipalLimits(calls_per_minute=2))
    async with limited_port(limits, snapshot(jobs(era))) as opened:
        host = ModernHost(opened, HAS_TASKS, **bearer(NOISY))
        task = await host.use("slow_compute", {"seconds": 30})
        await host.get(task["taskId"])
        late = await host.error("tasks/get", {"taskId": task["taskId"]})
        assert late["data"][CODE] == "overloaded"
        assert (await host.ask("tasks/cancel", {"taskId": task["taskId"]})).result is not None
        opened.clock.now += 61
        assert (await host.get(task["taskId"]))["status"] == "cancelled"


# Principals


@pytest.fixture
def issuer() -> Iterator[TokenIssuer]:
    with token_issuer() as opened:
        yield opened


def people(issuer: TokenIssuer, limits: PrincipalLimits) -> Any:
    auth = IssuerSettings(issuer.url, AUDIENCE, AUDIENCE, toolboxes=("*",), limits=limits)
    return msgspec.structs.replace(settings(None), auth=auth)


HOSTILE = [
    "noisy", "sub:noisy", "%s%s%n", "${HOME}", "a" * 255, "{}", "../../etc", "' OR 1=1 --", "limits.sessions",
    "*", "\u202etxt", "🙂" * 60, "a b\tc"[:3], "__proto__", "http.tokens.noisy", "}:calls", "KEYS[1]",
]  # fmt: skip


async def test_hostile_names_have_limits_of_their_own_and_are_never_shown(
    issuer: TokenIssuer,
) -> None:
    async with limited_port(people(issuer, PrincipalLimits(calls_per_minute=1))) as opened:
        for subject in HOSTILE:
            token = issuer.token(sub=subject)
            assert accepted(await modern_call(opened, token)), subject
            late = await modern_call(opened, token)
            refused(late)
            if len(subject) > 3:
                assert json.dumps(subject)[1:-1].encode() not in late.body
        assert accepted(await modern_call(opened, NOISY))


async def test_very_many_people_leave_nothing_behind(issuer: TokenIssuer) -> None:
    async with limited_port(people(issuer, PrincipalLimits(1, 1, 1))) as opened:
        quotas = opened.quotas
        busy = "sub:busy"
        quotas.usage(busy).running.add("a call")
        for number in range(20 * FEW):
            quotas.request(f"sub:{number}")
            opened.clock.now += 1
        assert len(quotas) <= 2 * FEW
        assert opened.running(busy) == 1


async def test_people_who_are_active_are_not_forgotten_for_others(issuer: TokenIssuer) -> None:
    async with limited_port(people(issuer, PrincipalLimits(calls_per_minute=1))) as opened:
        token = issuer.token(sub="alice")
        assert accepted(await modern_call(opened, token))
        for number in range(4 * FEW):
            opened.quotas.request(f"sub:{number}")
        refused(await modern_call(opened, token))


# Clocks


@pytest.mark.parametrize("jump", [-900.0, 900.0])
async def test_a_clock_that_jumps_locks_nobody_out(jump: float) -> None:
    async with limited_port(settings(PrincipalLimits(2, 1))) as opened:
        assert accepted(await modern_call(opened, NOISY))
        assert accepted(await modern_call(opened, NOISY))
        opened.clock.now += jump
        if jump < 0:
            assert refused(await modern_call(opened, NOISY)) <= 61
            opened.clock.now += 61
        assert accepted(await modern_call(opened, NOISY))


# Others


async def test_a_principal_at_its_limits_costs_another_no_call() -> None:
    limits = settings(PrincipalLimits(60, 4, 2))
    async with limited_port(limits) as opened, sdk_host(opened, QUIET, MODERN) as quiet:
        stop = asyncio.Event()

        async def flood() -> None:
            while not stop.is_set():
                await modern_call(opened, NOISY, "slow", {"seconds": 0.05})

        async with asyncio.TaskGroup() as tasks:
            for _ in range(16):
                tasks.create_task(flood())
            await until(lambda: opened.running() == 4)
            for _ in range(50):
                result = await quiet.call_tool(*by_identifier("fixture", "stats", {}, "dev"))
                assert not result.is_error
            stop.set()
        assert opened.running() == 0
