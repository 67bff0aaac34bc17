"""Checks of `doctor` in the files on this machine: our entry in every host, and the state folder.

Each check yields results with their fix, and changes nothing without `--fix`.
"""

from __future__ import annotations

import os
import re
import socket
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from mcp_workbench.config.state_home import BUNDLES, CREDENTIALS, SECRETS, VARIABLE
from mcp_workbench.config.user_file import user_config
from mcp_workbench.core.errors import ConfigError, Problem, WorkbenchError
from mcp_workbench.core.spec import SecretSources, Snapshot
from mcp_workbench.daemon import paths as daemon
from mcp_workbench.daemon.paths import socket_address
from mcp_workbench.hosts.files import Machine, all_files, read_file, shown
from mcp_workbench.hosts.journal import apply_changes, own_journal
from mcp_workbench.hosts.own_entry import (
    EntryProblem,
    Kind,
    OwnEntry,
    entry_problems,
    launch,
    own_entries_in,
    place_of,
    same_file,
)
from mcp_workbench.hosts.plan import (
    Installation,
    direct,
    entry_keys,
    own_entries,
    plan_install,
    variables_in,
)
from mcp_workbench.hosts.read import text_of
from mcp_workbench.upstream import cache as catalogues

State = Literal["good", "doubtful", "bad"]
HOSTS = "hosts"  # subjects of results
STATE_FOLDER = "state folder"
TWICE = "WB-HOST-513"
LEFT_OVER = 3600.0  # seconds; no write takes longer
PRIVATE = 0o700
_STATES: Mapping[Kind, State] = {
    "no_program": "bad",
    "no_config": "bad",
    "elsewhere": "doubtful",
    "unclear": "doubtful",
    "no_variables": "doubtful",
}
_CODES: Mapping[Kind, str] = {
    "no_program": "WB-HOST-510",
    "no_config": "WB-HOST-511",
    "elsewhere": "WB-HOST-512",
    "unclear": "WB-HOST-514",
    "no_variables": "WB-HOST-515",
}
# Problems with which an entry does not lead to our servers.
_NOT_OURS: frozenset[Kind] = frozenset({"no_program", "no_config", "elsewhere"})
_WHOLE = r"{kept}\.\d+-[0-9a-f]{{8}}\.tmp"  # `config/state_home.write_whole`
_HIDDEN = r"\.{kept}\.[0-9a-f]{{12}}"  # `hosts/bundle.unpack`, and the journal of older versions


class CheckResult(msgspec.Struct, frozen=True):
    """The result of one check. The JSON form is its fields."""

    state: State
    subject: str
    message: str
    fix: str = ""
    code: str = ""
    place: str = ""  # file:line:column, or the file alone; empty if it is about no file
    fixed: bool = False  # by --fix, just now


def problem_result(problem: Problem, file: str, subject: str) -> CheckResult:
    """Returns the result for an error or a warning about a file."""
    place = f"{file}:{problem.line}:{problem.column}" if problem.line else file
    path = f"{problem.path}: " if problem.path else ""
    state: State = "bad" if problem.severity == "error" else "doubtful"
    return CheckResult(state, subject, f"{path}{problem.message}", problem.fix, problem.code, place)


# Entries in hosts


class OwnConfig(msgspec.Struct, frozen=True):
    """The configuration in use, to compare entries with."""

    config: str = ""  # its file; empty if there is none
    toolboxes: tuple[str, ...] = ()
    usable: bool = False  # the file is valid, so that its servers are known
    secrets: SecretSources = ()

    def entries(self, toolboxes: tuple[str, ...]) -> dict[str, Any]:
        """Returns our server entries in these toolboxes, or in all of them if none is named."""
        chosen = [box for box in self.toolboxes if not toolboxes or box in toolboxes]
        return own_entries(self.config, chosen) if self.usable and self.config else {}


def own_config(snapshot: Snapshot) -> OwnConfig:
    config = str(Path(snapshot.origin).absolute()) if snapshot.origin else ""
    return OwnConfig(config, tuple(snapshot.toolboxes), usable=True, secrets=snapshot.secrets)


def hosted_configs(machine: Machine) -> dict[str, list[str]]:
    """Returns the configurations that hosts start us with, each with these hosts.

    Files of the current folder don't count: they may be anybody's, and servers are started.
    """
    hosted: dict[str, list[str]] = {}
    for file in all_files(machine):
        if file.host.format == "yaml" or file.scope == "project":
            continue
        try:
            entries = own_entries_in(file, text_of(file.path) or "", machine)
        except (ConfigError, OSError):  # `check_hosts` reports it
            continue
        for entry in entries:
            # Without a name, the folder that the host starts in decides: most have no configuration.
            config = entry.config or user_config(machine.environ)
            starts_us = entry.ours and not entry.off and not entry.remote
            if starts_us and Path(config).is_absolute() and Path(config).is_file():
                hosts = hosted.setdefault(os.path.realpath(config), [])
                hosts += [file.host.id] if file.host.id not in hosts else []
    return hosted


