"""The hosts on this machine: whether our entry in each still does what it should."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from mcp_workbench.cli.doctor_checks import Line, State, of_problem
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
    "dead": "bad",
    "lost": "bad",
    "elsewhere": "doubtful",
    "vague": "doubtful",
    "unfed": "doubtful",
}
_CODES: Mapping[Kind, str] = {
    "dead": "WB-HOST-510",
    "lost": "WB-HOST-511",
    "elsewhere": "WB-HOST-512",
    "vague": "WB-HOST-514",
    "unfed": "WB-HOST-515",
}
_NOT_HERE: frozenset[Kind] = frozenset({"dead", "lost", "elsewhere"})  # our servers are not there


class Ours(msgspec.Struct, frozen=True):
    """What is used here, against which the entries are held."""

    config: str = ""  # its file; empty where there is none
    toolboxes: tuple[str, ...] = ()
    usable: bool = False  # the file can be read, so that its servers are known

    def entries(self, toolboxes: tuple[str, ...]) -> dict[str, Any]:
        """Our server entries in these toolboxes, in all of them where none is named."""
        chosen = [box for box in self.toolboxes if not toolboxes or box in toolboxes]
        return own_entries(self.config, chosen) if self.usable and self.config else {}


def ours_of(snapshot: Snapshot) -> Ours:
    config = str(Path(snapshot.origin).absolute()) if snapshot.origin else ""
    return Ours(config, tuple(snapshot.toolboxes), usable=True)


def look_at_hosts(ours: Ours, machine: Machine, *, fix: bool) -> Iterator[Line]:
    """Every host that has a file here. Nothing is changed, unless `fix` says so."""
    without: list[str] = []
    unread: list[str] = []
    present = False
    for file in all_files(machine):
        if file.host.format == "yaml":
            unread.append(file.host.id)
            continue
        try:
            text = text_of(file.path) or ""
            found = own_entries_in(file, text, machine)
        except ConfigError as error:
            yield from (of_problem(p, error.file, file.host.id) for p in error.problems)
            continue
        except OSError as error:
            told = f"{shown(file.path, machine)} can't be read: {error.strerror}"
            yield Line("doubtful", file.host.id, told, "see to its permissions")
            continue
        present = present or bool(found)
        if not found and file.scope == "user" and not file.host.import_only:
            without.append(file.host.id)
        for entry in found:
            yield from _of_entry(entry, text, ours, machine, fix=fix)
    yield from _of_others(without, ours, present=present)
    if unread:
        told = f"not looked at, because their files are YAML: {', '.join(unread)}"
        yield Line("good", SUBJECT, told)


def _of_others(without: list[str], ours: Ours, *, present: bool) -> Iterator[Line]:
    """Hosts that do not know us: their person's choice, unless that is true of all of them."""
    names = ", ".join(dict.fromkeys(without))
    if without and (present or not ours.config):
        yield Line("good", SUBJECT, f"without an entry of this program: {names}")
    elif without:
        told = f"none of the hosts on this machine has an entry of this program: {names}"
        yield Line("doubtful", SUBJECT, told, "mcp-workbench install HOST")


def _of_entry(
    entry: OwnEntry, text: str, ours: Ours, machine: Machine, *, fix: bool
) -> Iterator[Line]:
    found = list(entry_problems(entry, ours.config))
    here = not entry.remote and not any(c.kind in _NOT_HERE for c in found)
    if here:
        found += _of_contents(entry, ours)
    if not found:
        where = f"'{entry.name}' in {shown(entry.file.path, machine)}"
        yield Line("good", entry.file.host.id, f"{where} {_well(entry, ours)}")
    mended = _mended(entry, found, ours) if fix else ""
    for complaint in found:
        line = _line(entry, complaint, place_of(entry, text), ours)
        if mended and _can_be_mended(complaint):
            told = f"{line.message}; undo: {mended}"
            line = msgspec.structs.replace(line, state="good", message=told, fixed=True)
        yield line
    if here:
        yield from _offered_twice(entry, ours, machine)


