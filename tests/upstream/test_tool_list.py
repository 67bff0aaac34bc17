"""The list of a server's tools: read page by page, bounded, and known to be old when it is."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import msgspec
import pytest

from mcp_workbench.config.expand import Environment
from mcp_workbench.core.catalogue import Catalogue, Definition, KnownCatalogue
from mcp_workbench.core.lock_states import LockFile
from mcp_workbench.core.spec import Limits, ServerAddress, ServerSpec, ToolFilter
from mcp_workbench.protocol.handshake import Agreed
from mcp_workbench.upstream.cache import PRINCIPALS, CatalogueCache
from mcp_workbench.upstream.connection import PoolContext
from mcp_workbench.upstream.conversation import Conversation
from mcp_workbench.upstream.tool_list import (
    LONGEST_CURSOR,
    MOST_COMPLAINTS,
    PAGES,
    ToolList,
    ToolRefresh,
    Unlistable,
    list_tools,
)
from tests.kit.clock import PATIENCE
from tests.kit.config import spec

Json = dict[str, Any]
OFF = {"MCP_WORKBENCH_CACHE": "off"}


class Server:
    """Answers each request with the next page, the last one again and again, as soon as the loop turns."""

    backlog = 0

    def __init__(self, *pages: Json) -> None:
        self.pages = list(pages)
        self.asked: list[Json] = []
        self.talk = Conversation(2 * LONGEST_CURSOR, lambda message: None)
        self.talk.channel = self

    def send(self, frame: bytes, about: bytes = b"") -> None:
        request = json.loads(frame)
        self.asked.append(request["params"])
        page = self.pages.pop(0) if len(self.pages) > 1 else self.pages[0]
        answer = page if "error" in page else {"result": page}
        line = json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}).encode() + b"\n"
        asyncio.get_running_loop().call_soon(self.talk.receive, line)


def page(*names: str, cursor: Any = None, **more: Any) -> Json:
    return {"tools": [{"name": name, **more} for name in names], "nextCursor": cursor}


async def listed(server: Server, most: int = 100) -> tuple[tuple[str, ...], tuple[str, ...]]:
    catalogue, complaints = await list_tools(server.talk, most, PATIENCE, modern=False)
    return catalogue.names, complaints


async def test_the_pages_are_one_list_in_the_order_of_the_server() -> None:
    server = Server(page("b", "a", cursor="2"), page("c", cursor=""))

    assert await listed(server) == (("b", "a", "c"), ())
    assert server.asked == [{}, {"cursor": "2"}]


async def test_a_list_without_end_is_cut() -> None:
    server = Server(*(page(f"t{n}", cursor=f"c{n}") for n in range(PAGES + 5)))

    names, complaints = await listed(server, 10 * PAGES)

    assert names == tuple(f"t{n}" for n in range(PAGES))
    assert complaints == ()


@pytest.mark.parametrize(
    ("most", "names", "complaints", "asked"),
    [
        (4, ("a", "b", "c", "d"), (), 2),
        (
            3,
            ("a", "b", "c"),
            ("tools beyond the first 3 were left out (limits.toolsPerServer)",),
            2,
        ),
        (1, ("a",), ("tools beyond the first 1 were left out (limits.toolsPerServer)",), 1),
    ],
)
async def test_more_tools_than_are_allowed_are_left_out_and_not_asked_for(
    most: int, names: tuple[str, ...], complaints: tuple[str, ...], asked: int
) -> None:
    server = Server(page("a", "b", cursor="2"), page("c", "d"))

    assert await listed(server, most) == (names, complaints)
    assert len(server.asked) == asked


async def test_the_first_of_two_tools_of_one_name_counts_wherever_the_second_stands() -> None:
    server = Server(page("a", n=1, cursor="2"), page("b", "a", n=2))

    catalogue, complaints = await list_tools(server.talk, 9, PATIENCE, modern=False)

    assert json.loads(catalogue.tools["a"].raw)["n"] == 1
    assert complaints == ("a second tool named 'a' was left out",)


async def test_complaints_without_end_are_counted() -> None:
    names = [f"t{n}" for n in range(MOST_COMPLAINTS + 7)]
    server = Server(page(*names, cursor="2"), page(*names))

    _, complaints = await listed(server)

    assert complaints[0] == "a second tool named 't0' was left out"
    assert complaints[MOST_COMPLAINTS:] == ("7 more tools were left out",)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (
            {"error": {"code": -32000, "message": "not now"}},
            "it refused to list its tools: not now (-32000)",
        ),
        (
            page(cursor="x" * LONGEST_CURSOR),
            "its list of tools has no usable form: its cursor is longer than anybody would send",
        ),
        (
            page(cursor=5),
            "its list of tools has no usable form: Expected `str | null`, got `int`",
        ),
        (
            {"tools": 5},
            "its list of tools has no usable form: Expected `array`, got `int`",
        ),
    ],
    ids=["refused", "long cursor", "odd cursor", "no list"],
)
async def test_a_list_that_can_not_be_had_says_why(answer: Json, told: str) -> None:
    with pytest.raises(Unlistable) as caught:
        await listed(Server(answer))

    assert str(caught.value) == told


async def test_a_server_that_knows_no_tools_has_none() -> None:
    assert await listed(Server({"error": {"code": -32601, "message": "?"}})) == ((), ())


class Silent(Server):
    """Never answers."""

    def send(self, frame: bytes, about: bytes = b"") -> None:
        self.asked.append(json.loads(frame))


async def test_a_server_that_does_not_list_in_time_is_told() -> None:
    with pytest.raises(Unlistable) as caught:
        await list_tools(Silent().talk, 9, 0.05, modern=False)

    assert str(caught.value) == "it did not list its tools within 0.05 s"


# What is known of them


def context() -> PoolContext:
    made = Environment(OFF)
    return PoolContext(
        Limits(), made, lambda one: None, lambda: False, CatalogueCache(made), lambda one: None
    )


async def read(tools: ToolList, server: Server) -> bool:
    return await tools.read(server.talk, PATIENCE, modern=False)


async def test_a_list_is_old_from_an_announcement_until_the_next_reading() -> None:
    tools, server = ToolList(spec("s"), context()), Server(page("a"))
    assert not tools.fresh(PATIENCE)
    assert not tools.behind

    assert await read(tools, server)
    assert tools.fresh(PATIENCE)
    assert not tools.fresh(0.0)
    assert not tools.behind

    tools.stale = True
    assert not tools.fresh(PATIENCE)
    assert tools.behind
    tools.begin()
    assert not tools.stale
    assert tools.fresh(PATIENCE)
    assert tools.behind  # until it is read

    assert not await read(tools, server)  # the same tools
    assert not tools.behind


async def test_a_reading_that_fails_keeps_the_list_and_is_not_tried_again_at_once() -> None:
    tools = ToolList(spec("s"), context())
    await read(tools, Server(page("a")))
    before = tools.listed_at
    refusal = Server({"error": {"code": 1, "message": "no"}})

    assert not await tools.reread(refusal.talk, PATIENCE, modern=False)
    assert tools.catalogue.names == ("a",)
    assert tools.behind
    assert tools.listed_at > before
    assert tools.read_at == before
    assert await tools.reread(Server(page("b")).talk, PATIENCE, modern=False)
    assert tools.catalogue.names == ("b",)
    assert not tools.behind


async def test_the_names_that_a_filter_shows_are_those_of_the_last_list(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tools = ToolList(spec("s"), context())
    both, none = ToolFilter(include=("a*", "b")), ToolFilter(include=("x",))
    assert tools.visible(none) == {}
    assert caplog.messages == []  # nothing is listed yet

    await read(tools, Server(page("a", "c")))
    assert tools.visible(both) == {"a": b'"a"'}
    assert tools.visible(none) == {}
    await read(tools, Server(page("a", "b")))
    for _ in range(2):
        assert tools.visible(both) == {"a": b'"a"', "b": b'"b"'}
        assert tools.visible(none) == {}

    assert tools.idle_filters(both) == ()
    assert tools.idle_filters(none) == ("x",)
    assert [line.count("'b'") + line.count("'x'") for line in caplog.messages] == [1, 1]


async def test_a_list_from_before_the_lock_file_is_read_again_to_be_compared() -> None:
    here = context()
    tools, unread = ToolList(spec("s"), here), ToolList(spec("t"), here)
    await read(tools, Server(page("a")))

    here.relock(LockFile("", {}))
    assert [tools.relock(spec("s")), unread.relock(spec("t"))] == [False, False]
    assert [tools.stale, unread.stale] == [True, False]

    here.relock(None)
    assert not tools.relock(spec("s"))
    assert tools.catalogue.names == ("a",)


# Readings that are shared


class Readings:
    """Readings that end when the test likes."""

    def __init__(self) -> None:
        self.begun = 0
        self.go = asyncio.Event()

    async def __call__(self) -> None:
        self.begun += 1
        await self.go.wait()


async def test_all_who_ask_meanwhile_share_a_reading_and_an_announcement_begins_another() -> None:
    tools, readings = ToolList(spec("s"), context()), Readings()
    refresh = ToolRefresh(tools)
    async with asyncio.timeout(PATIENCE), refresh.open():
        first = [asyncio.ensure_future(refresh.wait(readings, PATIENCE)) for _ in range(3)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert refresh.is_under_way
        tools.stale = True  # the server announces a change
        late = [asyncio.ensure_future(refresh.wait(readings, PATIENCE)) for _ in range(3)]
        await asyncio.sleep(0)
        assert readings.begun == 1
        readings.go.set()
        await asyncio.gather(*first, *late)

        assert readings.begun == 2
        assert not tools.stale
        assert not refresh.is_under_way


async def test_who_waits_for_a_reading_waits_no_longer_than_he_likes() -> None:
    readings, refresh = Readings(), ToolRefresh(ToolList(spec("s"), context()))
    async with asyncio.timeout(PATIENCE):
        async with refresh.open():
            await refresh.wait(readings, 0.01)
            assert refresh.is_under_way
        await refresh.wait(readings, PATIENCE)  # closed: nothing is read any more

    assert readings.begun == 1


# What is remembered of those that are not connected


def known(name: str = "a", at: float = 0.0) -> KnownCatalogue:
    tool = Definition(name, b'{"name":"%b"}' % name.encode())
    return KnownCatalogue(Catalogue({name: tool}), False, at=at)


def of(principal: str) -> ServerSpec:
    return msgspec.structs.replace(spec("s"), principal=principal)


async def test_the_lists_of_the_oldest_principal_make_room() -> None:
    cache = CatalogueCache(OFF)
    cache.note(spec("s"), known(), {})
    for number in range(PRINCIPALS + 3):
        cache.note(of(f"p{number}"), known(), {})

    forgotten = [n for n in range(PRINCIPALS + 3) if cache.held(of(f"p{n}")) is None]
    assert forgotten == [0, 1, 2]
    assert cache.held(spec("s")) is not None
    cache.forget([ServerAddress("dev", "s")])
    assert cache.held(of("p9")) is None
    assert cache.held(spec("s")) is None


@pytest.mark.parametrize(
    ("server", "environ", "learned"),
    [
        (spec("s"), {}, True),
        (spec("s"), OFF, False),
        (spec("s", env={"A": "${WB_NO_SUCH}"}), {}, False),
        (of("ann"), {}, False),
    ],
    ids=["plain", "off", "unset variable", "of a principal"],
)
def test_what_another_replica_has_received_is_taken_where_it_may_be_shown(
    server: ServerSpec, environ: dict[str, str], learned: bool
) -> None:
    cache = CatalogueCache(Environment(environ))
    cache.learn(server, known("first"))
    cache.learn(server, known("second"))

    held = cache.held(server)
    assert (held.catalogue.names if held else ()) == (("first",) if learned else ())


async def test_primitives_are_remembered_with_the_tools_and_survive_a_new_list() -> None:
    here, one = context(), spec("s")
    tools = ToolList(one, here)
    await read(tools, Server(page("a")))
    tools.remember(one, Agreed("2025-11-25", "x", "1"), 1.5, {"roots": msgspec.Raw(b"{}")})
    tools.remember_primitives("prompts", (b'{"name":"p"}',))
    await read(tools, Server(page("b")))

    held = here.cache.held(one)
    assert held is not None
    assert held.catalogue.names == ("b",)
    assert held.offers == {"prompts": (b'{"name":"p"}',)}
    assert (held.modern, held.revision, held.seconds) == (False, "2025-11-25", 1.5)
    assert held.host_capabilities == ("roots",)
    assert 0 <= time.time() - held.at < PATIENCE

    tools.retire()
    tools.remember_primitives("prompts", ())
    await read(tools, Server(page("c")))
    assert here.cache.held(one) is held
