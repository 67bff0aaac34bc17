"""Planned changes, done: kept in the journal first, then one file after the other."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from mcp_workbench.hosts.contents import read_file
from mcp_workbench.hosts.journal import Journal, Record, Step, digest
from mcp_workbench.hosts.own_command import run_own, silent_failure
from mcp_workbench.hosts.plan import Change, Member, editor
from mcp_workbench.hosts.reading import decoded
from mcp_workbench.hosts.refusals import HostFault, changed_since
from mcp_workbench.hosts.undoing import undoing
from mcp_workbench.hosts.writing import remove_folders, replace_file


def apply(
    journal: Journal,
    command: str,
    changes: list[Change],
    starting: Callable[[Change], None] = lambda change: None,
) -> Record:
    """Do all of them. Should one fail, those before it stay, and the error says how to undo them.

    `starting` is told before each one: a host's own command takes its time.
    """
    record = journal.begin(command, changes)
    for index, change in enumerate(changes):
        step = record.steps[index]
        starting(change)
        try:
            done = _by_host(change, step) if change.own else _by_us(change, step)
        except (HostFault, OSError) as error:
            _stop(journal, record, index)
            raise _told(error, record.id if index else 0) from error
        steps = (*record.steps[:index], done, *record.steps[index + 1 :])
        record = msgspec.structs.replace(record, steps=steps)
        journal.save(record)
    return record


def _by_us(change: Change, step: Step) -> Step:
    replace_file(change.path, change.before, change.after, step.mode)
    return step


def _by_host(change: Change, step: Step) -> Step:
    if read_file(change.path) != change.before:
        raise changed_since(str(change.path))
    try:
        run_own(change.own)
        now = read_file(change.path)
        text = decoded(now or b"", str(change.path))
        lookup = editor(change.format).lookup
        if any(lookup(text, keys) is not None for keys in change.removed):
            raise silent_failure(change.own[0], str(change.path))
        added = tuple(Member(m.keys, lookup(text, m.keys)) for m in change.added)
        if any(member.value is None for member in added):
            raise silent_failure(change.own[0], str(change.path))
    except HostFault:
        _put_back(change, step)
        raise
    return msgspec.structs.replace(step, after=digest(now), added=added)


def _put_back(change: Change, step: Step) -> None:
    """A host's command that failed may have left half of its work."""
    now = read_file(change.path)
    if now != change.before:
        replace_file(change.path, now, change.before, step.mode)


def _stop(journal: Journal, record: Record, done: int) -> None:
    if done:
        journal.save(msgspec.structs.replace(record, steps=record.steps[:done]))
    else:
        journal.discard(record)


def _told(error: Exception, undo: int) -> Exception:
    if not undo or not isinstance(error, HostFault):
        return error
    hint = f"{error.hint}; mcp-workbench undo {undo} takes back what was done before it"
    return HostFault(error.code, error.message, hint=hint)


class Undone(msgspec.Struct, frozen=True):
    """What became of one file."""

    host: str
    file: str
    how: str
    left: tuple[str, ...] = ()


def undo(journal: Journal, record: Record) -> list[Undone]:
    """Take a record back, the last file first."""
    results: list[Undone] = []
    for step in reversed(record.steps):
        decision = undoing(step, journal.backup(step))
        if decision.now != decision.then:
            replace_file(Path(step.file), decision.now, decision.then, step.mode)
        if decision.then is None:
            remove_folders(step.folders)
        results.append(Undone(step.host, step.file, decision.how, decision.left))
    journal.save(msgspec.structs.replace(record, undone=True))
    return results
