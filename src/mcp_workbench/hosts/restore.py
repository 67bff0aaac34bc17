"""What `install --replace` removed from a host's file, to be put back by `uninstall`."""

import msgspec

from mcp_workbench.hosts.files import CannotEdit, HostFile, Keys, not_editable
from mcp_workbench.hosts.journal import Journal, Step
from mcp_workbench.hosts.plan import Change, Member, editor
from mcp_workbench.hosts.put_back import put_back
from mcp_workbench.hosts.read import decoded, value_at


class Removal(msgspec.Struct, frozen=True):
    """Entries that one change removed from a file, and that are not there now."""

    record: int
    old: str  # the text of the file before it
    missing: tuple[Keys, ...]
    replaced: tuple[Keys, ...]  # another entry has their name now

    def __repr__(self) -> str:
        return f"Removal({self.record}, {self.missing!r})"  # the text may hold a secret


def removals(journal: Journal, file: HostFile, before: bytes | None) -> list[Removal]:
    """Returns what `install --replace` removed from this file and nothing of ours has put back since."""
    by_record: dict[int, tuple[Step, list[Keys]]] = {}
    for keys, (record, step) in _removed(journal, str(file.path)).items():
        by_record.setdefault(record, (step, []))[1].append(keys)
    if not by_record:
        return []
    now = editor(file.host.format).lookup(decoded(before or b"", str(file.path)), ())
    every = [_removal(journal, n, removed, now) for n, removed in by_record.items()]
    return [removal for removal in every if removal.missing or removal.replaced]


def _removed(journal: Journal, file: str) -> dict[Keys, tuple[int, Step]]:
    """Returns the entries that are removed by what was not undone, each with its last change."""
    removed: dict[Keys, tuple[int, Step]] = {}
    steps = [(r, step) for r in journal.not_undone() for step in r.steps if step.file == file]
    for record, step in steps:
        for member in step.added:
            removed.pop(member.keys, None)
        if record.command == "install":
            removed |= dict.fromkeys(step.removed, (record.id, step))
    return removed


def _removal(
    journal: Journal, record: int, removed: tuple[Step, list[Keys]], now: object
) -> Removal:
    step, paths = removed
    old = decoded(journal.backup(step) or b"", step.file)
    then = editor(step.format).lookup(old, ())
    changed = [keys for keys in paths if value_at(now, keys) != value_at(then, keys)]
    missing = tuple(keys for keys in changed if value_at(now, keys) is None)
    replaced = tuple(keys for keys in changed if value_at(now, keys) is not None)
    return Removal(record, old, missing, replaced)


def with_removed(file: HostFile, change: Change, removed: list[Removal]) -> Change:
    """Returns the change of a file with all missing entries put back. It is edited for that."""
    text, format = decoded(change.after, str(file.path)), file.host.format
    members: list[Member] = []
    for removal in removed:
        if not removal.missing:
            continue
        try:
            text = put_back(text, removal.old, removal.missing, format)
        except CannotEdit as error:
            raise not_editable(str(file.path), error) from None
        then = editor(format).lookup(removal.old, ())
        members += [Member(keys, value_at(then, keys)) for keys in removal.missing]
    if not members:
        return change
    added = (*change.added, *members)
    return msgspec.structs.replace(change, after=text.encode(), added=added, own=())
