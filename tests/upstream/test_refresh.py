"""A sign-in lasts: it is refreshed before it ends and on a 401, by one for all, and no fault of the issuer loses it."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mcp_workbench.core.spec import HttpEndpoint
from mcp_workbench.protocol.oauth import Challenge, SignInFailed
from mcp_workbench.transport.tasks import TaskScope, task_scope
from mcp_workbench.upstream.oauth import authorization as module
from mcp_workbench.upstream.oauth.authorization import Authorization
from mcp_workbench.upstream.oauth.sign_in import SignIn, store_of
from tests.faults.test_surroundings import meddling
from tests.kit.authorization_server.person import sign_in
from tests.kit.clock import PATIENCE, until
from tests.kit.config import config_file
from tests.kit.pipe_host import PipeHost
from tests.kit.results import texts
from tests.kit.sign_in_server import (
    SIGN_INS,
    Act,
    Answer,
    Gate,
    Json,
    SignInServer,
    after,
    sign_in_server,
)

NOBODY = Challenge()
HOURS = 5 * 3600
SLOW = 2.0  # seconds

pytestmark = pytest.mark.usefixtures("forked_commands")


@pytest.fixture
def server() -> Generator[SignInServer]:
    with sign_in_server() as running:
        yield running


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"MCP_WORKBENCH_HOME": str(tmp_path / "home")}


@asynccontextmanager
async def signed_in(
    server: SignInServer, environ: dict[str, str]
) -> AsyncGenerator[tuple[Authorization, TaskScope]]:
    """Alice has signed in; a connection that uses it."""
    target = HttpEndpoint(server.url)
    async with asyncio.timeout(3 * PATIENCE), task_scope() as scope:
        async with SignIn(target, environ).open() as pending:
            threading.Thread(target=sign_in, args=(pending.url,)).start()
            await pending.done()
        yield another(server, environ), scope


def another(server: SignInServer, environ: dict[str, str]) -> Authorization:
    """One more process, as far as the credential is concerned."""
    return Authorization(HttpEndpoint(server.url), environ, {})


def token(authorization: Authorization) -> str:
    return authorization.line.decode().removeprefix("Authorization: Bearer ").strip()


async def test_it_is_refreshed_before_it_ends_while_calls_go_on(
    server: SignInServer, environ: dict[str, str]
) -> None:
    server.seconds = 2
    async with signed_in(server, environ) as (one, scope):
        first = token(one)
        assert one.is_fresh
        gate = server.acts["/token"] = Gate()
        await until(lambda: not one.is_fresh)
        for _ in range(50):
            await one.prepare(scope)
            assert token(one) == first  # nobody waits
        await asyncio.to_thread(gate.wait)
        gate.open()
        await until(lambda: token(one) != first)
        assert token(one) in server.good
        assert server.refreshes == 1


async def test_one_that_has_ended_is_waited_for_by_all_and_asked_for_once(
    server: SignInServer, environ: dict[str, str]
) -> None:
    server.seconds = 0
    async with signed_in(server, environ) as (one, scope):
        server.seconds = 3600
        others = [another(server, environ) for _ in range(3)]
        await asyncio.gather(*(each.prepare(scope) for each in (one, *others) for _ in range(5)))
        assert {token(each) for each in (one, *others)} <= server.good
        assert server.refreshes == 1


async def test_a_401_is_answered_with_a_new_one(
    server: SignInServer, environ: dict[str, str]
) -> None:
    async with signed_in(server, environ) as (one, _):
        server.end_tokens()
        renewed = await asyncio.gather(*(one.refused(401, NOBODY, one.line) for _ in range(20)))
        assert all(renewed)
        assert token(one) in server.good
        assert server.refreshes == 1


def page(status: int, body: Json | str = "") -> Act:
    return lambda asked: Answer(status, body)


def faults() -> dict[str, Act]:
    return {
        "500": page(500),
        "503": page(503),
        "429": page(429),
        "busy": page(400, {"error": "temporarily_unavailable"}),
        "a page of a proxy": page(403, "<html>"),
        "not found": page(404, "<html>"),
        "a login page": page(200, "<html>"),
        "half": page(200, {"token_type": "bearer"}),
    }


@pytest.mark.parametrize("name", faults())
async def test_a_fault_of_the_issuer_loses_nothing(
    server: SignInServer, environ: dict[str, str], name: str
) -> None:
    async with signed_in(server, environ) as (one, _):
        before = store_of(HttpEndpoint(server.url), environ, "").read()
        server.end_tokens()
        server.acts["/token"] = faults()[name]
        for _ in range(2):
            with pytest.raises(SignInFailed):
                await one.refused(401, NOBODY, one.line)
        assert store_of(HttpEndpoint(server.url), environ, "").read() == before
        del server.acts["/token"]
        assert await one.refused(401, NOBODY, one.line)
        assert token(one) in server.good


async def test_an_issuer_that_hangs_fails_all_that_wait_at_once(
    server: SignInServer, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not one after the other: ten calls wait as long as one."""
    monkeypatch.setattr("mcp_workbench.upstream.oauth.outgoing.PATIENCE", 0.5)
    async with signed_in(server, environ) as (one, _):
        server.end_tokens()
        gate = server.acts["/token"] = Gate()
        began = time.monotonic()
        outcomes = await asyncio.gather(
            *(one.refused(401, NOBODY, one.line) for _ in range(10)), return_exceptions=True
        )
        assert time.monotonic() - began < 3
        assert {type(each) for each in outcomes} == {SignInFailed}
        assert server.refreshes == 1
        gate.open()
        del server.acts["/token"]
    # Its refresh token is still good: the request was never answered, nor taken.


