"""One live server: met, listed, refreshed, lost. With the real fixture behind a real pipe."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from mcp_workbench.core.call_request import CallRequest
from mcp_workbench.core.spec import (
    Era,
    Limits,
    ServerAddress,
    ServerSpec,
    StdioCommand,
    ToolFilter,
    ToolIdentifier,
)
from mcp_workbench.protocol.handshake import STAMPS
from mcp_workbench.protocol.translation import PAIRS, params_for
from mcp_workbench.transport.jsonrpc import Outcome
from mcp_workbench.transport.tasks import task_scope
from mcp_workbench.upstream.connection import Closed, Connection, Ready
from mcp_workbench.upstream.conversation import RequestFailed
from mcp_workbench.upstream.pool import ConnectionPool
from tests.kit.clock import eventually, until
from tests.kit.config import spec
from tests.kit.processes import alive, gone, let_through, pids_in

LIMIT = 20.0
LISTEN = "subscriptions/listen"


@asynccontextmanager
async def pool(
    changed: Callable[[ServerAddress], None] = lambda address: None, limits: Limits | None = None
) -> AsyncGenerator[ConnectionPool]:
    async with (
        asyncio.timeout(LIMIT),
        ConnectionPool(
            limits or Limits(), dict(os.environ), lambda spec: changed(spec.address)
        ) as opened,
    ):
        yield opened


@asynccontextmanager
async def ready(one: ServerSpec, limits: Limits | None = None) -> AsyncGenerator[Connection]:
    async with pool(limits=limits) as opened:
        connection = opened.connection(one)
        await connection.ready()
        assert connection.usable, connection.state
        yield connection


async def ask(connection: Connection, tool: str, arguments: bytes = b"{}") -> Outcome:
    params = b'{"name":"%b","arguments":%b}' % (tool.encode(), arguments)
    return await connection.conversation.ask("tools/call", params, LIMIT)


async def call(connection: Connection, tool: str, arguments: bytes = b"{}") -> Outcome:
    """Call a tool as hosts do."""
    name = b'"%b"' % tool.encode()
    request = CallRequest(ToolIdentifier("dev", "s", tool), {"arguments": msgspec.Raw(arguments)})
    params = params_for(PAIRS[False, connection.modern], name, request, 0, STAMPS)
    return await connection.conversation.ask("tools/call", params, LIMIT)


def text(answer: Outcome) -> str:
    return json.loads(bytes(answer.result))["content"][0]["text"]


def reason(connection: Connection) -> str:
    assert isinstance(connection.state, Closed), connection.state
    return connection.state.reason


@pytest.mark.parametrize(
    ("flags", "revision"),
    [
        (("rev=2024-11-05",), "2024-11-05"),
        ((), "2025-11-25"),
        (("modern",), "2026-07-28"),
        (("dual",), "2026-07-28"),
        (("die_on_probe",), "2025-11-25"),
        (("banner", "garbage", "crlf"), "2025-11-25"),
    ],
)
async def test_a_server_of_any_era_is_met_and_listed(flags: tuple[str, ...], revision: str) -> None:
    async with ready(spec("s", *flags, era="auto")) as connection:
        assert isinstance(connection.state, Ready)
        assert connection.state.agreed.revision == revision
        assert connection.state.agreed.name == "fixture"
        assert "echo" in connection.catalogue.tools
        assert connection.modern == (revision == "2026-07-28")


@pytest.mark.parametrize(
    ("flags", "opening"),
    [
        ((), ["server/discover", "initialize", "notifications/initialized", "tools/list"]),
        (("modern",), ["server/discover", "tools/list"]),
        (("modern", "listen"), ["server/discover", LISTEN, "tools/list"]),
    ],
)
async def test_an_opening_says_what_its_era_wants_and_no_more(
    flags: tuple[str, ...], opening: list[str]
) -> None:
    async with ready(spec("s", *flags, era="auto")) as connection:
        seen = json.loads(text(await call(connection, "stats")))["methods"]

        assert seen == [*opening, "tools/call"]


@pytest.mark.parametrize("flag", ["paged", "loop_cursor"])
async def test_every_page_is_read_and_a_repeated_cursor_ends_the_list(flag: str) -> None:
    async with ready(spec("s", flag)) as connection, ready(spec("t")) as plain:
        pages = json.loads(text(await ask(connection, "stats")))["lists"]

        assert connection.catalogue.names == plain.catalogue.names
        assert pages == (2 if flag == "loop_cursor" else len(plain.catalogue.names))


async def test_a_server_without_tools_is_fine() -> None:
    async with ready(spec("s", "no_tools")) as connection:
        assert connection.catalogue.names == ()


async def test_odd_tools_are_listed_and_nameless_ones_complained_about(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.write_text(
        '[{"name":"a"},{"name":"b","inputSchema":{"properties":{}}},{"name":"c","inputSchema":[],'
        '"outputSchema":{"type":"array"}},5,{"title":"no name"},{"name":"a","n":2},{"name":"é 🙂"}]'
    )
    async with ready(spec("s", f"tools={tools}")) as connection:
        assert connection.catalogue.names == ("a", "b", "c", "é 🙂")
        assert len(connection.complaints) == 3


async def test_a_filter_is_applied_and_kept_up_to_date() -> None:
    some = ToolFilter(("e*",), ("echo",))
    async with ready(spec("s", tools=some)) as connection:
        assert set(connection.visible(some)) == {"env", "error"}
        assert "echo" in connection.visible(ToolFilter())
        assert connection.visible(some)["env"] == b'"env"'

        await ask(connection, "flip", b'{"name":"extra"}')
        await connection.refresh()

        assert "extra" in connection.visible(some)


async def test_a_server_that_is_being_stopped_is_not_there_for_anybody() -> None:
    one = spec("s")
    async with pool() as opened:
        connection = opened.connection(one)
        await connection.ready()
        assert opened.met(one) is connection

        connection.stop()

        assert opened.met(one) is None, "its process may be gone already"
        assert opened.all_met() == []


async def test_an_announced_change_is_read_once_and_told() -> None:
    changes: asyncio.Queue[ServerAddress] = asyncio.Queue()
    async with pool(changes.put_nowait) as opened:
        connection = opened.connection(spec("s"))
        await connection.ready()
        await ask(connection, "flip", b'{"name":"extra"}')

        assert await changes.get() == ServerAddress("dev", "s")
        assert "extra" in connection.catalogue.tools
        assert changes.empty()


async def test_a_modern_server_is_listened_to() -> None:
    changes: asyncio.Queue[ServerAddress] = asyncio.Queue()
    async with pool(changes.put_nowait) as opened:
        connection = opened.connection(spec("s", "modern", "listen", era="auto"))
        await connection.ready()
        assert json.loads(text(await call(connection, "stats")))["methods"].count(LISTEN) == 1

        await call(connection, "flip", b'{"name":"extra"}')
        await changes.get()

        assert "extra" in connection.catalogue.tools


async def test_a_modern_server_that_announces_nothing_is_not_listened_to() -> None:
    async with ready(spec("s", "modern", era="auto")) as connection:
        assert LISTEN not in json.loads(text(await call(connection, "stats")))["methods"]


async def test_listening_is_no_call_in_flight() -> None:
    one = spec("s", "modern", "listen", era="auto")
    async with ready(one, Limits(calls_per_server=1)) as connection:
        assert '"echo"' in text(await call(connection, "echo"))


async def test_a_change_announced_while_the_list_is_read_is_not_forgotten() -> None:
    changes: asyncio.Queue[ServerAddress] = asyncio.Queue()
    async with pool(changes.put_nowait) as opened:
        connection = opened.connection(spec("s", "flip_in_list"))
        await connection.ready()
        await ask(connection, "announce")  # leads to the second reading, in which the list changes

        await changes.get()
        assert "late" in connection.catalogue.tools


async def test_a_list_that_is_being_read_again_is_not_taken_for_fresh(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with ready(spec("s", f"list_gate={gate}")) as connection, task_scope() as tasks:
        assert connection.fresh(LIMIT)
        os.mkfifo(gate)
        reading = tasks.start(connection.refresh(), "refresh")
        await asyncio.sleep(0)  # it begins
        assert not connection.fresh(LIMIT)  # whoever misses a tool waits for it

        await until(lambda: let_through(gate))
        await reading
        assert connection.fresh(LIMIT)


async def test_the_same_list_again_is_no_change() -> None:
    changes: list[ServerAddress] = []
    async with pool(changes.append) as opened:
        connection = opened.connection(spec("s"))
        await connection.ready()
        await connection.refresh()

        assert changes == []


async def test_a_list_that_can_not_be_read_again_leaves_the_one_we_have() -> None:
    async with ready(spec("s", "die_in_list")) as connection:
        before = connection.catalogue
        await connection.refresh()

        assert connection.catalogue is before


# Failing to start


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("exit_start",), ["exit status 3"]),
        (("stderr_exit",), ["exit status 3", "line one | Error: no DATABASE_URL"]),
        (("rev=1999-12-31",), ["1999-12-31"]),
        (("list_error",), ["refused to list its tools", "no tools today (-32000)"]),
        (("list_odd",), ["no usable form"]),
    ],
)
async def test_why_a_server_could_not_be_met_is_a_state(
    flags: tuple[str, ...], told: list[str]
) -> None:
    async with pool() as opened:
        connection = opened.connection(spec("s", *flags))
        await connection.ready()

        assert not connection.usable
        assert connection.over
        for words in told:
            assert words in reason(connection)


async def test_a_modern_only_wish_is_refused_by_a_legacy_server() -> None:
    async with pool() as opened:
        connection = opened.connection(spec("s", era="modern"))
        await connection.ready()

        assert "2026-07-28" in reason(connection)


@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_a_program_that_ends_at_once_is_noticed_at_once_every_time(era: Era) -> None:
    """A loop may tell of the end before anybody listens: that must not be waited out."""
    async with pool() as opened:
        for number in range(20):  # each is another: one that failed before is not begun at once
            address = ServerAddress("dev", f"s{number}")
            one = ServerSpec(address, StdioCommand("true"), era=era, connect_timeout=10 * LIMIT)
            connection = opened.connection(one)
            await connection.ready()
            assert "exit status 0" in reason(connection)


async def test_a_start_that_takes_too_long_is_ended_and_named(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    slow = spec("s", "hang", env={"PIDFILE": str(pids)}, connect_timeout=0.2)
    async with pool() as opened:
        connection = opened.connection(slow)
        await connection.ready()

        assert "did not start within 0.2 s (connectTimeout)" in reason(connection)
    assert gone(pids_in(pids))


async def test_a_server_that_writes_something_else_is_not_called_slow() -> None:
    scripts = {
        "echo ListenRequest on http://localhost:3000": "1 line that is no message, such as: ListenRequest on",
        "echo one; echo two; echo '{\"a\": 1}'": '3 lines that are no messages, such as: {"a": 1}',
    }
    async with pool() as opened:
        begun: dict[str, Connection] = {}
        for number, (script, told) in enumerate(scripts.items()):
            talker = StdioCommand("sh", ("-c", f"{script}; while read line; do :; done"))
            address = ServerAddress("dev", f"s{number}")
            one = ServerSpec(address, talker, connect_timeout=1.0)
            begun[told] = opened.connection(one)
        for told, connection in begun.items():
            await connection.ready()

            assert reason(connection).startswith("it answered nothing within 1 s (connectTimeout)")
            assert told in reason(connection)


async def test_a_banner_before_an_answer_leaves_a_slow_start_slow() -> None:
    slow = spec("s", "banner", "hang_list", connect_timeout=0.5)
    async with pool() as opened:
        connection = opened.connection(slow)
        await connection.ready()

        assert "did not start within 0.5 s (connectTimeout)" in reason(connection)


async def test_a_message_beyond_the_cap_while_listing_is_the_reason() -> None:
    async with pool(limits=Limits(message_bytes=500)) as opened:
        connection = opened.connection(spec("s"))
        await connection.ready()

        assert "larger than 500 bytes" in reason(connection)


# Ending


async def test_when_the_server_dies_everyone_who_waits_is_told() -> None:
    async with ready(spec("s")) as connection:
        waiting = [asyncio.ensure_future(ask(connection, "hang")) for _ in range(3)]
        dying = asyncio.ensure_future(ask(connection, "die", b'{"status":4,"stderr":"ouch"}'))

        for one in (*waiting, dying):
            with pytest.raises(RequestFailed, match=r"exit status 4.*ouch"):
                await one
        assert connection.over


async def test_stopping_while_it_starts_ends_it_at_once(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    async with pool() as opened:
        connection = opened.connection(spec("s", "hang", env={"PIDFILE": str(pids)}))
        await until(lambda: bool(pids_in(pids)))

        connection.stop()
        await connection.ready()

        assert connection.over
    assert gone(pids_in(pids))


async def test_leaving_the_pool_ends_every_server(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    async with pool() as opened:
        for name in "abc":
            await opened.connection(spec(name, env={"PIDFILE": str(pids)})).ready()
        assert all(map(alive, pids_in(pids)))

    assert len(pids_in(pids)) == 3
    eventually(lambda: not any(map(alive, pids_in(pids))), "all have ended")


# The pool


async def test_one_address_has_one_connection() -> None:
    async with pool() as opened:
        first, second = opened.connection(spec("s")), opened.connection(spec("s"))

        assert first is second
        assert opened.live(ServerAddress("dev", "s")) is first
        assert opened.live(ServerAddress("dev", "other")) is None
        await first.ready()


async def test_the_same_server_in_two_toolboxes_has_two() -> None:
    async with pool() as opened:
        assert opened.connection(spec("s")) is not opened.connection(spec("s", toolbox="prod"))


async def test_a_connection_that_is_over_is_replaced() -> None:
    async with pool() as opened:
        first = opened.connection(spec("s"))
        await first.ready()
        with pytest.raises(RequestFailed):
            await ask(first, "die")

        second = opened.connection(spec("s"))
        await second.ready()

        assert second is not first
        assert second.usable


async def test_a_pool_that_is_not_open_says_how_to_open_it() -> None:
    closed = ConnectionPool(Limits(), {}, lambda address: None)

    with pytest.raises(RuntimeError, match="async with"):
        closed.connection(spec("s"))


async def test_who_stops_waiting_takes_no_connection_with_it(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    async with pool() as opened:
        connection = opened.connection(spec("s", f"gate={gate}"))
        impatient = asyncio.ensure_future(connection.ready())
        patient = asyncio.ensure_future(connection.ready())
        await asyncio.sleep(0)

        impatient.cancel()
        await asyncio.to_thread(lambda: gate.open("w").close())
        await patient

        assert connection.usable
