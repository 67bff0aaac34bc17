"""What an agent's session costs, with real servers: the table of the README, made anew."""

from __future__ import annotations

import json
import re
import sys
import uuid
from pathlib import Path

import pytest
from crew import World, crew, make_world
from rawpeer import Peer, running

from tests.kit.processes import MARK, assert_all_gone
from tests.kit.results import Json
from tests.kit.tokens import o200k_tokens

pytestmark = pytest.mark.peers

README = Path(__file__).parents[2] / "README.md"
BOXES = {
    "work": ("Files and their history", ("filesystem", "git")),
    "home": ("What to remember, and the time", ("memory", "time")),
}
TOLERANCE = 0.03
ABSOLUTE = 60  # tokens; paths and dates of the day have more or fewer


class Session:
    """One agent: all that it reads and writes is counted."""

    def __init__(self, host: Peer) -> None:
        self._host = host
        self.spent: dict[str, int] = {"menu": 0, "finding": 0, "calls": 0}
        self.plain_calls = 0  # what the same calls cost without the workbench

    async def begin(self) -> None:
        """The instructions, and our own tools as a host shows them."""
        opening = await self._host.open()
        self.spent["menu"] += o200k_tokens(opening["instructions"])
        self.spent["menu"] += sum(map(injected, await self._host.tools()))

    async def find(self, tool: str, arguments: Json) -> str:
        answer = await self._ask("finding", tool, arguments)
        return answer["content"][0]["text"]

    async def use(self, server: str, tool: str, arguments: Json) -> Json:
        toolbox = next(name for name, (_, servers) in BOXES.items() if server in servers)
        identifier = {"toolbox": toolbox, "server": server, "tool": tool}
        before = self.spent["calls"]
        wish = {"tool": identifier, "arguments": arguments}
        result = await self._ask("calls", "use_tool", wish)
        ours, theirs = (
            o200k_tokens(n) + o200k_tokens(json.dumps(w))
            for n, w in (("use_tool", wish), (tool, arguments))
        )
        self.plain_calls += self.spent["calls"] - before - ours + theirs
        return result

    async def run(self, errands: list[tuple[str, str, str, Json]]) -> None:
        """All calls in one script, of which the agent wants what it would have read otherwise."""
        lines: list[str] = []
        for _, server, tool, arguments in errands:
            toolbox = next(name for name, (_, servers) in BOXES.items() if server in servers)
            given = "".join(f", {name}={value!r}" for name, value in arguments.items())
            lines.append(f'print(await call("{toolbox}/{server}/{tool}"{given}))')
        await self._ask("calls", "run_script", {"code": "\n".join(lines)})

    async def _ask(self, purpose: str, tool: str, arguments: Json) -> Json:
        result = await self._host.call(tool, arguments)
        assert "isError" not in result or result["isError"] is False, result
        self.spent[purpose] += o200k_tokens(tool) + o200k_tokens(json.dumps(arguments))
        self.spent[purpose] += sum(o200k_tokens(block["text"]) for block in result["content"])
        return result


def injected(tool: Json) -> int:
    """A definition as most hosts show it to a model."""
    shown = {key: tool[key] for key in ("name", "description", "inputSchema") if key in tool}
    return o200k_tokens(json.dumps(shown, separators=(",", ":"), ensure_ascii=False, default=list))


def errands(world: World) -> list[tuple[str, str, str, Json]]:
    """What the agent has to do: how it would ask for it, and what it calls then."""
    entity = {"name": "Ada", "entityType": "person", "observations": ["wrote the note"]}
    return [
        ("read a text file", "filesystem", "read_text_file", {"path": f"{world.files}/note.txt"}),
        ("show the commit log", "git", "git_log", {"repo_path": str(world.repository)}),
        ("remember a person", "memory", "create_entities", {"entities": [entity]}),
        ("current time in a time zone", "time", "get_current_time", {"timezone": "UTC"}),
    ]


async def spend(workplace: Path, folder: Path, way: str) -> tuple[dict[str, int], dict[str, int]]:
    """One session: what it cost, and what it would with all definitions there from the start."""
    world, mark = make_world(folder), uuid.uuid4().hex
    everybody = crew(workplace, world)
    toolboxes = {
        name: {
            "description": about,
            "discover": "eager",
            "mcpServers": {
                server: {
                    **everybody[server],
                    "env": {**everybody[server].get("env", {}), MARK: mark},
                }
                for server in servers
            },
        }
        for name, (about, servers) in BOXES.items()
    }
    config = folder / "workbench-config.json"
    config.write_text(json.dumps({"toolboxes": toolboxes, "scripts": way == "script"}))
    command = [sys.executable, "-m", "mcp_workbench", "serve", "--config", config]
    async with running(command, folder, modern=False, env={MARK: mark}) as host:
        session = Session(host)
        await session.begin()
        everything = 0
        if way not in ("search", "script"):
            for name in BOXES:
                detail = {} if way == "schema" else {"detail": way}
                opened = await session.find("open_toolbox", {"toolbox_name": name, **detail})
                everything += all_of(opened) if way == "schema" else 0
        for wish, server, tool, arguments in errands(world):
            if way in ("search", "script"):
                answer = await session.find("search_tools", {"query": wish})
                assert f"\n{tool}(" in answer, answer
                assert " of 37 tools," in answer  # as the README says
            if way != "script":
                await session.use(server, tool, arguments)
        if way == "script":
            await session.run(errands(world))
        await host.leave()
    assert_all_gone(mark)
    return session.spent, {"menu": everything, "finding": 0, "calls": session.plain_calls}


def all_of(opened: str) -> int:
    return sum(map(injected, json.loads(opened)["tools"]))


def table(rows: dict[str, dict[str, int]]) -> dict[str, list[int]]:
    """Of each way: what is there from the start, what finding and calling cost, and all of it."""
    return {way: [*spent.values(), sum(spent.values())] for way, spent in rows.items()}


async def test_the_table_in_the_readme_is_what_a_session_costs(
    workplace: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rows: dict[str, dict[str, int]] = {}
    for way in ("schema", "full", "signature", "search", "script"):
        rows[way], direct = await spend(workplace, tmp_path_factory.mktemp(way), way)
        if way == "schema":
            rows["direct"] = direct
    measured = table(rows)

    told = read_table(README.read_text("utf-8"))

    print("\n".join(f"{way}: {figures}" for way, figures in measured.items()))
    assert list(told) == ["direct", "schema", "full", "signature", "search", "script"]
    for way, figures in told.items():
        assert figures == pytest.approx(measured[way], rel=TOLERANCE, abs=ABSOLUTE), way
    assert max(measured["search"][-1], measured["signature"][-1]) < measured["direct"][-1]


def read_table(text: str) -> dict[str, list[int]]:
    lines = re.findall(r"^\| [^|]+<!-- (\w+) --> \|(.+)\|$", text, re.MULTILINE)
    return {
        way: [int(figure.strip().replace(",", "")) for figure in figures.split("|")]
        for way, figures in lines
    }
