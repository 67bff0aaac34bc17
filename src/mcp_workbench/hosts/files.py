"""The files of hosts: where they are on this machine, and how they are read and replaced."""

import os
import re
import secrets
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Literal

import msgspec

from mcp_workbench.config.file_access import (
    PIPE_WAIT,
    NotPlain,
    TooLarge,
    TooSlow,
    exclusive,
    read_plain,
)
from mcp_workbench.config.state_home import write_new
from mcp_workbench.core.errors import ConfigError, InvalidCall, Problem, WorkbenchError
from mcp_workbench.hosts.table import HOSTS, Host

Scope = Literal["user", "project"]
Keys = tuple[str, ...]  # the path of a value in a file

_VARIABLE = re.compile(r"\{(\w+):([^{}]*)\}")
MOST_BYTES = 64 << 20  # Claude Code keeps its history beside its servers
_FOLDER = 0o755  # at most, of a new one: a configuration is refused where others can write
_RIGHTS = 0o777  # without those that let others act as the owner
_CORRECT = "correct the text there, or let the host write the file anew; nothing was changed"
_BY_HAND = "make the change by hand, or rewrite that place in the usual form"


class Machine(msgspec.Struct, frozen=True):
    """What the location of a host's file depends on."""

    home: Path
    folder: Path
    environ: Mapping[str, str]
    system: str = sys.platform


class HostFile(msgspec.Struct, frozen=True):
    """One file of one host."""

    host: Host
    path: Path
    scope: Scope


def this_machine() -> Machine:
    return Machine(Path.home(), Path.cwd(), os.environ)


def files_of(host: Host, machine: Machine) -> Iterator[HostFile]:
    """Yields every file of this host that exists."""
    seen: set[Path] = set()
    for scope in ("user", "project"):
        for path in candidates(host, scope, machine):
            if path.is_file() and path not in seen:
                seen.add(path)
                yield HostFile(host, path, scope)


def all_files(machine: Machine) -> list[HostFile]:
    return [file for host in HOSTS.values() for file in files_of(host, machine)]


def file_to_change(host: Host, scope: Scope, machine: Machine) -> HostFile | None:
    """Returns the file that an entry goes into, existing or not; None if the host has no such file."""
    paths = list(candidates(host, scope, machine))
    if not paths:
        return None
    existing = (path for path in paths if path.is_file())
    return HostFile(host, next(existing, paths[-1]), scope)


def candidates(host: Host, scope: Scope, machine: Machine) -> Iterator[Path]:
    if scope == "project":
        yield from (machine.folder / place for place in host.project)
        return
    for place in host.user_files(machine.system):
        path = _resolved(place, machine)
        if "*" in path.name or "*" in str(path):
            anchor = Path(path.anchor)
            yield from sorted(anchor.glob(str(path.relative_to(anchor))))
        else:
            yield path


def _resolved(place: str, machine: Machine) -> Path:
    filled = _VARIABLE.sub(lambda match: machine.environ.get(match[1]) or match[2], place)
    if filled.startswith("~"):
        return machine.home / filled[1:].lstrip("/")
    return Path(filled)


def shown(path: Path, machine: Machine) -> str:
    """Returns the path relative to the working directory, else to the home folder."""
    for base, prefix in ((machine.folder, ""), (machine.home, "~/")):
        try:
            return f"{prefix}{path.relative_to(base).as_posix()}"
        except ValueError:
            continue
    return str(path)


def read_file(path: Path, *, pipes: bool = False) -> bytes | None:
    """Returns the bytes of a plain file, None if there is none. A pipe is read only if the user named it."""
    try:
        return read_plain(path, MOST_BYTES, pipes=pipes)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except IsADirectoryError:
        raise is_folder(str(path)) from None
    except NotPlain:
        fix = "put a plain file there, or remove what is there; nothing was changed"
        raise unreadable(str(path), "this is no plain file", fix=fix) from None
    except TooSlow:
        fix = "start what writes to it, or name a plain file"
        message = f"nobody has written a whole file to this pipe for {PIPE_WAIT:g} s"
        raise unreadable(str(path), message, fix=fix) from None
    except TooLarge:
        message = f"the file is larger than {MOST_BYTES >> 20} MiB"
        raise unreadable(str(path), message) from None


def created_folders(path: Path) -> list[Path]:
    """Returns the missing folders above a file, innermost first."""
    missing: list[Path] = []
    for folder in path.parents:
        if folder.exists():
            break
        missing.append(folder)
    return missing


def make_folders(path: Path) -> None:
    """Makes the missing folders above a file: as open as the one they are in, but others can't write."""
    for folder in reversed(created_folders(path)):
        mode = stat.S_IMODE(folder.parent.stat().st_mode) & _FOLDER
        folder.mkdir(mode | stat.S_IRWXU, exist_ok=True)


def replace_file(path: Path, before: bytes | None, after: bytes | None, mode: int) -> None:
    """Replaces a file atomically if its bytes are still `before`. None means no file. Follows a link."""
    target = Path(os.path.realpath(path))
    if read_file(target) != before:
        raise changed_since(str(path))
    if after is not None:
        make_folders(target)
    with ExitStack() as lock:
        with suppress(OSError):  # no folder, no locks there, or a process that was stopped with it
            lock.enter_context(exclusive(str(target.parent)))
        _replace(target, before, after, mode)


def _replace(target: Path, before: bytes | None, after: bytes | None, mode: int) -> None:
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}")
    try:
        if after is not None:
            write_new(str(temporary), after, mode=mode & _RIGHTS, durable=True)
        # No other process of ours writes it now; this narrows the race with those of others.
        if read_file(target) != before:
            raise changed_since(str(target))
        if after is None:
            target.unlink(missing_ok=True)
        else:
            temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def remove_folders(folders: tuple[str, ...]) -> None:
    """Removes folders that were created for a file, unless they hold something else now."""
    for folder in folders:
        with suppress(OSError):
            Path(folder).rmdir()


class CannotEdit(ValueError):
    """The text is valid, but this edit is not possible in it; with place and reason."""

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column


class HostFault(WorkbenchError):
    """A host or its file prevents what was asked for."""

    def __init__(self, code: str, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.code = code


class HostUsage(InvalidCall):
    """The command line asks for something that this host does not support."""

    def __init__(self, code: str, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.code = code


def unreadable(
    file: str, message: str, line: int = 0, column: int = 0, *, fix: str = _CORRECT
) -> ConfigError:
    """Returns the error for a file that its host could not read either."""
    return ConfigError(file, (Problem("", message, fix, "WB-HOST-501", line, column),))


def is_folder(file: str) -> ConfigError:
    """Returns the error for a folder in place of a file."""
    fix = "name a file, or move the folder out of the way; nothing was changed"
    return unreadable(file, "this is a folder", fix=fix)


def not_editable(file: str, error: CannotEdit, *, fix: str = _BY_HAND) -> ConfigError:
    problem = Problem("", error.message, fix, "WB-HOST-505", error.line, error.column)
    return ConfigError(file, (problem,))


def changed_since(file: str) -> HostFault:
    return HostFault(
        "file_changed",
        f"{file} has changed since it was previewed; it was left alone",
        hint="run the command again and look at the new preview",
    )