def check_hosts(ours: OwnConfig, machine: Machine, *, fix: bool) -> Iterator[CheckResult]:
    """Checks every host that has a file on this machine. Changes nothing without `fix`."""
    without: list[str] = []
    unread: list[str] = []
    present = False
    for file in all_files(machine):
        if file.host.format == "yaml":
            unread.append(file.host.id)
            continue
        try:
            text = text_of(file.path) or ""
            entries = own_entries_in(file, text, machine)
        except ConfigError as error:
            yield from (problem_result(p, error.file, file.host.id) for p in error.problems)
            continue
        except OSError as error:
            message = f"{shown(file.path, machine)} can't be read: {error.strerror}"
            yield CheckResult("doubtful", file.host.id, message, "check its permissions")
            continue
        present = present or bool(entries)
        if not entries and file.scope == "user" and not file.host.import_only:
            without.append(file.host.id)
        for entry in entries:
            yield from _of_entry(entry, text, ours, machine, fix=fix)
    yield from _of_others(without, ours, present=present)
    if unread:
        message = f"not checked, because their files are YAML: {', '.join(unread)}"
        yield CheckResult("good", HOSTS, message)


def _of_others(without: list[str], ours: OwnConfig, *, present: bool) -> Iterator[CheckResult]:
    """Reports hosts without our entry: a warning only if no host has one."""
    names = ", ".join(dict.fromkeys(without))
    if without and (present or not ours.config):
        yield CheckResult("good", HOSTS, f"without an entry of this program: {names}")
    elif without:
        message = f"none of the hosts on this machine has an entry of this program: {names}"
        yield CheckResult("doubtful", HOSTS, message, "mcp-workbench install HOST")


def _of_entry(
    entry: OwnEntry, text: str, ours: OwnConfig, machine: Machine, *, fix: bool
) -> Iterator[CheckResult]:
    problems = list(entry_problems(entry, ours.config))
    leads_here = not entry.remote and not any(problem.kind in _NOT_OURS for problem in problems)
    if leads_here:
        problems += _of_contents(entry, ours)
    if not problems:
        where = f"'{entry.name}' in {shown(entry.file.path, machine)}"
        yield CheckResult("good", entry.file.host.id, f"{where} {_working(entry, ours)}")
    undo = _repair(entry, problems, ours) if fix else ""
    for problem in problems:
        line = _entry_result(entry, problem, place_of(entry, text), ours)
        if undo and _is_repairable(problem):
            message = f"{line.message}; undo: {undo}"
            line = msgspec.structs.replace(line, state="good", message=message, fixed=True)
        yield line
    if leads_here:
        yield from _offered_twice(entry, ours, machine)


def _working(entry: OwnEntry, ours: OwnConfig) -> str:
    if entry.remote:
        return "leads to a port"
    return f"starts this program{', with this configuration' if ours.config else ''}"


def _of_contents(entry: OwnEntry, ours: OwnConfig) -> Iterator[EntryProblem]:
    """Yields what of our configuration this entry does not pass to us."""
    if not (ours.usable and ours.config):
        return
    gone = [box for box in entry.toolboxes if box not in ours.toolboxes]
    if gone:
        message = (
            f"'{entry.name}' names the toolbox '{gone[0]}', which the configuration does not have"
        )
        yield EntryProblem("no_config", message)
        return
    entries = ours.entries(entry.toolboxes)
    names = ", ".join(entry.lacks(variables_in(entries, needed=True, secrets=ours.secrets)))
    if names:
        message = (
            f"'{entry.name}' does not pass on what servers of this configuration need: {names}"
        )
        yield EntryProblem("no_variables", message)


def _offered_twice(entry: OwnEntry, ours: OwnConfig, machine: Machine) -> Iterator[CheckResult]:
    twins = direct(entry.file, ours.entries(entry.toolboxes), machine)
    if twins:
        names = ", ".join(keys[-1] for keys in twins)
        message = f"beside '{entry.name}' it has {names} directly, so those tools are offered twice"
        yield CheckResult(
            "doubtful", entry.file.host.id, message, _install(entry, "--replace"), TWICE
        )


def _entry_result(
    entry: OwnEntry, problem: EntryProblem, place: str, ours: OwnConfig
) -> CheckResult:
    kind = problem.kind
    fix = _entry_fix(entry, problem, ours)
    subject = entry.file.host.id
    return CheckResult(_STATES[kind], subject, problem.message, fix, _CODES[kind], place)


