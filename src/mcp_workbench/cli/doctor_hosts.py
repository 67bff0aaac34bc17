"""Checks our entry in every host on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from mcp_workbench.cli.doctor_checks import CheckResult, State, of_problem
from mcp_workbench.core.errors import ConfigError, WorkbenchError
from mcp_workbench.core.spec import Snapshot
from mcp_workbench.hosts.files import Machine, all_files, read_file, shown
from mcp_workbench.hosts.installed import (
    EntryProblem,
    Kind,
    OwnEntry,
    entry_problems,
    own_entries_in,
    place_of,
    same_file,
)
from mcp_workbench.hosts.journal import apply_changes, own_journal
from mcp_workbench.hosts.launch import launch
from mcp_workbench.hosts.merge import direct, own_entries, variables_in
from mcp_workbench.hosts.plan import Installation, entry_keys, plan_install
from mcp_workbench.hosts.read import text_of

SUBJECT = "hosts"
TWICE = "WB-HOST-513"
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


class OwnConfig(msgspec.Struct, frozen=True):
    """The configuration in use, to compare entries with."""

    config: str = ""  # its file; empty if there is none
    toolboxes: tuple[str, ...] = ()
    usable: bool = False  # the file is valid, so that its servers are known

    def entries(self, toolboxes: tuple[str, ...]) -> dict[str, Any]:
        """Returns our server entries in these toolboxes, or in all of them if none is named."""
        chosen = [box for box in self.toolboxes if not toolboxes or box in toolboxes]
        return own_entries(self.config, chosen) if self.usable and self.config else {}


def own_config(snapshot: Snapshot) -> OwnConfig:
    config = str(Path(snapshot.origin).absolute()) if snapshot.origin else ""
    return OwnConfig(config, tuple(snapshot.toolboxes), usable=True)


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
            yield from (of_problem(p, error.file, file.host.id) for p in error.problems)
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
        yield CheckResult("good", SUBJECT, message)


def _of_others(without: list[str], ours: OwnConfig, *, present: bool) -> Iterator[CheckResult]:
    """Reports hosts without our entry: a warning only if no host has one."""
    names = ", ".join(dict.fromkeys(without))
    if without and (present or not ours.config):
        yield CheckResult("good", SUBJECT, f"without an entry of this program: {names}")
    elif without:
        message = f"none of the hosts on this machine has an entry of this program: {names}"
        yield CheckResult("doubtful", SUBJECT, message, "mcp-workbench install HOST")


def _of_entry(
    entry: OwnEntry, text: str, ours: OwnConfig, machine: Machine, *, fix: bool
) -> Iterator[CheckResult]:
    problems = list(entry_problems(entry, ours.config))
    leads_here = not entry.remote and not any(problem.kind in _NOT_OURS for problem in problems)
    if leads_here:
        problems += _of_contents(entry, ours)
    if not problems:
        where = f"'{entry.name}' in {shown(entry.file.path, machine)}"
        yield CheckResult("good", entry.file.host.id, f"{where} {_well(entry, ours)}")
    undo = _repair(entry, problems, ours) if fix else ""
    for problem in problems:
        line = _line(entry, problem, place_of(entry, text), ours)
        if undo and _is_repairable(problem):
            message = f"{line.message}; undo: {undo}"
            line = msgspec.structs.replace(line, state="good", message=message, fixed=True)
        yield line
    if leads_here:
        yield from _offered_twice(entry, ours, machine)


def _well(entry: OwnEntry, ours: OwnConfig) -> str:
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
    names = ", ".join(entry.lacks(variables_in(ours.entries(entry.toolboxes), needed=True)))
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


def _line(entry: OwnEntry, problem: EntryProblem, place: str, ours: OwnConfig) -> CheckResult:
    kind = problem.kind
    fix = _remedy(entry, problem, ours)
    subject = entry.file.host.id
    return CheckResult(_STATES[kind], subject, problem.message, fix, _CODES[kind], place)


def _remedy(entry: OwnEntry, problem: EntryProblem, ours: OwnConfig) -> str:
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
        variables = variables_in(ours.entries(entry.toolboxes))
    if not config:
        return ""
    installation = Installation(launch().command(config, entry.toolboxes), variables, own=False)
    try:
        change = plan_install(entry.file, read_file(entry.file.path), installation, ())
        record = apply_changes(own_journal(os.environ), "doctor --fix", [change])
    except (WorkbenchError, OSError):
        return ""  # the problem is reported with its fix
    return f"mcp-workbench undo {record.id}"
