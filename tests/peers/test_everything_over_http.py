"""The reference server on a port, in the newer way and in the older one, behind the workbench."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from crew import OFFICIAL
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import CreateMessageResult, ElicitResult, TextContent
from shop import SECONDS

from mcp_workbench import Workbench, load_config
from mcp_workbench.core.spec import ServerAddress
from tests.kit.results import LEGACY, MODERN, Json

pytestmark = pytest.mark.peers

PATHS = {"streamableHttp": "/mcp", "sse": "/sse"}
DOCUMENT = "demo://resource/static/document/features.md"
ways = pytest.mark.parametrize("way", PATHS)
hosts = pytest.mark.parametrize("mode", ["legacy", MODERN])


@pytest.fixture(scope="module")
def urls(workplace: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    started: list[subprocess.Popen[str]] = []
    folder = tmp_path_factory.mktemp("everything")
    script = workplace / "node_modules" / OFFICIAL / "server-everything" / "dist" / "index.js"
    found: dict[str, str] = {}
    try:
        for way, path in PATHS.items():
            argv = ["node", "--import", str(workplace / "loopback.mjs"), str(script), way]
            with (folder / way).open("w") as complaints:
                process = subprocess.Popen(
                    argv,
                    env={**os.environ, "PORT": "0"},
                    stdout=subprocess.PIPE,
                    stderr=complaints,
                    text=True,
                )
            started.append(process)
            found[way] = f"http://127.0.0.1:{port_told_by(process)}{path}"
        yield found
    finally:
        for process in started:
            process.terminate()
            process.communicate(timeout=SECONDS)


def port_told_by(process: subprocess.Popen[str]) -> int:
    """Among the other things that it says."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip().isdecimal():
            return int(line)
    raise AssertionError("it never listened")


def config(folder: Path, urls: dict[str, str], **more: Any) -> Path:
    servers = {way: {"url": url, **more} for way, url in urls.items()}
    file = folder / "workbench-config.json"
    file.write_text(json.dumps({"toolboxes": {"peers": {"mcpServers": servers}}}))
    return file


class Person:
    """Answers whatever the host is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def elicit(self, context: Any, params: Any) -> ElicitResult:
        self.asked.append(params.message)
        return ElicitResult(action="decline")

    async def sample(self, context: Any, params: Any) -> CreateMessageResult:
        self.asked.append(params.messages[0].content.text)
        said = TextContent(text="A sonnet.")
        return CreateMessageResult(role="assistant", content=said, model="m")


@asynccontextmanager
async def host(folder: Path, urls: dict[str, str], mode: str) -> AsyncGenerator[Any]:
    """A host of the SDK before the real command, and the person before the host."""
    argv = ["-m", "mcp_workbench", "serve", "--config", str(config(folder, urls))]
    road = stdio_client(StdioServerParameters(command=sys.executable, args=argv))
    person = Person()
    async with Client(
        road,
        mode=mode,
        cache=None,
        read_timeout_seconds=SECONDS / 4,
        elicitation_callback=person.elicit,
        sampling_callback=person.sample,
    ) as client:
        yield client, person


async def use(client: Client, way: str, tool: str, arguments: Json, **more: Any) -> str:
    wish = {"toolbox": "peers", "server": way, "tool": tool}
    result = await client.call_tool("use_tool", {"tool": wish, "arguments": arguments}, **more)
    block = result.content[0]
    assert isinstance(block, TextContent)
    return block.text


@ways
async def test_it_is_met_in_its_revision(tmp_path: Path, urls: dict[str, str], way: str) -> None:
    async with Workbench(load_config(config(tmp_path, urls))) as bench:
        report = await bench.survey(ServerAddress("peers", way))

    assert (report.reason, report.revision) == ("", LEGACY)
    assert "echo" in [tool.name for tool in report.tools]


@ways
@hosts
async def test_it_is_used_like_any_other(
    tmp_path: Path, urls: dict[str, str], mode: str, way: str
) -> None:
    told: list[float] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        told.append(progress)

    async with host(tmp_path, urls, mode) as (client, _):
        echo = await use(client, way, "echo", {"message": "Grüße 🙂"})
        steps: Json = {"duration": 0.2, "steps": 4}
        long = "trigger-long-running-operation"
        done = await use(client, way, long, steps, progress_callback=hear)
        prompt = await client.get_prompt(f"peers__{way}__args-prompt", {"city": "Bern"})
        document = await client.read_resource(f"mcp-workbench://peers/{way}/{DOCUMENT}")

    assert echo == "Echo: Grüße 🙂"
    assert "Long running operation completed" in done
    assert told == [1, 2, 3, 4]
    assert "Bern" in str(prompt.messages[0].content)
    assert "Features" in str(document.contents[0])


@ways
@hosts
async def test_it_may_ask_the_person_and_the_model(
    tmp_path: Path, urls: dict[str, str], mode: str, way: str
) -> None:
    async with host(tmp_path, urls, mode) as (client, person):
        await client.call_tool("open_toolbox", {"toolbox_name": "peers"})
        told = await use(client, way, "trigger-elicitation-request", {})
        model = await use(client, way, "trigger-sampling-request", {"prompt": "A poem?"})

    assert "declined" in told
    assert person.asked[0].startswith(f"[peers/{way}] ")
    assert "A poem?" in person.asked[1]
    assert "A sonnet." in model