def _entry_fix(entry: OwnEntry, problem: EntryProblem, ours: OwnConfig) -> str:
    if not _standard(entry):
        return f"correct '{entry.name}' by hand, or remove it and run {_install(entry)}"
    if not ours.config:
        return f"mcp-workbench import makes a configuration; then {_install(entry)}"
    if problem.kind == "no_variables" and entry.file.host.passes == "none":
        return "write their values into the env of this entry: this host passes no variables on"
    if problem.kind == "elsewhere":
        return f"if that is not intended: {_install(entry)}"
    return _install(entry)


def _install(entry: OwnEntry, *options: str) -> str:
    scope = ("--scope", "project") if entry.file.scope == "project" else ()
    return " ".join(("mcp-workbench install", entry.file.host.id, *scope, *options))


def _standard(entry: OwnEntry) -> bool:
    """Is it where `install` would put it?"""
    return entry.keys == entry_keys(entry.file, read_file(entry.file.path))


def _is_repairable(problem: EntryProblem) -> bool:
    """Only what does not work at all: an entry that leads elsewhere may be intended."""
    return problem.kind in ("no_program", "no_config")


def _repair(entry: OwnEntry, problems: Iterable[EntryProblem], ours: OwnConfig) -> str:
    """Renews the entry; returns the command that undoes it, empty if nothing was done."""
    if not any(map(_is_repairable, problems)) or not _standard(entry):
        return ""
    there = Path(entry.config)
    theirs = there.is_absolute() and there.is_file()
    config = str(there) if theirs else ours.config
    variables: tuple[str, ...] = ()
    if not theirs or same_file(entry.config, ours.config):
        if not ours.usable or any(box not in ours.toolboxes for box in entry.toolboxes):
            return ""  # another toolbox may be intended
        variables = variables_in(ours.entries(entry.toolboxes), secrets=ours.secrets)
    if not config:
        return ""
    installation = Installation(launch().command(config, entry.toolboxes), variables, own=False)
    try:
        change = plan_install(entry.file, read_file(entry.file.path), installation, ())
        record = apply_changes(own_journal(os.environ), "doctor --fix", [change])
    except (WorkbenchError, OSError):
        return ""  # the problem is reported with its fix
    return f"mcp-workbench undo {record.id}"


# The state folder


def check_state(home: str, *, fix: bool) -> Iterator[CheckResult]:
    """Checks the state folder. Creates and changes nothing without `fix`."""
    if not home:
        message = (
            f"neither ${VARIABLE} nor $HOME is set: nothing is remembered, nothing can be undone"
        )
        yield CheckResult(
            "doubtful", STATE_FOLDER, message, f"set {VARIABLE} to a folder of your own"
        )
        return
    folder = Path(home)
    try:
        about = folder.stat()
    except FileNotFoundError:
        yield CheckResult("good", STATE_FOLDER, f"{folder} is not there yet; nothing is remembered")
        return
    except OSError as error:
        message = f"{folder} can't be read: {error.strerror}"
        yield CheckResult(
            "bad", STATE_FOLDER, message, f"check its permissions, or set {VARIABLE}", "WB-CLI-005"
        )
        return
    if not stat.S_ISDIR(about.st_mode):
        yield CheckResult(
            "bad", STATE_FOLDER, f"{folder} is no folder", f"move it away, or set {VARIABLE}"
        )
        return
    troubles = [*_rights(folder, about, fix=fix), *_left_over(folder, fix=fix)]
    yield from troubles or [CheckResult("good", STATE_FOLDER, str(folder))]


def _rights(folder: Path, about: os.stat_result, *, fix: bool) -> Iterator[CheckResult]:
    if os.name != "posix":
        return
    if about.st_uid != os.geteuid():
        message = f"{folder} belongs to another user"
        yield CheckResult("bad", STATE_FOLDER, message, f"set {VARIABLE} to a folder of your own")
        return
    if not os.access(folder, os.W_OK | os.X_OK):
        yield _repaired(
            CheckResult("bad", STATE_FOLDER, f"{folder} can't be written"), folder, about, fix=fix
        )
    elif about.st_mode & 0o077:
        message = f"other users can look into {folder}"
        yield _repaired(CheckResult("doubtful", STATE_FOLDER, message), folder, about, fix=fix)


def _repaired(line: CheckResult, folder: Path, about: os.stat_result, *, fix: bool) -> CheckResult:
    if why := _shared(folder, about):
        message = f"{line.message}, and {why}: its mode is left as it is"
        remedy = f"set {VARIABLE} to a folder for this program alone"
        return CheckResult(line.state, line.subject, message, remedy)
    remedy = f"chmod 700 {folder}"
    if not fix:
        return CheckResult(line.state, line.subject, line.message, remedy)
    try:
        folder.chmod(PRIVATE)
    except OSError:
        return CheckResult(line.state, line.subject, line.message, remedy)
    return CheckResult("good", line.subject, line.message, remedy, fixed=True)


