"""Sign-ins under way while the configuration is replaced: nobody is sent to the old server, nobody waits for it."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from mcp_workbench.core.errors import WorkbenchError
from mcp_workbench.core.spec import AuthSettings, HttpEndpoint, ServerSpec, Snapshot
from mcp_workbench.gateway.sign_ins import OpenSignIn
from mcp_workbench.protocol.oauth import SignInFailed
from tests.kit.clock import PATIENCE
from tests.kit.config import snapshot, tool, url_spec
from tests.kit.inside import InsideWorkbench
from tests.kit.sign_in_server import SIGN_INS, Gate, SignInServer, sign_in_server


@pytest.fixture
def servers() -> Iterator[tuple[SignInServer, SignInServer]]:
    with sign_in_server() as first, sign_in_server() as second:
        yield first, second


@asynccontextmanager
async def bench(tmp_path: Path, *specs: ServerSpec) -> AsyncGenerator[InsideWorkbench]:
    environ = {"MCP_WORKBENCH_HOME": str(tmp_path)}
    async with (
        asyncio.timeout(PATIENCE),
        InsideWorkbench(snapshot(*specs), environ=environ) as workbench,
    ):
        yield workbench


def at(server: SignInServer) -> ServerSpec:
    return url_spec(server.url, headers=())


def with_nothing() -> Snapshot:
    return snapshot()


def visit(url: str) -> None:
    """What the person's browser does."""
    with urllib.request.urlopen(url, timeout=PATIENCE) as page:
        page.read()


def kept(home: Path) -> int:
    """How many sign-ins are stored."""
    return len(list(home.glob(SIGN_INS)))


async def failure(opened: OpenSignIn) -> str:
    with pytest.raises(SignInFailed) as failed:
        await opened.done()
    return str(failed.value)


async def test_after_another_url_a_call_is_sent_to_the_new_server(
    tmp_path: Path, servers: tuple[SignInServer, SignInServer]
) -> None:
    old, new = servers
    async with bench(tmp_path, at(old)) as workbench:
        sign_ins = workbench.gateway.sign_ins
        before, _ = await sign_ins.begin(at(old))

        workbench.reload(snapshot(at(new)))
        after, is_new = await sign_ins.begin(at(new))  # before the old one has ended

        assert is_new
        assert before.url.startswith(old.origin)
        assert after.url.startswith(new.origin)
        assert "the entry of dev/s was changed meanwhile" in await failure(before)
        await asyncio.to_thread(visit, after.url)
        await after.done()
        again, is_new = await sign_ins.begin(at(new))  # the end of the others took none with it
        assert is_new
        again.give_up(SignInFailed("", ""))


async def test_a_server_that_is_removed_is_not_signed_in_to(
    tmp_path: Path, servers: tuple[SignInServer, SignInServer]
) -> None:
    old, _ = servers
    async with bench(tmp_path, at(old)) as workbench:
        opened, _ = await workbench.gateway.sign_ins.begin(at(old))
        workbench.reload(with_nothing())

        assert "the entry of dev/s was removed meanwhile" in await failure(opened)
        with pytest.raises(OSError):  # noqa: PT011 - nobody listens where the browser comes back
            await asyncio.to_thread(visit, opened.url)
    assert kept(tmp_path) == 0
    assert old.count("/token") == 0


async def test_a_reload_during_the_exchange_of_tokens_ends_the_waiting(
    tmp_path: Path, servers: tuple[SignInServer, SignInServer]
) -> None:
    old, new = servers
    gate = Gate()
    old.acts["/token"] = gate
    async with bench(tmp_path, at(old)) as workbench:
        opened, _ = await workbench.gateway.sign_ins.begin(at(old))
        browser = asyncio.ensure_future(asyncio.to_thread(visit, opened.url))
        await asyncio.to_thread(gate.wait)

        workbench.reload(snapshot(at(new)))

        assert "changed meanwhile" in await failure(opened)
        gate.open()
        await asyncio.wait((browser,))
        browser.exception()  # it may have been cut off
        other, is_new = await workbench.gateway.sign_ins.begin(at(new))
        assert is_new
        await asyncio.to_thread(visit, other.url)
        await other.done()
        assert kept(tmp_path) <= 2


