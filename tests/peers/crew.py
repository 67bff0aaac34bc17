"""The real servers: how each is started, and the little world that they look at."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.kit.results import Json

OFFICIAL = "@modelcontextprotocol"
MODERN_SERVERS = {"git", "time", "typescript"}
REVISIONS = {
    "everything": "2025-11-25",
    "filesystem": "2025-11-25",
    "memory": "2025-11-25",
    "git": "2026-07-28",
    "time": "2026-07-28",
    "typescript": "2026-07-28",
    "typescript-legacy": "2025-11-25",
    "old": "2025-06-18",
    "older": "2024-11-05",
}


class World(NamedTuple):
    """Files, a repository, and a place for memories."""

    files: Path
    repository: Path
    memories: Path


def make_world(folder: Path) -> World:
    world = World(folder / "files", folder / "repository", folder / "memories.jsonl")
    world.files.mkdir()
    (world.files / "note.txt").write_text("Grüße aus der Datei 🙂\n", encoding="utf-8")
    git = ["git", "-C", str(folder), "-c", "user.name=A", "-c", "user.email=a@example.com"]
    subprocess.run([*git, "init", "--quiet", str(world.repository)], check=True)
    git[2] = str(world.repository)
    (world.repository / "file").write_text("one\n")
    subprocess.run([*git, "add", "file"], check=True)
    subprocess.run([*git, "commit", "--quiet", "-m", "The first commit"], check=True)
    return world


def crew(workplace: Path, world: World) -> dict[str, Json]:
    """Every server as an entry of a toolbox."""
    packages = workplace / "node_modules"

    def node(script: Path, *args: Path) -> Json:
        return {"command": "node", "args": [str(script), *map(str, args)]}

    def package(name: str, *args: Path) -> Json:
        return node(packages / name / "dist" / "index.js", *args)

    def module(name: str, *args: str) -> Json:
        return {"command": sys.executable, "args": ["-m", name, *args]}

    version_two = workplace / "server_v2.mjs"
    memory = package(f"{OFFICIAL}/server-memory")
    return {
        "everything": package(f"{OFFICIAL}/server-everything"),
        "filesystem": package(f"{OFFICIAL}/server-filesystem", world.files),
        "memory": {**memory, "env": {"MEMORY_FILE_PATH": str(world.memories)}},
        "git": module("mcp_server_git"),
        "time": module("mcp_server_time", "--local-timezone", "UTC"),
        "typescript": node(version_two),
        "typescript-legacy": {**node(version_two, Path("legacy")), "era": "legacy"},
        "old": package("everything-2025-06-18"),
        "older": package("everything-2024-11-05"),
    }
