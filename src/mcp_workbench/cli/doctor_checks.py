"""Results of `doctor` with their fix, and its check of the programs that servers need."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from mcp_workbench.core.errors import Problem
from mcp_workbench.core.spec import ServerSpec, StdioCommand

VERSION_TIMEOUT = 10.0  # seconds for a program to print its version
SUBJECT = "programs"

# The PATH of a program that is started from a desktop.
DESKTOP_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
# Where installers put programs outside of many a PATH; * is any folder, the newest last.
_PLACES = (
    "~/.local/bin", "~/.cargo/bin", "~/.volta/bin", "~/.bun/bin", "~/.deno/bin", "~/.asdf/shims",
    "~/.pyenv/shims", "~/.local/share/mise/shims", "~/.local/share/fnm/aliases/default/bin",
    "~/.nvm/versions/node/*/bin", "/opt/homebrew/bin", "/usr/local/bin", "/snap/bin", "/usr/bin",
)  # fmt: skip
State = Literal["good", "doubtful", "bad"]
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


def commands_of(specs: Iterable[ServerSpec]) -> list[str]:
    """Returns the commands that are given without a folder and without a variable, each once."""
    commands = [s.target.command for s in specs if isinstance(s.target, StdioCommand)]
    return list(dict.fromkeys(c for c in commands if os.sep not in c and "$" not in c))


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


def missing(command: str) -> str:
    """Returns the fix for a command that was not found."""
    if path := outside_path(command):
        return f"it is at {path}: write {_written(command, path)}, or add that folder to PATH"
    runtime = RUNTIMES.get(command)
    return runtime.install if runtime else f"install {command}, or write its absolute path"


def _written(command: str, path: str) -> str:
    """Returns the members of an entry that start this program with any PATH."""
    runtime = RUNTIMES.get(command)
    if runtime is None or runtime.program in (command, "uv"):  # uvx finds uv beside itself
        return f'"command": "{path}"'
    folder = Path(path).parent  # a script, which looks for its runtime on the PATH
    return f'"command": "{path}", "env": {{"PATH": "{folder}:${{PATH}}"}}'


def check_programs(specs: list[ServerSpec], environ: Mapping[str, str]) -> Iterator[CheckResult]:
    """Reports versions that are too old, and commands that only this shell's PATH has."""
    commands = commands_of(specs)
    path = environ.get("PATH", os.defpath)
    versions: list[str] = []
    for runtime in dict.fromkeys(RUNTIMES[c] for c in commands if c in RUNTIMES):
        program = shutil.which(runtime.program, path=path)
        version = program_version(program) if program else ()
        if version and version < runtime.oldest:
            yield _too_old(runtime, version)
        elif version:
            versions.append(f"{runtime.program} {_dotted(version)}")
    if versions:
        yield CheckResult("good", SUBJECT, ", ".join(versions))
    lost = [c for c in commands if shutil.which(c, path=path)]
    lost = [c for c in lost if not shutil.which(c, path=DESKTOP_PATH)]
    if lost:
        where = [str(shutil.which(c, path=path)) for c in lost]
        yield CheckResult(
            "doubtful",
            SUBJECT,
            f"only this PATH leads to {', '.join(lost)}: hosts started from a desktop have another",
            f"write absolute paths: {_written(lost[0], where[0])}",
            "WB-CONN-103",
        )


def _too_old(runtime: Runtime, version: tuple[int, ...]) -> CheckResult:
    wanted = _dotted(runtime.oldest)
    message = (
        f"{runtime.program} {_dotted(version)} is older than {wanted}, which most servers need"
    )
    return CheckResult("doubtful", SUBJECT, message, runtime.install, "WB-CONN-104")


def program_version(program: str) -> tuple[int, ...]:
    """Returns the first version number that it prints, or an empty tuple."""
    try:
        done = subprocess.run(  # noqa: S603 - found on the PATH that its servers are started with
            [program, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=VERSION_TIMEOUT,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    match = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", done.stdout + done.stderr)
    return tuple(int(part) for part in match.groups() if part) if match else ()


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


class CheckResult(msgspec.Struct, frozen=True):
    """The result of one check. The JSON form is its fields."""

    state: State
    subject: str
    message: str
    fix: str = ""
    code: str = ""
    place: str = ""  # file:line:column, or the file alone; empty if it is about no file
    fixed: bool = False  # by --fix, just now


def of_problem(problem: Problem, file: str, subject: str) -> CheckResult:
    """Returns the result for an error or a warning about a file."""
    place = f"{file}:{problem.line}:{problem.column}" if problem.line else file
    path = f"{problem.path}: " if problem.path else ""
    state: State = "bad" if problem.severity == "error" else "doubtful"
    return CheckResult(state, subject, f"{path}{problem.message}", problem.fix, problem.code, place)


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
