"""How a step of the journal is taken back: exactly, or with care where others have been since."""

from pathlib import Path
from types import ModuleType

import msgspec

from mcp_workbench.hosts.contents import read_file
from mcp_workbench.hosts.journal import Step, digest
from mcp_workbench.hosts.plan import editor
from mcp_workbench.hosts.reading import decoded, value_of
from mcp_workbench.hosts.refusals import CannotEdit, not_editable


class Undoing(msgspec.Struct, frozen=True):
    """What to do: `exactly`, by `editing` what has changed since, or `not at all`."""

    how: str
    now: bytes | None
    then: bytes | None
    left: tuple[str, ...] = ()  # members that somebody has changed since, and that stay


def undoing(step: Step, backup: bytes | None) -> Undoing:
    """The decision for one step; a file that was changed since loses our members only."""
    now = read_file(Path(step.file))
    if digest(now) == step.before or now is None:
        return Undoing("not at all", now, now)
    if digest(now) == step.after:
        return Undoing("exactly", now, backup)
    text = decoded(now, step.file)
    value_of(text, step.format, step.file)
    before = decoded(backup or b"", step.file)
    tool = editor(step.format)
    try:
        text, left = _without_ours(tool, step, text, before)
        text = _with_theirs(tool, step, text, before)
    except CannotEdit as error:
        raise not_editable(step.file, error) from None
    return Undoing("editing", now, text.encode(), left)


def _without_ours(
    tool: ModuleType, step: Step, text: str, before: str
) -> tuple[str, tuple[str, ...]]:
    left: list[str] = []
    for member in step.added:
        found, old = tool.lookup(text, member.keys), tool.lookup(before, member.keys)
        if found is None:
            continue
        if found != member.value:
            left.append(".".join(member.keys))
        elif old is None:
            text = tool.remove(text, member.keys)
        else:
            text = tool.put(text, member.keys, old)
    return text, tuple(left)


def _with_theirs(tool: ModuleType, step: Step, text: str, before: str) -> str:
    for keys in step.removed:
        old = tool.lookup(before, keys)
        if old is not None and tool.lookup(text, keys) is None:
            text = tool.put(text, keys, old)
    return text