async def test_a_reload_that_leaves_the_server_alone_leaves_its_sign_in_alone(
    tmp_path: Path, servers: tuple[SignInServer, SignInServer]
) -> None:
    old, new = servers
    other = url_spec(new.url, "t", headers=())
    async with bench(tmp_path, at(old)) as workbench:
        opened, _ = await workbench.gateway.sign_ins.begin(at(old))
        workbench.reload(snapshot(at(old), other))
        same, is_new = await workbench.gateway.sign_ins.begin(at(old))

        assert same is opened
        assert not is_new
        await asyncio.to_thread(visit, opened.url)
        await opened.done()
    assert kept(tmp_path) == 1


async def test_one_that_has_failed_before_it_had_an_address_is_not_found_again(
    tmp_path: Path, servers: tuple[SignInServer, SignInServer]
) -> None:
    old, new = servers
    gate = Gate()
    old.acts["/register"] = gate
    async with bench(tmp_path, at(old)) as workbench:
        sign_ins = workbench.gateway.sign_ins
        first = asyncio.ensure_future(sign_ins.begin(at(old)))
        await asyncio.to_thread(gate.wait)

        workbench.reload(snapshot(at(new)))
        opened, _ = await sign_ins.begin(at(new))

        with pytest.raises(SignInFailed, match="changed meanwhile"):
            await first
        gate.open()
        assert opened.url.startswith(new.origin)
        await asyncio.to_thread(visit, opened.url)
        await opened.done()


async def test_after_other_settings_of_the_sign_in_nobody_goes_on_with_the_old_ones(
    tmp_path: Path, servers: tuple[SignInServer, SignInServer]
) -> None:
    server, _ = servers
    changed = replace(at(server), target=HttpEndpoint(server.url, auth=AuthSettings(account="b")))
    async with bench(tmp_path, at(server)) as workbench:
        before, _ = await workbench.gateway.sign_ins.begin(at(server))
        workbench.reload(snapshot(changed))
        after, is_new = await workbench.gateway.sign_ins.begin(changed)

        assert is_new
        assert after.url != before.url
        assert "the entry of dev/s was changed meanwhile" in await failure(before)
        await asyncio.to_thread(visit, after.url)
        await after.done()
    assert kept(tmp_path) == 1


async def test_a_reload_ends_the_sign_ins_of_all_principals_and_mixes_none_up(
    tmp_path: Path, servers: tuple[SignInServer, SignInServer]
) -> None:
    old, new = servers
    origin = "http://127.0.0.1:1"
    people = ("alice", "bob")

    def of(server: SignInServer, person: str) -> ServerSpec:
        return replace(at(server), scope="principal", principal=person)

    async with bench(tmp_path, replace(at(old), scope="principal")) as workbench:
        sign_ins = workbench.gateway.sign_ins
        before = [await sign_ins.begin(of(old, one), origin, one) for one in people]
        late = asyncio.ensure_future(sign_ins.begin(of(old, "bob"), origin, "second"))
        workbench.reload(snapshot(replace(at(new), scope="principal")))
        after = [await sign_ins.begin(of(new, one), origin, one) for one in people]
        with suppress(SignInFailed):
            await late

        assert all(is_new for _, is_new in after)
        for opened, _ in before:
            assert "was changed meanwhile" in await failure(opened)
        links = [opened.link for opened, _ in after if opened.link is not None]
        assert [link.principal for link in links] == list(people)
        assert len({link.page for link in links}) == len({link.code for link in links}) == 2
        assert all(opened.url.startswith(new.origin) for opened, _ in after)
        for opened, _ in after:
            opened.give_up(SignInFailed("", ""))
    assert kept(tmp_path) == 0


