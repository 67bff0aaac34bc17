"""A server of the official SDK that speaks both eras is met in that of its host."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult

from tests.kit.command import serving
from tests.kit.config import toolbox, write_config
from tests.kit.results import LEGACY, MODERN, Json
from tests.kit.sdk_host import LEGACY_MODE, PRELOADED, by_identifier, client, forked, sdk_host, text

pytestmark = pytest.mark.usefixtures("forked_commands")

SCRIPT = "asks_back.py"
REVISIONS = {LEGACY_MODE: LEGACY, MODERN: MODERN}


class Person:
    """Answers every question, and keeps what the servers log."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.logged: list[tuple[str, Any]] = []

    async def elicit(self, context: Any, params: Any) -> ElicitResult:
        self.asked.append(params.message)
        return ElicitResult(action="accept", content={"name": "Ada"})

    async def log(self, params: Any) -> None:
        self.logged.append((params.level, params.data))

    @property
    def callbacks(self) -> Json:
        return {"elicitation_callback": self.elicit, "logging_callback": self.log}


@pytest.fixture(scope="module")
def places() -> Generator[dict[str, Json]]:
    """The server as a command and behind a URL; neither entry names an era."""
    argv = [*PRELOADED, SCRIPT, "http"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            port = int(process.stdout.readline())
            yield {"pipe": forked(SCRIPT), "url": {"url": f"http://127.0.0.1:{port}/mcp"}}
        finally:
            process.kill()


@asynccontextmanager
async def directly(person: Person) -> AsyncGenerator[Client]:
    program, *words = PRELOADED
    command = StdioServerParameters(command=program, args=[*words, SCRIPT], env={})
    transport = stdio_client(command, errlog=sys.stderr)  # otherwise that of its import, now closed
    async with client(transport, mode=LEGACY_MODE, **person.callbacks) as host:
        yield host


async def use(host: Client, server: str, tool: str, **arguments: Any) -> str:
    return text(await host.call_tool(*by_identifier(server, tool, arguments)))


async def refusal(host: Client, server: str, tool: str) -> str:
    with pytest.raises(MCPError) as refused:
        await use(host, server, tool)
    return str(refused.value)


@pytest.mark.parametrize("place", ["pipe", "url"])
async def test_a_legacy_host_is_asked_on_the_back_channel(
    tmp_path: Path, places: dict[str, Json], place: str
) -> None:
    person = Person()
    async with sdk_host(tmp_path, places, mode=LEGACY_MODE, **person.callbacks) as host:
        assert await use(host, place, "ask") == "accept Ada"

    assert person.asked == [f"[lab/{place}] Who?"]


@pytest.mark.parametrize("place", ["pipe", "url"])
@pytest.mark.parametrize("mode", REVISIONS)
async def test_the_server_speaks_the_era_of_the_host(
    tmp_path: Path, places: dict[str, Json], place: str, mode: str
) -> None:
    async with sdk_host(tmp_path, places, mode=mode) as host:
        assert await use(host, place, "log", text="hi") == REVISIONS[mode]


@pytest.mark.parametrize("place", ["pipe", "url"])
async def test_the_era_in_the_entry_counts_more(
    tmp_path: Path, places: dict[str, Json], place: str
) -> None:
    pinned = {place: {**places[place], "era": "modern"}}
    async with sdk_host(tmp_path, pinned, mode=LEGACY_MODE) as host:
        assert await use(host, place, "log", text="hi") == MODERN


@pytest.mark.parametrize("era", ["auto", "modern"])
async def test_a_legacy_host_that_has_set_no_level_gets_the_log_that_it_gets_directly(
    tmp_path: Path, places: dict[str, Json], era: str
) -> None:
    alone, behind = Person(), Person()
    async with directly(alone) as host:
        await host.call_tool("log", {"text": "hi"})
    server = {"s": {**places["pipe"], "era": era}}
    async with sdk_host(tmp_path, server, mode=LEGACY_MODE, **behind.callbacks) as host:
        await use(host, "s", "log", text="hi")

    assert alone.logged == [("info", "hi"), ("debug", "hi, in detail")]
    assert behind.logged == alone.logged


@pytest.mark.parametrize("place", ["pipe", "url"])
async def test_hosts_of_both_eras_on_a_port_have_connections_of_their_own_era(
    tmp_path: Path, places: dict[str, Json], place: str
) -> None:
    """With `scope: session`, where a legacy server may ask."""
    config = write_config(tmp_path, toolbox("lab", s={**places[place], "scope": "session"}))
    person = Person()
    with serving(config) as command:
        async with (
            client(command.url, mode=LEGACY_MODE, **person.callbacks) as legacy,
            client(command.url, mode=MODERN) as modern,
        ):
            eras = [await use(host, "s", "log", text="hi") for host in (legacy, modern)]
            answer = await use(legacy, "s", "ask")

    assert eras == [LEGACY, MODERN]
    assert answer == "accept Ada"


@pytest.mark.parametrize("place", ["pipe", "url"])
async def test_a_shared_server_that_wanted_to_ask_gets_a_legacy_connection(
    tmp_path: Path, places: dict[str, Json], place: str
) -> None:
    """Hosts of both eras share it: the first question fails, with what to do, and later ones are put."""
    config = write_config(tmp_path, toolbox("lab", s=places[place]))
    person, other = Person(), Person()
    with serving(config) as command:
        async with (
            client(command.url, mode=LEGACY_MODE, **person.callbacks) as legacy,
            client(command.url, mode=LEGACY_MODE, **other.callbacks) as second,
            client(command.url, mode=LEGACY_MODE) as deaf,
            client(command.url, mode=MODERN) as modern,
        ):
            eras = [await use(host, "s", "log", text="hi") for host in (legacy, modern)]
            refused = await refusal(legacy, "s", "ask")
            answers = [await use(host, "s", "ask") for host in (legacy, second)]
            later = [await use(host, "s", "log", text="hi") for host in (legacy, deaf, modern)]
            unasked = await refusal(deaf, "s", "ask")

    assert eras == [MODERN, MODERN]  # nobody needed anything else
    assert "back-channel" in refused
    assert "call the tool again" in refused
    assert answers == ["accept Ada", "accept Ada"]
    assert person.asked == other.asked == ["[lab/s] Who?"]
    assert later == [LEGACY, MODERN, MODERN]
    assert "call the tool again" not in unasked
