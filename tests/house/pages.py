"""The parts of the documents that the program itself writes: `python -m tests.house.pages`.

Each page of a command holds its `--help`, and the troubleshooting page every code that is printed.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from click import Context

from mcp_workbench.cli.commands import group
from mcp_workbench.core.error_codes import CODES
from tests.kit import forked

ROOT = Path(__file__).parents[2]
COMMANDS = ROOT / "docs" / "commands"
TROUBLESHOOTING = ROOT / "docs" / "troubleshooting.md"
NAMES = group.list_commands(Context(group))
AREAS = {
    "WB-CONF": "The configuration",
    "WB-CLI": "The command line",
    "WB-CONN": "Reaching servers",
    "WB-AUTH": "Signing in",
    "WB-SEC": "Secrets",
    "WB-BOX": "Sandboxes and resource limits",
    "WB-CALL": "Calls",
    "WB-TOOL": "Tools",
    "WB-LOCK": "The lock file",
    "WB-HOST": "Hosts and their files",
    "WB-UP": "The workbench in the background",
    "WB-TOUR": "The program itself",
}
_HELP = re.compile(r"(?<=^```text\n)Usage: .*?(?=^```$)", re.M | re.S)
_MARK = "<!-- From here on written by `make docs`. -->\n"


def help_of(command: str) -> str:
    """What `COMMAND --help` prints, on a terminal of the usual width."""
    argv = [command, "--help"] if command else ["--help"]
    env = {k: v for k, v in os.environ.items() if not k.startswith("MCP_WORKBENCH_")}
    env |= {"COLUMNS": "80", "NO_COLOR": "1", "PYTHONUTF8": "1"}
    done = forked.run(argv, cwd=ROOT, env=env, streams=forked.Streams(), timeout=60)
    assert done.returncode == 0, done
    return done.stdout


def page_of(command: str) -> Path:
    return COMMANDS / f"{command or 'README'}.md"


def with_help(text: str, command: str) -> str:
    """The page with the help of now; a page without a place for it has none."""
    return _HELP.sub(lambda _: help_of(command), text, count=1)


def codes_by_area() -> str:
    """Every code, by area: what it means, and what to do."""
    parts: list[str] = []
    for area, title in AREAS.items():
        parts.append(f"## {title}\n")
        for code, row in CODES.items():
            if code.startswith(area):
                parts.append(
                    f"### {code}: {row.title}\n\n{row.meaning}\n\n**What to do:** {row.remedy}\n"
                )
    return "\n".join(parts)


def with_codes(text: str) -> str:
    return text.partition(_MARK)[0] + _MARK + "\n" + codes_by_area()


def write() -> None:
    for command in ("", *NAMES):
        page = page_of(command)
        if not page.exists():  # of a new command: its words are still to be written
            page.write_text(f"# `{command}`\n\n```text\nUsage: \n```\n", "utf-8")
        page.write_text(with_help(page.read_text("utf-8"), command), "utf-8")
    text = TROUBLESHOOTING.read_text("utf-8")
    TROUBLESHOOTING.write_text(with_codes(text), "utf-8")


if __name__ == "__main__":
    write()
