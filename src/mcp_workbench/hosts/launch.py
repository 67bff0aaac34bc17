"""How a host is to start us: a command that still works after a restart, from any folder."""

import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec

from mcp_workbench import __version__

COMMAND = "mcp-workbench"
DISTRIBUTION = "mcp-workbench-gateway"
# Folders of environments that `uvx` and `pipx run` throw away when they like.
_PASSING = {"uv": ("archive-v0", "environments-v2", "builds-v0"), "pipx": (".cache", "cache")}


class Launch(msgspec.Struct, frozen=True):
    """The words that start us, before `serve`."""

    words: tuple[str, ...]

    def command(self, config: str, toolboxes: tuple[str, ...] = ()) -> tuple[str, ...]:
        """All words of an entry. The file is always named: nobody knows in which folder we start."""
        boxes = [word for box in toolboxes for word in ("--toolbox", box)]
        return (*self.words, "serve", "--config", config, *boxes)


def launch() -> Launch:
    """What to write into a host's file, judged by how we were started ourselves."""
    running = Path(sys.argv[0]).absolute()
    python = Path(sys.executable)
    beside = python.parent / running.name if running.stem == COMMAND else python.parent / COMMAND
    script = running if running.stem == COMMAND and running.is_file() else beside
    origin = _origin() if passing_runner(python) else ""  # nobody else is asked where we came from
    return chosen(script if script.is_file() else None, python, origin)


def chosen(script: Path | None, python: Path, origin: str) -> Launch:
    """The decision: the command on the PATH if it is ours, else by its full path, else the module."""
    if runner := passing_runner(python):
        return _through(runner, origin)
    if script is None:
        return Launch((str(python), "-m", "mcp_workbench"))
    stable = shutil.which(COMMAND)
    if stable and Path(stable).is_absolute() and _same_file(Path(stable), script):
        return Launch(
            (stable,)
        )  # such as ~/.local/bin, which stays when the environment is renewed
    return Launch((str(script),))


def passing_runner(python: Path) -> str:
    """`uvx` or `pipx` where we run in an environment that may be gone tomorrow; else nothing."""
    parts = python.parts
    for tool, folders in _PASSING.items():
        if tool in parts and any(folder in parts[parts.index(tool) :] for folder in folders):
            return "uvx" if tool == "uv" else "pipx"
    if "pipx" in parts and ".cache" in parts:
        return "pipx"
    return ""


def _through(runner: str, origin: str) -> Launch:
    program = shutil.which(runner) or runner
    if runner == "uvx":
        return Launch((program, "--from", origin, COMMAND))
    return Launch((program, "run", "--spec", origin, COMMAND))


def _same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _origin() -> str:
    """Where this installation came from: a wheel, a folder, a repository, or an index."""
    from importlib.metadata import Distribution, PackageNotFoundError  # mail, archives and all

    pinned = f"{DISTRIBUTION}=={__version__}"
    try:
        text = Distribution.from_name(DISTRIBUTION).read_text("direct_url.json")
    except PackageNotFoundError:
        return pinned
    return _from_url(msgspec.json.decode(text, type=dict[str, Any]), pinned) if text else pinned


def _from_url(direct: dict[str, Any], pinned: str) -> str:
    url = direct.get("url")
    if not isinstance(url, str):
        return pinned
    if url.startswith("file://"):
        from urllib.request import url2pathname  # only for those who came this way

        return url2pathname(url.removeprefix("file://"))
    vcs = direct.get("vcs_info", {})
    if not vcs:
        return url
    return f"{vcs.get('vcs', 'git')}+{url}@{vcs.get('commit_id', 'HEAD')}"
