"""Our own entry in a host's file: the command that starts us, the entry, and its problems.

The command must work after a restart and from any folder. An entry that is already there may have been
written by an older version, by the host's own command, or by hand.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from mcp_workbench import __version__
from mcp_workbench.config import jsonc
from mcp_workbench.hosts.files import HostFile, Keys, Machine
from mcp_workbench.hosts.read import URLS, is_ourselves, servers_in, value_at, value_of
from mcp_workbench.hosts.table import ENTRY, Host

Words = tuple[str, ...]

COMMAND = "mcp-workbench"
DISTRIBUTION = "mcp-workbench-gateway"
# Folders of temporary environments of `uvx` and `pipx run`.
_TEMPORARY = {"uv": ("archive-v0", "environments-v2", "builds-v0"), "pipx": (".cache", "cache")}
VARIABLE = "WORKBENCH_CONFIG"
_ENVIRONMENT = ("env", "environment", "envs")
_OFF = {"disabled": True, "enabled": False}  # installing us enables us
VERSION_TIMEOUT = 20.0  # seconds to print a version, on a busy machine
_RUNNERS = ("uvx", "uv", "pipx")  # they may download first, so they are not run
_VERSION = re.compile(r"^mcp-workbench (\S+)$", re.MULTILINE)


# The command


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
        return Launch(
            (str(python), "-P", "-m", "mcp_workbench")
        )  # -P: hosts start us in any folder
    stable = shutil.which(COMMAND)
    if stable and Path(stable).is_absolute() and same_file(stable, script):
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


# The entry to write


def own_entry(host: Host, words: Words, variables: Words = ()) -> dict[str, Any]:
    """Returns our entry for this host, with the variables that it must pass on: names, no values."""
    return _shaped(host, words) | passed_on(host, variables)


def _shaped(host: Host, words: Words) -> dict[str, Any]:
    plain = {"command": words[0], "args": list(words[1:])}
    match host.shape:
        case "claude":  # its tool search would hide our two tools behind a search of its own
            return {"type": "stdio", **plain, "alwaysLoad": True}
        case "typed":
            return {"type": "stdio", **plain}
        case "opencode":
            return {"type": "local", "command": list(words)}
        case "copilot":
            return {"type": "local", **plain, "tools": ["*"]}
        case "plain":
            return plain


def passed_on(host: Host, variables: Words) -> dict[str, Any]:
    """Returns the part of an entry that passes variables on; empty if the host passes all, or can't."""
    if not variables or host.passes in ("all", "none"):
        return {}
    if host.passes == "names":
        return {"env_vars": list(variables)}
    how = "${env:%s}" if host.passes == "env" else "${%s}"
    return {"env": {name: how % name for name in variables}}


def renewed(there: Any, entry: dict[str, Any]) -> dict[str, Any]:
    """Returns our entry merged into an older one of ours: what the user added is kept."""
    if not isinstance(there, dict):
        return entry
    old = cast("dict[str, Any]", there)
    words = words_of(old)
    if not words or not is_ourselves({"command": words[0], "args": words[1:]}):
        return entry
    kept = {key: value for key, value in old.items() if _OFF.get(key) is not value}
    for key in ("env", "env_vars"):
        entry = entry | _both(key, kept.get(key), entry.get(key))
    return kept | entry


def _both(key: str, old: Any, new: Any) -> dict[str, Any]:
    if isinstance(old, dict) and isinstance(new, dict):
        return {key: cast("dict[str, Any]", new) | cast("dict[str, Any]", old)}
    if isinstance(old, list) and isinstance(new, list):
        return {key: list(dict.fromkeys([*cast("list[Any]", old), *cast("list[Any]", new)]))}
    return {}


# The entry in a file


