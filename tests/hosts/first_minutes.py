"""The first five minutes, really run. `python -m tests.hosts.first_minutes` writes the document."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path

from mcp_workbench import __version__
from tests.hosts.samples import demo
from tests.kit.command import READS, Person, newcomer

DOCUMENT = Path(__file__).parents[2] / "docs" / "first-five-minutes.md"
TOKEN = "3f9c0e5d-made-up"
SECONDS = re.compile(r"\b\d+\.\d s\b")

CLAUDE = {"numStartups": 12, "mcpServers": {"basics": {"type": "stdio", **demo("basics")}}}
CURSOR = {
    "mcpServers": {
        "basics": demo("basics"),
        "workshop": {**demo("workshop"), "env": {"WORKSHOP_TOKEN": TOKEN}},
    }
}
HEAD = """# The first five minutes

Ada uses Claude Code and Cursor, with two MCP servers. This page shows how she puts MCP Workbench in front of them, and how
she reverts it. She passes `--yes`, which skips the question after each preview.

The output is real: `python -m tests.hosts.first_minutes` runs the commands in a home folder like hers and writes this page,
and a test compares the two. Only paths, dates, versions and durations are normalized.

"""
PARTS = [
    (
        "Before",
        "Each host has its own list of servers. Cursor's contains a token.",
        ["cat ~/.claude.json", "cat ~/.cursor/mcp.json"],
    ),
    (
        "Import",
        (
            "`import` merges both lists into one file. The server in both is written once, and the token is replaced by a variable.\n"
            "It connects to each server once, so that an agent's first search finds its tools."
        ),
        ["mcp-workbench import --yes"],
    ),
    (
        "Check",
        "Set the variable, then start every server once.",
        ["export WORKSHOP_TOKEN=…", "mcp-workbench check --connect"],
    ),
    (
        "Install",
        "Each host gets one entry instead of its own. Cursor passes on only variables that the entry names.",
        ["mcp-workbench install claude-code cursor --replace --yes"],
    ),
    (
        "List and call tools",
        "List what the agent can reach, and call a tool.",
        ["mcp-workbench tools default/basics", "mcp-workbench call default/basics/add a=2 b=3"],
    ),
    (
        "Check everything",
        "`doctor` checks the program, the configuration, the entry in each host, and every server.",
        ["mcp-workbench doctor"],
    ),
    (
        "Undo",
        "`undo --all` reverts everything. Cursor's file is the same again, byte for byte.",
        ["mcp-workbench undo --list", "mcp-workbench undo --all", "cat ~/.cursor/mcp.json"],
    ),
]


def transcript() -> str:
    """The whole document, from a run of now."""
    with tempfile.TemporaryDirectory() as name:
        person = newcomer(Path(name).resolve())
        own = person.home / ".local" / "bin"
        own.mkdir(parents=True)
        (own / "mcp-workbench").symlink_to(Path(sys.executable).with_name("mcp-workbench"))
        person = person._replace(path=f"{own}:{person.path}")
        _write(person.home / ".claude.json", CLAUDE)
        _write(person.home / ".cursor" / "mcp.json", CURSOR)
        parts = [
            f"## {title}\n\n{text}\n\n```text\n{_session(person, commands)}```\n"
            for title, text, commands in PARTS
        ]
    return HEAD + "\n".join(parts)


def _write(path: Path, value: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value, indent=2) + "\n")


def _session(person: Person, commands: list[str]) -> str:
    text = ""
    for command in commands:
        said = _run(person, command)
        text += f"$ {command}\n{_tidied(person, said)}"
    return text


def _run(person: Person, command: str) -> str:
    program, *words = command.split()
    if program == "cat":
        return (person.home / words[0].removeprefix("~/")).read_text()
    if program == "export":
        return ""
    done = person.types(*words, **READS, WORKSHOP_TOKEN=TOKEN)
    assert done.status == 0, done.err
    assert TOKEN not in done.out + done.err
    return done.out + re.sub(r"(?m)^.*: ready \(.*\n", "", done.err)  # progress, seen if it is slow


def _tidied(person: Person, said: str) -> str:
    """The same for everybody: one home, one Python, one time."""
    script = Path(sys.executable).parent / "mcp-workbench"
    said = said.replace(str(script), "/home/ada/.local/bin/mcp-workbench")
    said = said.replace(sys.executable, "/usr/bin/python3")
    said = said.replace(str(person.folder), "/home/ada/work").replace(str(person.home), "/home/ada")
    said = re.sub(rf"{__version__}, Python 3[.\d]+, \w+", "0.11.0, Python 3.13.1, linux", said)
    said = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "2026-11-20 09:30", said)
    return SECONDS.sub("0.2 s", said)


if __name__ == "__main__":
    DOCUMENT.write_text(transcript(), "utf-8")