def _shared(folder: Path, about: os.stat_result) -> str:
    """Returns why the folder may not be ours alone, so that we leave its mode; empty if it is."""
    real = os.path.realpath(folder)
    if real == os.path.dirname(real):  # noqa: PTH120
        return "it is the root of the file system"
    if real == os.path.realpath(os.path.expanduser("~")):  # noqa: PTH111 - it never raises
        return "it is your home folder"
    if about.st_mode & stat.S_ISVTX:
        return "it is meant for several users"
    try:
        other = foreign(folder)
    except OSError:
        return "what it holds can't be seen"
    return f"it holds {other}, which is not ours" if other else ""


def _left_over(folder: Path, *, fix: bool) -> Iterator[CheckResult]:
    for path, unfinished in own_files(folder):
        why = stale(path, unfinished=unfinished)
        if not why:
            continue
        message = f"{path} is left over: {why}"
        if fix:
            with suppress(OSError):
                path.unlink()
        gone = fix and not os.path.lexists(path)
        remedy = "mcp-workbench doctor --fix"
        yield CheckResult("good" if gone else "doubtful", STATE_FOLDER, message, remedy, fixed=gone)


def stale(path: Path, *, unfinished: bool = False) -> str:
    """Returns why this file of ours is no longer in use; empty if it may be."""
    try:
        about = path.lstat()
    except OSError:
        return ""
    if stat.S_ISSOCK(about.st_mode):
        return "" if _listens(path) else "nobody listens there"
    if not (unfinished and stat.S_ISREG(about.st_mode)):
        return ""
    old = time.time() - about.st_mtime > LEFT_OVER
    return "it was being written and never finished" if old else ""


def _listens(path: Path) -> bool:
    folder = -1
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1)
        try:
            address, folder = socket_address(str(path))
            probe.connect(address)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:  # busy, or not permitted
            return True
        finally:
            if folder >= 0:
                os.close(folder)
    return True


class Names(NamedTuple):
    """File names in one of our folders: finished files, and unfinished ones."""

    kept: re.Pattern[str]
    unfinished: re.Pattern[str]


def _names(kept: str, unfinished: str) -> Names:
    return Names(re.compile(kept), re.compile(unfinished.format(kept=f"(?:{kept})")))


FOLDERS = {
    catalogues.FOLDER: _names(rf"key|[0-9a-f]{{40}}{re.escape(catalogues.SUFFIX)}", _WHOLE),
    daemon.FOLDER: _names(r"[0-9a-f]{16}\.(?:sock|lock|log|log\.1)", "(?!)"),
    "journal": _names(r"\d{4,}\.json", f"{_WHOLE}|{_HIDDEN}"),
    "backups": _names(r"\d{4,}-\d+", f"{_WHOLE}|{_HIDDEN}"),
    BUNDLES: _names(r"[A-Za-z0-9_-]+-[0-9a-f]{16}", _HIDDEN),
    SECRETS: _names(r"store\.json|key|lock", _WHOLE),
    CREDENTIALS: _names(r"(?:client-)?[0-9a-f]{32}\.(?:json|lock)", _WHOLE),
}


class Item(NamedTuple):
    """A file of ours, by its folder and its name."""

    path: Path
    unfinished: bool


def own_files(folder: Path) -> Iterator[Item]:
    """Yields our files in order. Skips a folder that is a link or belongs to another user."""
    for subfolder, names in FOLDERS.items():
        if not _is_own(folder / subfolder):
            continue
        for path in _listed(folder / subfolder):
            if names.kept.fullmatch(path.name):
                yield Item(path, unfinished=False)
            elif names.unfinished.fullmatch(path.name):
                yield Item(path, unfinished=True)


def foreign(folder: Path) -> str:
    """Returns a name in the folder that is not ours, or an empty string. Raises OSError if it can't be listed."""
    for subfolder in sorted(folder.iterdir()):
        names = FOLDERS.get(subfolder.name)
        if names is None or not _is_own(subfolder):
            return subfolder.name
        for file in sorted(subfolder.iterdir()):
            if not (names.kept.fullmatch(file.name) or names.unfinished.fullmatch(file.name)):
                return str(file.relative_to(folder))
    return ""


def _is_own(subfolder: Path) -> bool:
    try:
        about = subfolder.lstat()
    except OSError:
        return False
    ours = os.name != "posix" or about.st_uid == os.geteuid()
    return stat.S_ISDIR(about.st_mode) and ours


def _listed(subfolder: Path) -> list[Path]:
    with suppress(OSError):  # it is gone, or not readable
        return sorted(subfolder.iterdir())
    return []
