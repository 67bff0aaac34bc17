"""Our entry as it stands in a host's file, and what is wrong with it."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from mcp_workbench import __version__
from mcp_workbench.config import jsonc
from mcp_workbench.hosts.files import HostFile, Machine
from mcp_workbench.hosts.launch import launch
from mcp_workbench.hosts.plan import Keys, Words, texts, words_of
from mcp_workbench.hosts.read import URLS, servers_in, value_at, value_of
from mcp_workbench.hosts.table import ENTRY

VARIABLE = "WORKBENCH_CONFIG"
_ENVIRONMENT = ("env", "environment", "envs")
# The program is missing; its configuration is missing; it leads elsewhere; it depends on the host's
# folder or PATH; variables do not arrive.
Kind = Literal["no_program", "no_config", "elsewhere", "unclear", "no_variables"]
VERSION_TIMEOUT = 20.0  # seconds to print a version, on a busy machine
_RUNNERS = ("uvx", "uv", "pipx")  # they may download first, so they are not run
_VERSION = re.compile(r"^mcp-workbench (\S+)$", re.MULTILINE)


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
    if not Path(command).is_absolute():
        message = f"'{entry.name}' starts {command} without its folder"
        yield EntryProblem("unclear", f"{message}: from a desktop the host may not find it")
    if entry.program == launch().words or Path(command).stem in _RUNNERS:
        return
    version, reason = reported_version(entry.program)
    if reason:
        yield EntryProblem("no_program", f"'{entry.name}' starts {command}, which fails: {reason}")
    elif version != __version__:
        message = f"'{entry.name}' starts {command}, which has version {version}"
        yield EntryProblem("elsewhere", f"{message}; this one is {__version__}")


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
        done = subprocess.run(  # noqa: S603 - what the host would start, without a shell
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
    match = _VERSION.search(done.stdout.decode(errors="replace"))
    if match:
        return match[1], ""
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return "", lines[-1] if lines else f"exit status {done.returncode}"


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


def same_file(left: str, right: str) -> bool:
    try:
        return Path(left).samefile(right)
    except OSError:  # one of them does not exist
        return False