def _well(entry: OwnEntry, ours: Ours) -> str:
    if entry.remote:
        return "leads to a port"
    return f"starts this program{', with this configuration' if ours.config else ''}"


def _of_contents(entry: OwnEntry, ours: Ours) -> Iterator[EntryProblem]:
    """What of our configuration does not get through to this host."""
    if not (ours.usable and ours.config):
        return
    gone = [box for box in entry.toolboxes if box not in ours.toolboxes]
    if gone:
        told = (
            f"'{entry.name}' names the toolbox '{gone[0]}', which the configuration does not have"
        )
        yield EntryProblem("lost", told)
        return
    names = ", ".join(entry.lacks(variables_in(ours.entries(entry.toolboxes), needed=True)))
    if names:
        told = f"'{entry.name}' does not hand on what servers of this configuration need: {names}"
        yield EntryProblem("unfed", told)


def _offered_twice(entry: OwnEntry, ours: Ours, machine: Machine) -> Iterator[Line]:
    twins = direct(entry.file, ours.entries(entry.toolboxes), machine)
    if twins:
        names = ", ".join(keys[-1] for keys in twins)
        told = f"beside '{entry.name}' it has {names} directly, so those tools are offered twice"
        yield Line("doubtful", entry.file.host.id, told, _install(entry, "--replace"), TWICE)


def _line(entry: OwnEntry, complaint: EntryProblem, place: str, ours: Ours) -> Line:
    kind = complaint.kind
    fix = _remedy(entry, complaint, ours)
    subject = entry.file.host.id
    return Line(_STATES[kind], subject, complaint.message, fix, _CODES[kind], place)


def _remedy(entry: OwnEntry, complaint: EntryProblem, ours: Ours) -> str:
    if not _standard(entry):
        return f"correct '{entry.name}' by hand, or remove it and run {_install(entry)}"
    if not ours.config:
        return f"mcp-workbench import makes a configuration; then {_install(entry)}"
    if complaint.kind == "unfed" and entry.file.host.passes == "none":
        return "write their values into the env of this entry: this host hands on no variables"
    if complaint.kind == "elsewhere":
        return f"if that is not meant: {_install(entry)}"
    return _install(entry)


def _install(entry: OwnEntry, *options: str) -> str:
    scope = ("--scope", "project") if entry.file.scope == "project" else ()
    return " ".join(("mcp-workbench install", entry.file.host.id, *scope, *options))


def _standard(entry: OwnEntry) -> bool:
    """Does it stand where `install` would put it?"""
    return entry.keys == entry_keys(entry.file, read_file(entry.file.path))


def _can_be_mended(complaint: EntryProblem) -> bool:
    """Only what does not work at all: an entry that leads elsewhere may be meant to."""
    return complaint.kind in ("dead", "lost")


def _mended(entry: OwnEntry, found: Iterable[EntryProblem], ours: Ours) -> str:
    """The command that undoes what was mended; empty where nothing was."""
    if not any(map(_can_be_mended, found)) or not _standard(entry):
        return ""
    there = Path(entry.config)
    theirs = there.is_absolute() and there.is_file()
    config = str(there) if theirs else ours.config
    variables: tuple[str, ...] = ()
    if not theirs or same_file(entry.config, ours.config):
        if not ours.usable or any(box not in ours.toolboxes for box in entry.toolboxes):
            return ""  # who named a toolbox that is not there may mean another one
        variables = variables_in(ours.entries(entry.toolboxes))
    if not config:
        return ""
    wish = Installation(launch().command(config, entry.toolboxes), variables, own=False)
    try:
        change = plan_install(entry.file, read_file(entry.file.path), wish, ())
        record = apply_changes(own_journal(os.environ), "doctor --fix", [change])
    except (WorkbenchError, OSError):
        return ""  # the line stays as bad as it is, with its remedy
    return f"mcp-workbench undo {record.id}"
