"""The command that a host starts us with: it works after a restart, from any folder."""

import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec

from mcp_workbench import __version__

COMMAND = "mcp-workbench"
DISTRIBUTION = "mcp-workbench-gateway"
# Folders of temporary environments of `uvx` and `pipx run`.
_TEMPORARY = {"uv": ("archive-v0", "environments-v2", "builds-v0"), "pipx": (".cache", "cache")}


class Launch(msgspec.Struct, frozen=True):
    """Program and arguments that start us, before `serve`."""

    words: tuple[str, ...]

    def command(self, config: str, toolboxes: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Returns the command line of an entry. It names the file: a host's working directory is unknown."""
        boxes = [word for box in toolboxes for word in ("--toolbox", box)]
        return (*self.words, "serve", "--config", config, *boxes)


def launch() -> Launch:
    """Returns what to write into a host's file, derived from how this process was started."""
    running = Path(sys.argv[0]).absolute()
    python = Path(sys.executable)
    beside = python.parent / running.name if running.stem == COMMAND else python.parent / COMMAND
    script = running if running.stem == COMMAND and running.is_file() else beside
    origin = _origin() if temporary_runner(python) else ""  # of no use to the others
    return choose_launch(script if script.is_file() else None, python, origin)


def choose_launch(script: Path | None, python: Path, origin: str) -> Launch:
    """Returns the command on the PATH if it is ours, else its full path, else the module."""
    if runner := temporary_runner(python):
        return _through(runner, origin)
    if script is None:
        return Launch((str(python), "-m", "mcp_workbench"))
    stable = shutil.which(COMMAND)
    if stable and Path(stable).is_absolute() and _same_file(Path(stable), script):
        return Launch((stable,))  # in a folder such as ~/.local/bin, which outlives the environment
    return Launch((str(script),))


def temporary_runner(python: Path) -> str:
    """Returns `uvx` or `pipx` if we run in one of their temporary environments, else an empty string."""
    parts = python.parts
    for tool, folders in _TEMPORARY.items():
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


def _same_file(left: Path, right: Path) -> bool:
    try:
        return left.samefile(right)
    except OSError:
        return False


def _origin() -> str:
    """Returns where this installation came from: a wheel, a folder, a repository, or an index."""
    from importlib.metadata import Distribution, PackageNotFoundError  # slow to load

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
        from urllib.request import url2pathname  # only for such installations

        return url2pathname(url.removeprefix("file://"))
    vcs = direct.get("vcs_info", {})
    if not vcs:
        return url
    return f"{vcs.get('vcs', 'git')}+{url}@{vcs.get('commit_id', 'HEAD')}"
