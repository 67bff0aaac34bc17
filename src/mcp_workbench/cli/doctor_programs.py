"""The programs that servers need: where they are, how old they are, and who will not find them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from mcp_workbench.cli.diagnosis import Line
from mcp_workbench.core.spec import ServerSpec, StdioCommand

PATIENCE = 10.0  # seconds for a program to tell its version
SUBJECT = "programs"

# What a program started from a desktop finds, whatever the shell of its person does.
DESKTOP_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
# Where installers put things that a PATH may lack; * is any folder, the newest last.
_PLACES = (
    "~/.local/bin", "~/.cargo/bin", "~/.volta/bin", "~/.bun/bin", "~/.deno/bin", "~/.asdf/shims",
    "~/.pyenv/shims", "~/.local/share/mise/shims", "~/.local/share/fnm/aliases/default/bin",
    "~/.nvm/versions/node/*/bin", "/opt/homebrew/bin", "/usr/local/bin", "/snap/bin", "/usr/bin",
)  # fmt: skip


class Runtime(msgspec.Struct, frozen=True):
    """What a command needs beneath it, and since when it is new enough."""

    program: str
    oldest: tuple[int, ...]
    install: str


_NODE = Runtime("node", (20,), "install Node.js 20 or newer: https://nodejs.org")
_UV = Runtime("uv", (0, 4), "install uv: https://docs.astral.sh/uv")
_PYTHON = Runtime("python3", (3, 10), "install Python 3.10 or newer: https://www.python.org")
_DOCKER = Runtime("docker", (20,), "install Docker: https://docs.docker.com/get-docker")
RUNTIMES = {
    "npx": _NODE,
    "node": _NODE,
    "npm": _NODE,
    "uvx": _UV,
    "uv": _UV,
    "python": _PYTHON,
    "python3": _PYTHON,
    "docker": _DOCKER,
}


def commands_of(specs: Iterable[ServerSpec]) -> list[str]:
    """The commands that are named without a folder, each once. A variable is nobody's name."""
    found = [s.target.command for s in specs if isinstance(s.target, StdioCommand)]
    return list(dict.fromkeys(c for c in found if os.sep not in c and "$" not in c))


def elsewhere(command: str) -> str:
    """Where a command lies that the PATH does not lead to; empty where it is not found."""
    for place in _PLACES:
        folders = [Path(place).expanduser()]
        if "*" in place:
            home, _, inner = place.partition("*")
            folders = sorted(Path(home).expanduser().glob(f"*{inner}"))
        for folder in reversed(folders):
            if found := shutil.which(command, path=str(folder)):
                return found
    return ""


def missing(command: str) -> str:
    """What helps where a command was not found."""
    if found := elsewhere(command):
        return f"it is at {found}: write {_written(command, found)}, or add that folder to PATH"
    runtime = RUNTIMES.get(command)
    return runtime.install if runtime else f"install {command}, or write its absolute path"


def _written(command: str, found: str) -> str:
    """The members of an entry that start this program whatever the PATH is."""
    runtime = RUNTIMES.get(command)
    if runtime is None or runtime.program in (command, "uv"):  # uvx finds uv beside itself
        return f'"command": "{found}"'
    folder = Path(found).parent  # a script, which looks for its runtime on the PATH
    return f'"command": "{found}", "env": {{"PATH": "{folder}:${{PATH}}"}}'


def look_at_programs(specs: list[ServerSpec], environ: Mapping[str, str]) -> Iterator[Line]:
    """Versions that are too old, and names that only this shell's PATH makes known."""
    commands = commands_of(specs)
    path = environ.get("PATH", os.defpath)
    told: list[str] = []
    for runtime in dict.fromkeys(RUNTIMES[c] for c in commands if c in RUNTIMES):
        found = shutil.which(runtime.program, path=path)
        version = told_version(found) if found else ()
        if version and version < runtime.oldest:
            yield _too_old(runtime, version)
        elif version:
            told.append(f"{runtime.program} {_dotted(version)}")
    if told:
        yield Line("good", SUBJECT, ", ".join(told))
    lost = [c for c in commands if shutil.which(c, path=path)]
    lost = [c for c in lost if not shutil.which(c, path=DESKTOP_PATH)]
    if lost:
        where = [str(shutil.which(c, path=path)) for c in lost]
        yield Line(
            "doubtful",
            SUBJECT,
            f"only this PATH leads to {', '.join(lost)}: hosts started from a desktop have another",
            f"write absolute paths: {_written(lost[0], where[0])}",
            "WB-CONN-103",
        )


def _too_old(runtime: Runtime, version: tuple[int, ...]) -> Line:
    wanted = _dotted(runtime.oldest)
    told = f"{runtime.program} {_dotted(version)} is older than {wanted}, which most servers need"
    return Line("doubtful", SUBJECT, told, runtime.install, "WB-CONN-104")


def told_version(program: str) -> tuple[int, ...]:
    """The first version number that it prints; nothing where it prints none."""
    try:
        done = subprocess.run(  # noqa: S603 - found on the PATH that its servers are started with
            [program, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", done.stdout + done.stderr)
    return tuple(int(part) for part in found.groups() if part) if found else ()


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