@pytest.mark.parametrize("error", ["invalid_grant", "invalid_client"])
async def test_a_refusal_ends_it_with_one_message(
    server: SignInServer,
    environ: dict[str, str],
    error: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with signed_in(server, environ) as (one, _):
        server.end_tokens()
        server.acts["/token"] = lambda _: Answer(400, {"error": error})
        other = another(server, environ)
        for each in (one, one, other, other):
            assert not await each.refused(401, NOBODY, each.line)
        asked = server.refreshes
    messages = [r.getMessage() for r in caplog.records if r.name == module.__name__]
    assert asked == 1
    assert len(messages) == 1
    assert "has ended" in messages[0]
    assert one.problem == other.problem
    assert "sign in again" in one.problem
    assert not one.signed_in


async def test_a_server_that_refuses_every_token_costs_one_refresh(
    server: SignInServer, environ: dict[str, str]
) -> None:
    async with signed_in(server, environ) as (one, _):
        assert await one.refused(401, NOBODY, one.line)
        assert not await one.refused(401, NOBODY, one.line)
        assert not await another(server, environ).refused(401, NOBODY, one.line)
        assert server.refreshes == 1

        await one.accepted(one.line)
        assert await one.refused(401, NOBODY, one.line)
        assert server.refreshes == 2


async def test_secrets_that_are_masked_do_not_grow_for_ever(
    server: SignInServer, environ: dict[str, str]
) -> None:
    masked: dict[str, str] = {"of the entry": "own"}
    async with signed_in(server, environ):
        one = Authorization(HttpEndpoint(server.url), environ, masked)
        for _ in range(2 * module.MOST_MASKED):
            assert await one.refused(401, NOBODY, one.line)
            await one.accepted(one.line)
        assert token(one) in masked
        assert "of the entry" in masked
        assert len(masked) <= module.MOST_MASKED + 1


# The real command

JUMP = f"""
import os, time
real = time.time
time.time = lambda: real() + ({HOURS} if os.path.exists(os.environ.get("ASLEEP", "")) else 0)
"""


def alice(server: SignInServer, environ: dict[str, str]) -> None:
    """She signs in, and no connection is open."""

    async def once() -> None:
        async with signed_in(server, environ):
            pass

    asyncio.run(once())


def test_a_machine_that_slept_for_hours(
    server: SignInServer, environ: dict[str, str], tmp_path: Path
) -> None:
    """The clock is hours later, and no call fails: the token that ended meanwhile is not even sent."""
    alice(server, environ)
    config = config_file(tmp_path, {"p": {"url": server.url}})
    asleep = tmp_path / "asleep"
    env = {**environ, **meddling(tmp_path, JUMP, ASLEEP=str(asleep))}

    with PipeHost(config, "--attach", "never", env=env) as host:
        host.handshake()
        assert texts(host.use("p", "whoami")) == ["alice"]
        assert server.refreshes == 0
        old = set(server.good)
        asleep.touch()
        server.end_tokens()
        began = len(server.asked)
        assert texts(host.use("p", "whoami")) == ["alice"]
        assert server.refreshes == 1
        assert not [asked for asked in server.asked[began:] if asked.token in old]


def test_it_survives_restarts(
    server: SignInServer, environ: dict[str, str], tmp_path: Path
) -> None:
    alice(server, environ)
    config = config_file(tmp_path, {"p": {"url": server.url}})

    for _ in range(3):
        server.end_tokens()
        with PipeHost(config, "--attach", "never", env=environ) as host:
            host.handshake()
            assert texts(host.use("p", "whoami")) == ["alice"]

    assert server.refreshes == 3
    assert server.count("/authorize") == 1


def test_a_slow_refresh_delays_no_call_that_has_a_good_token(
    server: SignInServer, environ: dict[str, str], tmp_path: Path
) -> None:
    """The token ends soon, and the token endpoint takes two seconds: calls go on meanwhile."""
    alice(server, environ)
    [path] = (tmp_path / "home").glob(SIGN_INS)
    soon = {"expires_at": time.time() + 50}  # it is refreshed a minute before
    path.write_text(json.dumps({**json.loads(path.read_text()), **soon}))
    server.acts["/token"] = after(SLOW)
    config = config_file(tmp_path, {"p": {"url": server.url}})
    slowest: list[float] = []
    with PipeHost(config, "--attach", "never", env=environ) as host:
        host.handshake()
        end = time.monotonic() + PATIENCE
        while len(server.good) < 2:
            assert time.monotonic() < end
            began = time.monotonic()
            ids = [host.begin_use("p", "whoami") for _ in range(4)]
            for id in ids:
                assert texts(host.answer(id)["result"]) == ["alice"]
            slowest.append(time.monotonic() - began)

    print(f"{4 * len(slowest)} calls, the slowest four took {max(slowest[1:]) * 1000:.0f} ms")
    assert len(slowest) > 2
    assert max(slowest[1:]) < SLOW, slowest  # the first one connects
    assert server.refreshes == 1


def test_the_store_holds_what_a_restart_needs(server: SignInServer, tmp_path: Path) -> None:
    before = time.time()
    alice(server, {"MCP_WORKBENCH_HOME": str(tmp_path)})

    [path] = tmp_path.glob(SIGN_INS)
    kept = json.loads(path.read_text())
    assert kept["issuer"] == server.origin
    assert kept["token_endpoint"] == f"{server.origin}/token"
    assert kept["client"]["id"] == "client-0"
    assert before + 3600 <= kept["expires_at"] <= time.time() + 3600