async def test_a_call_that_is_cancelled_leaves_the_sign_in_to_the_others(
    tmp_path: Path, servers: tuple[SignInServer, SignInServer]
) -> None:
    server, _ = servers
    gate = Gate()
    server.acts["/register"] = gate
    async with bench(tmp_path, at(server)) as workbench:
        sign_ins = workbench.gateway.sign_ins
        first = asyncio.ensure_future(sign_ins.begin(at(server)))
        await asyncio.to_thread(gate.wait)
        second = asyncio.ensure_future(sign_ins.begin(at(server)))
        await asyncio.sleep(0)
        first.cancel()
        gate.open()
        opened, is_new = await second

        assert first.cancelled()
        assert not is_new
        await asyncio.to_thread(visit, opened.url)
        await opened.done()
    assert kept(tmp_path) == 1


# A refresh under way


async def signed_in(workbench: InsideWorkbench, spec: ServerSpec) -> None:
    opened, _ = await workbench.gateway.sign_ins.begin(spec)
    await asyncio.to_thread(visit, opened.url)
    await opened.done()


async def calls(workbench: InsideWorkbench, server: str = "s") -> str:
    """How a call of this server ends."""
    try:
        await workbench.use_tool(tool(server, "whoami"), {})
    except WorkbenchError as error:
        return error.code
    return "ok"


def with_issuer(server: SignInServer, issuer: str) -> ServerSpec:
    target = HttpEndpoint(server.url, auth=AuthSettings(issuer=issuer))
    return replace(at(server), target=target)


async def test_a_sign_in_at_an_issuer_that_was_replaced_is_not_used(
    tmp_path: Path, servers: tuple[SignInServer, SignInServer]
) -> None:
    server, other = servers
    async with bench(tmp_path, at(server)) as workbench:
        await signed_in(workbench, at(server))
        assert await calls(workbench) == "ok"
        server.end_tokens()
        asked = len(server.asked)

        workbench.reload(snapshot(with_issuer(server, other.origin)))
        refused = await calls(workbench)

        assert refused == "needs_login"
        assert [one.token for one in server.asked[asked:] if one.token] == []
        assert server.refreshes == 0
        workbench.reload(snapshot(with_issuer(server, f"{server.origin}/")))
        assert await calls(workbench) == "ok"  # it was not thrown away


@pytest.mark.parametrize("change", ["url", "name", "removed", "issuer"])
async def test_a_refresh_that_is_under_way_at_a_reload_helps_nobody_else(
    change: str, tmp_path: Path, servers: tuple[SignInServer, SignInServer]
) -> None:
    old, new = servers
    changed = {
        "url": snapshot(at(new)),
        "name": snapshot(url_spec(new.url, "t", headers=())),
        "removed": with_nothing(),
        "issuer": snapshot(with_issuer(old, new.origin)),
    }
    gate = Gate()
    async with bench(tmp_path, at(old)) as workbench:
        await signed_in(workbench, at(old))
        assert await calls(workbench) == "ok"
        old.acts["/token"] = gate
        old.end_tokens()
        first = asyncio.ensure_future(calls(workbench))
        await asyncio.to_thread(gate.wait)

        workbench.reload(changed[change])
        asked = len(new.asked)
        others = [await calls(workbench, name) for name in ("s", "t")]
        gate.open()

        assert await first == "ok"  # on the connection that it was made on
        assert set(others) <= {"needs_login", "unknown_server", "unknown_toolbox"}
        assert [one.token for one in new.asked[asked:] if one.token] == []
    assert kept(tmp_path) == 1


async def test_two_processes_at_a_reload_use_one_refresh(
    tmp_path: Path, servers: tuple[SignInServer, SignInServer]
) -> None:
    server, other = servers
    gate = Gate()
    async with bench(tmp_path, at(server)) as one, bench(tmp_path, at(server)) as another:
        await signed_in(one, at(server))
        assert [await calls(one), await calls(another)] == ["ok", "ok"]
        server.acts["/token"] = gate
        server.end_tokens()
        waiting = [asyncio.ensure_future(calls(bench)) for bench in (one, another, one, another)]
        await asyncio.to_thread(gate.wait)
        one.reload(snapshot(at(server), url_spec(other.url, "t", headers=())))
        another.reload(snapshot(url_spec(server.url, "renamed", headers=())))
        gate.open()

        assert [await call for call in waiting] == ["ok"] * 4
        assert await calls(another, "renamed") == "ok"  # the same server and account
    assert server.refreshes == 1
