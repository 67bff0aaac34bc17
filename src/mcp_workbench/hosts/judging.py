"""Whether our entry in a host still does what it should; tried out where looking is not enough."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Literal

import msgspec

from mcp_workbench import __version__
from mcp_workbench.hosts.launch import launch
from mcp_workbench.hosts.looking import OwnEntry
from mcp_workbench.hosts.plan import Words

# The program is not there; its configuration is not; it leads elsewhere; the host's folder or PATH
# decides; variables do not come through.
Kind = Literal["dead", "lost", "elsewhere", "vague", "unfed"]
PATIENCE = 20.0  # seconds to tell a version, on a busy machine
_RUNNERS = ("uvx", "uv", "pipx")  # they may download first, so they are not tried
_VERSION = re.compile(r"^mcp-workbench (\S+)$", re.MULTILINE)


class Complaint(msgspec.Struct, frozen=True):
    """One thing that is wrong with an entry."""

    kind: Kind
    message: str


def complaints(entry: OwnEntry, config: str) -> Iterator[Complaint]:
    """What is wrong, the worst first. `config` is the file that is used here; empty: there is none."""
    if entry.remote:
        return
    if not entry.ours:
        yield Complaint("elsewhere", f"'{entry.name}' is there, but it does not start this program")
        return
    if entry.off:
        yield Complaint("elsewhere", f"'{entry.name}' is switched off there")
    yield from _of_program(entry)
    yield from _of_config(entry, config)


def _of_program(entry: OwnEntry) -> Iterator[Complaint]:
    command = entry.words[0]
    if "$" in command or "%" in command:  # only the host knows its value
        return
    if lacking := _lacking(entry.words):
        yield Complaint("dead", f"'{entry.name}' starts {lacking}, which is not there")
        return
    if not Path(command).is_absolute():
        message = f"'{entry.name}' starts {command} without its folder"
        yield Complaint("vague", f"{message}: from a desktop the host may not find it")
    if entry.program == launch().words or Path(command).stem in _RUNNERS:
        return
    version, reason = told_version(entry.program)
    if reason:
        yield Complaint("dead", f"'{entry.name}' starts {command}, which fails: {reason}")
    elif version != __version__:
        message = f"'{entry.name}' starts {command}, which has version {version}"
        yield Complaint("elsewhere", f"{message}; this one is {__version__}")


def _lacking(words: Words) -> str:
    """What of these words should be on this machine and is not; empty where all is."""
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
def told_version(program: Words) -> tuple[str, str]:
    """What an installation says of its version, or else why it says nothing."""
    try:
        done = subprocess.run(  # noqa: S603 - what the host would start, and no shell in between
            [*program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "", f"it did not tell its version within {PATIENCE:g} seconds"
    except (OSError, ValueError) as error:  # the second where a word has a zero byte in it
        return "", getattr(error, "strerror", None) or str(error)
    found = _VERSION.search(done.stdout.decode(errors="replace"))
    if found:
        return found[1], ""
    said = done.stderr.decode(errors="replace").strip().splitlines()
    return "", said[-1] if said else f"exit status {done.returncode}"


def _of_config(entry: OwnEntry, config: str) -> Iterator[Complaint]:
    named = entry.config
    if "$" in named or "%" in named:
        return
    if not named:
        message = (
            f"'{entry.name}' names no configuration: the folder that the host starts in decides"
        )
        yield Complaint("vague", message)
    elif not Path(named).is_absolute():
        message = f"'{entry.name}' names {named}: the folder that the host starts in decides which"
        yield Complaint("vague", message)
    elif not Path(named).is_file():
        yield Complaint(
            "lost", f"'{entry.name}' names the configuration {named}, which is not there"
        )
    elif config and not same_file(named, config):
        yield Complaint("elsewhere", f"'{entry.name}' serves another configuration: {named}")


def same_file(one: str, other: str) -> bool:
    try:
        return Path(one).samefile(other)
    except OSError:  # one of them is not there
        return False
