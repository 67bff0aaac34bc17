"""Remedies: what to do about a server that can't be reached, as far as its reason shows it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec

from mcp_workbench.core.spec import HttpEndpoint, ServerSpec

# Where installers put programs outside of many a PATH; * is any folder, the newest last.
_PLACES = (
    "~/.local/bin", "~/.cargo/bin", "~/.volta/bin", "~/.bun/bin", "~/.deno/bin", "~/.asdf/shims",
    "~/.pyenv/shims", "~/.local/share/mise/shims", "~/.local/share/fnm/aliases/default/bin",
    "~/.nvm/versions/node/*/bin", "/opt/homebrew/bin", "/usr/local/bin", "/snap/bin", "/usr/bin",
)  # fmt: skip
_FIX = re.compile(r" \([^()]*; fix: ([^()]*)\)")  # of a variable: its place, and the fix
_ADVICE = re.compile(r"; ((?:correct|chmod|write) .*)", re.DOTALL)
_STDERR = ("; its last words: ", "stderr: ")  # what follows is a server's text
_STDIO = (
    "it may serve over HTTP, or write its log to stdout: start it in its stdio mode (often an "
    "argument such as --stdio), with its log on stderr"
)


class Runtime(msgspec.Struct, frozen=True):
    """The runtime of a command, and the oldest version that will do."""

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


def fix_of(spec: ServerSpec, reason: str, environ: Mapping[str, str]) -> str:
    """Returns the fix for this server, with the variables that it names and did not get."""
    if isinstance(spec.target, HttpEndpoint):
        return remedy(reason, remote=True)
    # Only where a server failed: the tab key loads this file, too.
    from mcp_workbench.gateway.missing_variables import variable_advice

    return variable_advice(reason, spec.target, environ) or remedy(reason)


def cause(reason: str) -> str:
    """Returns the reason without place and fix, which are shown below it."""
    if _advice(reason):
        return reason[: -len(_advice(reason)) - len("; ")]
    return _FIX.sub("", reason).removesuffix("; install it or write its absolute path")


def remedy(reason: str, *, remote: bool = False) -> str:
    """Returns the fix for a server that can't be reached, as far as the reason shows it."""
    if reason.startswith("command not found: ") and "(searched PATH" in reason:
        return missing(reason.removeprefix("command not found: ").split(" (searched")[0])
    if reason.startswith("it answered nothing within") and not remote:
        return _STDIO  # more time would not help
    if fixes := _FIX.findall(reason):
        return "; ".join(fixes)
    if advice := _advice(reason):
        return advice
    if "did not start within" in reason:
        return "a first start may download: try again, or raise 'connectTimeout' of this server"
    if remote:
        return "see that its 'url' and 'headers' are right, and that this machine reaches it"
    return "run its command by hand and see what it says"


def _advice(reason: str) -> str:
    """Returns the advice at the end of a reason of ours; a server's stderr is none."""
    match = None if any(label in reason for label in _STDERR) else _ADVICE.search(reason)
    return match[1] if match else ""


def missing(command: str) -> str:
    """Returns the fix for a command that was not found."""
    if path := outside_path(command):
        return f"it is at {path}: write {written(command, path)}, or add that folder to PATH"
    runtime = RUNTIMES.get(command)
    return runtime.install if runtime else f"install {command}, or write its absolute path"


def outside_path(command: str) -> str:
    """Returns the path of a command that is not on the PATH; empty if there is none."""
    for place in _PLACES:
        folders = [Path(place).expanduser()]
        if "*" in place:
            home, _, inner = place.partition("*")
            folders = sorted(Path(home).expanduser().glob(f"*{inner}"))
        for folder in reversed(folders):
            if path := shutil.which(command, path=str(folder)):
                return path
    return ""


def written(command: str, path: str) -> str:
    """Returns the members of an entry that start this program with any PATH."""
    runtime = RUNTIMES.get(command)
    if runtime is None or runtime.program in (command, "uv"):  # uvx finds uv beside itself
        return f'"command": "{path}"'
    folder = Path(path).parent  # a script, which looks for its runtime on the PATH
    return f'"command": "{path}", "env": {{"PATH": "{folder}:${{PATH}}"}}'
