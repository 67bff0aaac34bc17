"""Prompts, resources and the rest between hosts and servers of the official SDK, each in either era."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import PromptsListChanged, ResourceUpdated
from mcp_types import (
    ElicitResult,
    GetPromptResult,
    PromptReference,
    ResourceTemplateReference,
    TextContent,
    TextResourceContents,
)

from tests.kit.clock import PATIENCE
from tests.kit.results import MODERN
from tests.kit.sdk_host import LEGACY_MODE, NEW, OLD, Notices, by_identifier, forked, sdk_host

# Subscribing and setting a level are deprecated: that is what legacy hosts do all the same.
pytestmark = [
    pytest.mark.usefixtures("forked_commands"),
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]

both = pytest.mark.parametrize("server", [OLD, NEW])
BOOK = "book://one"


class Host(Notices):
    """A host, and what it has heard."""

    def __init__(self) -> None:
        super().__init__()
        self.logged: list[Any] = []
        self.asked: list[str] = []

    async def log(self, params: Any) -> None:
        self.logged.append(params.data)
        self._changed.set()
        self._changed = anyio.Event()

    async def has_logged(self, words: Any) -> None:
        """Just once, however long it takes."""
        with anyio.fail_after(PATIENCE):
            while words not in self.logged:
                await self._changed.wait()
        assert self.logged.count(words) == 1

    async def elicit(self, context: Any, params: Any) -> ElicitResult:
        self.asked.append(params.message)
        return ElicitResult(action="accept", content={"name": "Ada"})


@asynccontextmanager
async def library(
    folder: Path, mode: str, server: str, host: Host | None = None
) -> AsyncGenerator[Client]:
    """One server of the library behind the workbench, its toolbox opened."""
    me = host or Host()
    era = {"era": "legacy"} if server == OLD else {}
    servers = {server: forked("library.py", **era)}
    async with sdk_host(
        folder,
        servers,
        mode=mode,
        heard=me.hear,
        logging_callback=me.log,
        elicitation_callback=me.elicit,
        log_level="info" if mode == MODERN else None,
    ) as client:
        await client.call_tool("open_toolbox", {"toolbox_name": "lab"})
        yield client


class Met(NamedTuple):
    """A host that has opened its toolbox, and who it is."""

    client: Client
    me: Host
    mode: str
    server: str


@pytest.fixture(
    scope="module", params=[(m, s) for m in (LEGACY_MODE, MODERN) for s in (OLD, NEW)], ids="-".join
)
async def met(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Met]:
    """One for all that ask, and change nothing."""
    mode, server = request.param
    me = Host()
    async with library(tmp_path_factory.mktemp("bench"), mode, server, me) as client:
        yield Met(client, me, mode, server)


def prompt_text(result: GetPromptResult) -> str:
    (message,) = result.messages
    assert isinstance(message.content, TextContent)
    return message.content.text


async def test_everything_is_listed_got_and_read(met: Met) -> None:
    host, server = met.client, met.server
    prompts = (await host.list_prompts()).prompts
    resources = (await host.list_resources()).resources
    templates = (await host.list_resource_templates()).resource_templates
    greeting = await host.get_prompt(f"lab__{server}__greet", {"who": "you"})
    reads = [await host.read_resource(uri) for uri in (BOOK, "page://7")]
    by_name = PromptReference(name=f"lab__{server}__greet")
    by_uri = ResourceTemplateReference(uri="page://{number}")
    completed = [
        (await host.complete(ref, {"name": "who", "value": "a"})).completion.values
        for ref in (by_name, by_uri)
    ]

    assert [prompt.name for prompt in prompts] == [f"lab__{server}__greet", f"lab__{server}__ask"]
    assert prompts[0].description == f"[lab/{server}] Greets"
    assert [str(resource.uri) for resource in resources] == [BOOK]
    assert [template.uri_template for template in templates] == ["page://{number}"]
    assert prompt_text(greeting) == "Hello you"
    contents = [read.contents[0] for read in reads]
    assert all(isinstance(content, TextResourceContents) for content in contents)
    assert [getattr(c, "text", "") for c in contents] == [f"This is {BOOK}", "This is page://7"]
    assert completed == [["a!"], ["a!"]]


async def test_a_missing_resource_has_the_code_of_the_host_s_era(met: Met) -> None:
    with pytest.raises(MCPError) as caught:
        await met.client.read_resource("book://two")

    assert caught.value.error.code == (-32002 if met.mode == LEGACY_MODE else -32602)
    assert caught.value.error.data == {"uri": "book://two"}


async def test_a_prompt_may_ask_the_person_before_the_host(met: Met) -> None:
    met.me.asked.clear()

    greeting = await met.client.get_prompt(f"lab__{met.server}__ask")

    assert met.me.asked == [f"[lab/{met.server}] Who?"]
    assert prompt_text(greeting) == "Hello Ada"


@both
async def test_a_legacy_host_hears_of_changes(tmp_path: Path, server: str) -> None:
    me = Host()
    async with library(tmp_path, LEGACY_MODE, server, me) as host:
        await host.list_prompts()
        await host.subscribe_resource(BOOK)  # pyright: ignore[reportDeprecated]

        await host.call_tool(*by_identifier(server, "change"))

        updated = await me.next("notifications/resources/updated")
        assert str(updated.params.uri) == BOOK
        await me.next("notifications/prompts/list_changed")
        names = [prompt.name for prompt in (await host.list_prompts()).prompts]
    assert names[-1] == f"lab__{server}__new"


@both
async def test_a_modern_host_hears_of_changes_where_it_listens(tmp_path: Path, server: str) -> None:
    async with library(tmp_path, MODERN, server) as host:
        await host.list_prompts()
        listening = host.listen(prompts_list_changed=True, resource_subscriptions=[BOOK])
        with anyio.fail_after(PATIENCE):
            async with listening as changes:
                assert changes.honored.prompts_list_changed
                assert changes.honored.resource_subscriptions == [BOOK]
                await host.call_tool(*by_identifier(server, "change"))
                heard = [await anext(changes), await anext(changes)]

    assert ResourceUpdated(BOOK) in heard
    assert PromptsListChanged() in heard


async def test_the_log_reaches_a_host_that_wants_it(met: Met) -> None:
    if met.mode == LEGACY_MODE:
        await met.client.set_logging_level("info")  # pyright: ignore[reportDeprecated]

    await met.client.read_resource("page://log")

    await met.me.has_logged({"reading": "page://log"})
