"""What is searched follows what is known: every change is seen, and nothing is done without one."""

from __future__ import annotations

import asyncio
from typing import Any, Self

import msgspec
import pytest

from mcp_workbench.core.catalogue import Catalogue, Definition, KnownCatalogue
from mcp_workbench.core.errors import InvalidCall, NotFound
from mcp_workbench.core.spec import ServerAddress, ServerSpec, Snapshot, ToolFilter
from mcp_workbench.gateway.tool_search import AT_ONCE, MOST_CHARACTERS, find, known_tools
from mcp_workbench.gateway.views import View
from mcp_workbench.gateway.workbench import Gateway
from mcp_workbench.search.queries import Query, SearchResult
from tests.kit.config import snapshot, spec
from tests.search.test_index import tool


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def lazy(shown: Snapshot) -> Snapshot:
    """The same, with toolboxes of which a search starts nothing."""
    boxes = shown.toolboxes.items()
    idle = {name: msgspec.structs.replace(box, discover="lazy") for name, box in boxes}
    return msgspec.structs.replace(shown, toolboxes=idle)


class Knowing(View):
    """A view whose servers are known from earlier; none is started."""

    def __init__(self, shown: Snapshot, **servers: list[Definition]) -> None:
        self._opened = Gateway(lazy(shown))
        super().__init__(self._opened, self._opened.scopes.whole)
        self.json_text: dict[str, KnownCatalogue] = {}
        for server, tools in servers.items():
            self.says(server, *tools)

    async def __aenter__(self) -> Self:
        await self._opened.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self._opened.__aexit__(*raised)

    def reload(self, shown: Snapshot) -> None:
        self.gateway.reload(lazy(shown))

    def says(self, server: str, *tools: Definition) -> None:
        self.json_text[server] = KnownCatalogue(
            Catalogue({one.name: one for one in tools}), modern=False
        )

    def remembered(self, spec: ServerSpec) -> KnownCatalogue | None:
        return self.json_text.get(spec.address.server)

    async def found(self, words: str, toolbox: str = "") -> list[str]:
        return [str(one.tool) for one in (await self.asked(words, toolbox)).tools]

    async def asked(self, words: str, toolbox: str = "") -> SearchResult:
        return await find(self, Query(words, toolbox))


READ, WRITE = tool("read_file", "Reads a file."), tool("write_file", "Writes a file.")
PAINT = tool("paint", "Paints a zebra.")


async def test_what_has_not_changed_is_the_same_object() -> None:
    async with Knowing(snapshot(spec("a"), spec("b")), a=[READ], b=[WRITE]) as bench:
        first = known_tools(bench).known
        bench.says("b", WRITE)
        second = known_tools(bench, first).known

    a, b = ServerAddress("dev", "a"), ServerAddress("dev", "b")
    assert second[a] is first[a]
    assert second[b] is not first[b]


async def test_every_change_is_seen_by_the_next_search() -> None:
    both = snapshot(spec("a"), spec("b"))
    async with Knowing(both, a=[READ]) as bench:
        assert [str(one.address) for one in (await bench.asked("zebra")).unknown] == ["dev/b"]
        assert await bench.found("zebra") == []

        bench.says("b", PAINT)
        assert await bench.found("zebra") == ["dev/b/paint"]
        bench.says("b", WRITE)
        assert await bench.found("zebra") == []
        plain = bench.json_text["b"]  # of which only the words beside the tools change
        bench.json_text["b"] = msgspec.structs.replace(plain, instructions="About zebras.")
        assert await bench.found("zebra") == ["dev/b/write_file"]
        bench.json_text["b"] = plain
        assert await bench.found("zebra") == []
        bench.json_text["b"] = msgspec.structs.replace(plain, server_name="zebra")
        assert await bench.found("zebra") == ["dev/b/write_file"]
        del bench.json_text["b"]
        assert await bench.found("zebra") == []
        assert await bench.found("file") == ["dev/a/read_file"]


async def test_another_configuration_is_searched_as_soon_as_it_holds() -> None:
    async with Knowing(snapshot(spec("a"), spec("b")), a=[READ, WRITE], b=[PAINT]) as bench:
        assert await bench.found("zebra") == ["dev/b/paint"]
        bench.reload(snapshot(spec("a", tools=ToolFilter(("read_*",)))))

        assert await bench.found("zebra") == []
        assert await bench.found("file") == ["dev/a/read_file"]
        dev = bench.snapshot.toolboxes["dev"]
        told = msgspec.structs.replace(dev, description="zebra crossings")
        bench.reload(msgspec.structs.replace(bench.snapshot, toolboxes={"dev": told}))
        assert await bench.found("zebra") == ["dev/a/read_file"]
        with pytest.raises(NotFound, match="Toolbox 'ops' not found"):
            await bench.found("zebra", "ops")


async def test_a_large_index_is_made_off_the_loop_and_holds_what_changed_meanwhile() -> None:
    many = [tool(f"tool_{n}", "Does this and that.") for n in range(2 * AT_ONCE)]
    async with Knowing(snapshot(spec("a"), spec("b")), a=many, b=[READ]) as bench:
        search = asyncio.create_task(bench.found("zebra"))
        await asyncio.sleep(0)  # it has begun, and waits for the thread
        bench.says("b", PAINT)

        assert await search == ["dev/b/paint"]
        assert (await bench.found("tool_7"))[0] == "dev/a/tool_7"


async def test_a_query_that_is_too_long_is_refused_before_anything_is_done() -> None:
    async with Knowing(snapshot(spec("a")), a=[READ]) as bench:
        with pytest.raises(InvalidCall, match=f"at most {MOST_CHARACTERS} characters"):
            await bench.found("x" * (MOST_CHARACTERS + 1))
        assert await bench.found("file " * (MOST_CHARACTERS // 5)) == ["dev/a/read_file"]
