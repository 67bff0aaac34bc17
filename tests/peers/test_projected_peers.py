"""Parts of results of the reference servers, and the tokens that they take instead of the whole."""

from __future__ import annotations

import json
import subprocess
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

PROGRAM = Path(__file__).parents[2] / "src" / "mcp_workbench" / "transport" / "http" / "client.py"
PEOPLE = [
    {
        "name": f"Person {n}",
        "entityType": "person",
        "observations": [f"works in room {n}"] + [f"writes as p{n}@example.com"] * (n % 8 > 0),
    }
    for n in range(40)
]


def tasks(world: World) -> dict[str, tuple[str, str, Json, Json]]:
    """What is wanted: server, tool and arguments, and the part of the result."""
    return {
        "lines of a program": (
            "filesystem",
            "read_text_file",
            {"path": f"{world.files}/client.py"},
            {"lines": "timeout"},
        ),
        "people without e-mail": (
            "memory",
            "read_graph",
            {},
            {"select": "entities[?length(observations) == `1`].name"},
        ),
        "subjects of commits": (
            "git",
            "git_log",
            {"repo_path": str(world.repository), "max_count": 30},
            {"lines": "^Message"},
        ),
    }


def add_commits(repository: Path) -> None:
    git = ["git", "-C", str(repository), "-c", "user.name=A", "-c", "user.email=a@example.com"]
    for n in range(30):
        commit = ["commit", "--quiet", "--allow-empty", "-m", f"Change {n}"]
        subprocess.run([*git, *commit], check=True)


class Agent:
    """Counts what it writes and reads."""

    def __init__(self, host: Peer) -> None:
        self._host = host

    async def use(
        self, server: str, tool: str, arguments: Json, wanted: Json
    ) -> tuple[list[str], int]:
        identifier = {"toolbox": "dev", "server": server, "tool": tool}
        call = {"tool": identifier, "arguments": arguments, **wanted}
        result = await self._host.call("use_tool", call)
        texts = [block["text"] for block in result["content"]]
        return texts, o200k_tokens(json.dumps(call)) + sum(map(o200k_tokens, texts))


@pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
async def test_a_part_of_what_a_reference_server_answers(
    workplace: Path, tmp_path: Path, *, modern: bool
) -> None:
    world, mark = make_world(tmp_path), uuid.uuid4().hex
    (world.files / "client.py").write_text(PROGRAM.read_text("utf-8"), "utf-8")
    add_commits(world.repository)
    everybody = crew(workplace, world)
    servers = {
        name: {**everybody[name], "env": {**everybody[name].get("env", {}), MARK: mark}}
        for name in ("filesystem", "memory", "git")
    }
    config = tmp_path / "workbench-config.json"
    config.write_text(json.dumps({"toolboxes": {"dev": {"mcpServers": servers}}}))
    command = [sys.executable, "-m", "mcp_workbench", "serve", "--config", config]
    parts: dict[str, str] = {}
    async with running(command, tmp_path, modern=modern, env={MARK: mark}) as host:
        await host.open()
        agent = Agent(host)
        await agent.use("memory", "create_entities", {"entities": PEOPLE}, {})
        for name, (server, tool, arguments, wanted) in tasks(world).items():
            _, whole = await agent.use(server, tool, arguments, {})
            (parts[name], _), part = await agent.use(server, tool, arguments, wanted)
            print(f"{name}: {whole} tokens, {part} of a part")
            assert part * 3 < whole, name
        await host.leave()
    assert_all_gone(mark)

    lines = PROGRAM.read_text("utf-8").splitlines()
    numbered = [f"{n}:{line}" for n, line in enumerate(lines, 1) if "timeout" in line]
    assert parts["lines of a program"].splitlines() == numbered
    assert json.loads(parts["people without e-mail"]) == [f"Person {n}" for n in range(0, 40, 8)]
    assert len(parts["subjects of commits"].splitlines()) == 30