class OwnEntry(msgspec.Struct, frozen=True):
    """An entry under our name, or one that starts us under another."""

    file: HostFile
    keys: Keys
    words: Words
    env: dict[str, Any]
    names: tuple[str, ...]  # of variables that the host passes on as they are
    ours: bool  # False: another program under our name
    off: bool  # the host does not start it
    remote: bool  # it is a URL, and nothing that the host starts

    def __repr__(self) -> str:
        return f"OwnEntry({str(self.file.path)!r}, {self.keys!r})"  # its env may hold a secret

    @property
    def name(self) -> str:
        return self.keys[-1]

    @property
    def program(self) -> Words:
        """The words before `serve`: program and arguments that start us."""
        return self.words[: self.words.index("serve")] if "serve" in self.words else self.words[:1]

    @property
    def config(self) -> str:
        """The configuration that it names; empty if it depends on the host's working directory."""
        given = self.env.get(VARIABLE)
        return next(_values(self.words, "--config"), given if isinstance(given, str) else "")

    @property
    def toolboxes(self) -> tuple[str, ...]:
        return tuple(_values(self.words, "--toolbox"))

    def lacks(self, variables: tuple[str, ...]) -> tuple[str, ...]:
        """Returns those of these variables that this host does not pass on to us."""
        if self.file.host.passes == "all":
            return ()
        return tuple(name for name in variables if name not in {*self.env, *self.names})


def own_entries_in(file: HostFile, text: str, machine: Machine) -> list[OwnEntry]:
    """Returns every entry of this file that starts us or has our name."""
    value = value_of(text, file.host.format, str(file.path))
    return [
        _entry(file, server.keys, value_at(value, server.keys), ours=server.ourselves)
        for server in servers_in(file, text, machine)
        if server.ourselves or server.name == ENTRY
    ]


def place_of(entry: OwnEntry, text: str) -> str:
    """Returns `file:line:column` of the entry."""
    if entry.file.host.format == "toml":
        from mcp_workbench.hosts.edit_toml import line_of  # only where there is such a file

        line, column = line_of(text, entry.keys), 1
    else:
        line, column = jsonc.locate(text, entry.keys)
    return f"{entry.file.path}:{line}:{column}"


def _entry(file: HostFile, keys: Keys, raw: Any, *, ours: bool) -> OwnEntry:
    entry = cast("dict[str, Any]", raw) if isinstance(raw, dict) else {}
    env = next((entry[key] for key in _ENVIRONMENT if isinstance(entry.get(key), dict)), None)
    off = entry.get("disabled") is True or entry.get("enabled") is False
    words = words_of(entry)
    names = texts(entry.get("env_vars"))
    return OwnEntry(
        file,
        keys,
        words,
        cast("dict[str, Any]", env or {}),
        names,
        ours,
        off,
        remote=not words and any(key in entry for key in URLS),
    )


def _values(words: Words, option: str) -> Iterator[str]:
    for index, word in enumerate(words):
        if word == option and index + 1 < len(words):
            yield words[index + 1]
        elif word.startswith(f"{option}="):
            yield word.removeprefix(f"{option}=")


def words_of(entry: dict[str, Any]) -> Words:
    """Returns the command line of an entry, in any host's format."""
    return (*texts(entry.get("command")), *texts(entry.get("args")))


def texts(value: Any) -> Words:
    """Returns a string, or a list of them, as a tuple."""
    if isinstance(value, str):
        return (value,)
    return tuple(map(str, cast("list[Any]", value))) if isinstance(value, list) else ()


# Problems of an entry


# The program is missing; its configuration is missing; it leads elsewhere; it depends on the host's
# folder or PATH; variables do not arrive.
Kind = Literal["no_program", "no_config", "elsewhere", "unclear", "no_variables"]


class EntryProblem(msgspec.Struct, frozen=True):
    """One problem of an entry."""

    kind: Kind
    message: str


def entry_problems(entry: OwnEntry, config: str) -> Iterator[EntryProblem]:
    """Yields the problems of an entry, the worst first. `config` is the file in use, or empty."""
    if entry.remote:
        return
    if not entry.ours:
        yield EntryProblem(
            "elsewhere", f"'{entry.name}' is there, but it does not start this program"
        )
        return
    if entry.off:
        yield EntryProblem("elsewhere", f"'{entry.name}' is switched off there")
    yield from _of_program(entry)
    yield from _of_config(entry, config)


