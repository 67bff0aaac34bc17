"""Real servers and launchers work in a sandbox as they do without it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crew import OFFICIAL, World, crew, make_world

from tests.kit.command import COMMAND
from tests.kit.config import config_file
from tests.kit.pipe_host import PipeHost
from tests.kit.results import Json
from tests.sandbox.scenes import needs_bubblewrap, python_files

pytestmark = [pytest.mark.peers, pytest.mark.timeout(300), needs_bubblewrap]

BIN = Path(sys.executable).parent
# What each kind of server says to a call that needs files, a repository, a clock or nothing.
CALLS: dict[str, tuple[str, Json, str]] = {
    "everything": ("echo", {"message": "in a box"}, "in a box"),
    "memory": ("read_graph", {}, "entities"),
    "time": ("get_current_time", {"timezone": "UTC"}, "UTC"),
    "npx": ("echo", {"message": "in a box"}, "in a box"),
    "uvx": ("get_current_time", {"timezone": "UTC"}, "UTC"),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("world"))


def launched(workplace: Path) -> dict[str, Json]:
    """The servers of launchers that fetch: npx runs what its folder has, uvx what its cache has."""
    assert shutil.which("npx"), "npx is missing: it comes with Node"
    assert (BIN / "uvx").exists(), "uvx is missing: `make peers` installs it"
    everything = ["-y", f"{OFFICIAL}/server-everything"]
    return {
        "npx": {"command": "npx", "args": everything, "cwd": str(workplace)},
        "uvx": {"command": str(BIN / "uvx"), "args": ["mcp-server-time"]},
    }


@pytest.fixture(scope="module", params=["off", "process"])
def servers(request: pytest.FixtureRequest, workplace: Path, world: World) -> dict[str, Json]:
    entries = crew(workplace, world) | launched(workplace)
    return {name: {**entry, "sandbox": request.param} for name, entry in entries.items()}


@pytest.fixture(scope="module")
def checked(
    servers: dict[str, Json], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Json, PipeHost]]:
    """What `check --connect` says of all of them, and a host that has them."""
    config = config_file(tmp_path_factory.mktemp("config"), servers)
    argv = [*COMMAND, "check", "--connect", "--json", "--config", str(config)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240)
    with PipeHost(config) as host:
        host.initialize()
        yield json.loads(done.stdout), host


def test_every_server_is_ready(checked: tuple[Json, PipeHost], servers: dict[str, Json]) -> None:
    document, _ = checked
    box = {"off": "none", "process": "process"}[servers["git"]["sandbox"]]

    reasons = {one["server"]: one["reason"] for one in document["servers"] if not one["available"]}
    assert reasons == {}
    assert {one["box"] for one in document["servers"]} == {box}
    assert len(document["servers"]) == len(servers)


@pytest.mark.parametrize("server", list(CALLS))
def test_its_calls_work(checked: tuple[Json, PipeHost], server: str) -> None:
    _, host = checked
    tool, arguments, expected = CALLS[server]

    assert expected in text(host, server, tool, arguments)


def test_files_and_repositories_are_there(checked: tuple[Json, PipeHost], world: World) -> None:
    _, host = checked
    note = {"path": str(world.files / "note.txt")}

    assert "Grüße" in text(host, "filesystem", "read_text_file", note)
    repository = {"repo_path": str(world.repository)}
    assert "The first commit" in text(host, "git", "git_log", repository)


def text(host: PipeHost, server: str, tool: str, arguments: Any) -> str:
    result = host.use(server, tool, arguments)
    assert not result.get("isError"), result
    return result["content"][0]["text"]


def test_the_file_server_works_with_its_files_alone(
    workplace: Path, world: World, tmp_path: Path
) -> None:
    """Granted are Node, the packages and one folder; there is no network."""
    node = os.path.realpath(str(shutil.which("node")))
    packages = workplace / "node_modules"
    granted = {str(Path(node).parent), str(packages), os.path.realpath(packages)}
    read = sorted(place for place in granted if not place.startswith("/usr"))
    entry = {
        **crew(workplace, world)["filesystem"],
        "command": node,
        "sandbox": {"read": read, "write": [str(world.files)]},
    }
    with PipeHost(config_file(tmp_path, {"filesystem": entry})) as host:
        host.initialize()
        new = {"path": str(world.files / "new.txt"), "content": "from the box"}
        text(host, "filesystem", "write_file", new)

    assert (world.files / "new.txt").read_text() == "from the box"


def test_a_module_of_python_works_without_a_network(tmp_path: Path) -> None:
    args = ["-m", "mcp_server_time", "--local-timezone", "UTC"]
    read = [place for place in python_files() if "tests" not in place]
    entry = {"command": sys.executable, "args": args, "sandbox": {"read": read}}
    with PipeHost(config_file(tmp_path, {"time": entry})) as host:
        host.initialize()

        assert "UTC" in text(host, "time", "get_current_time", {"timezone": "UTC"})