def _of_program(entry: OwnEntry) -> Iterator[EntryProblem]:
    command = entry.words[0]
    if "$" in command or "%" in command:  # only the host knows its value
        return
    if missing := _missing(entry.words):
        yield EntryProblem("no_program", f"'{entry.name}' starts {missing}, which is not there")
        return
    yield from _of_place(entry)
    if entry.program == launch().words or Path(command).stem in _RUNNERS:
        return
    if entry.file.scope == "project":  # it may be anybody's file: nothing that it names is started
        message = f"'{entry.name}' starts {command}, which is not how this program was started"
        yield EntryProblem("elsewhere", f"{message}; its version is not known")
        return
    version, reason = reported_version(entry.program)
    if reason:
        yield EntryProblem("no_program", f"'{entry.name}' starts {command}, which fails: {reason}")
    elif version != __version__:
        message = f"'{entry.name}' starts {command}, which has version {version}"
        yield EntryProblem("elsewhere", f"{message}; this one is {__version__}")


def _of_place(entry: OwnEntry) -> Iterator[EntryProblem]:
    """Problems of an entry that starts something else in another folder."""
    command = entry.words[0]
    if not Path(command).is_absolute():
        message = f"'{entry.name}' starts {command} without its folder"
        yield EntryProblem("unclear", f"{message}: from a desktop the host may not find it")
    if _loads_from_folder(entry.program):
        message = f"'{entry.name}' starts Python without -P"
        yield EntryProblem(
            "unclear", f"{message}: files of the folder that the host works in can be run instead"
        )


def _loads_from_folder(program: Words) -> bool:
    """Whether Python would look for our modules in the working folder first."""
    if "-m" not in program:
        return False
    options = program[1 : program.index("-m")]
    return not any(option in ("-P", "-I") for option in options)


def _missing(words: Words) -> str:
    """Returns the program or package path that does not exist; empty if all of them do."""
    command = words[0]
    if shutil.which(command) is None:
        return command
    for option, value in pairwise(words):  # a wheel, a clone
        if (
            option in ("--from", "--spec")
            and Path(value).is_absolute()
            and not Path(value).exists()
        ):
            return value
    return ""


@cache
def reported_version(program: Words) -> tuple[str, str]:
    """Returns the version that an installation prints, or the reason why there is none."""
    try:
        result = subprocess.run(  # noqa: S603 - what the host would start, without a shell
            [*program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=VERSION_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "", f"it did not tell its version within {VERSION_TIMEOUT:g} seconds"
    except (OSError, ValueError) as error:  # ValueError for a NUL byte in a word
        return "", getattr(error, "strerror", None) or str(error)
    match = _VERSION.search(result.stdout.decode(errors="replace"))
    if match:
        return match[1], ""
    lines = result.stderr.decode(errors="replace").strip().splitlines()
    return "", lines[-1] if lines else f"exit status {result.returncode}"


def _of_config(entry: OwnEntry, config: str) -> Iterator[EntryProblem]:
    named = entry.config
    if "$" in named or "%" in named:
        return
    if not named:
        message = (
            f"'{entry.name}' names no configuration: the folder that the host starts in decides"
        )
        yield EntryProblem("unclear", message)
    elif not Path(named).is_absolute():
        message = f"'{entry.name}' names {named}: the folder that the host starts in decides which"
        yield EntryProblem("unclear", message)
    elif not Path(named).is_file():
        yield EntryProblem(
            "no_config", f"'{entry.name}' names the configuration {named}, which is not there"
        )
    elif config and not same_file(named, config):
        yield EntryProblem("elsewhere", f"'{entry.name}' serves another configuration: {named}")


def same_file(left: str | Path, right: str | Path) -> bool:
    try:
        return Path(left).samefile(right)
    except OSError:  # one of them does not exist
        return False
