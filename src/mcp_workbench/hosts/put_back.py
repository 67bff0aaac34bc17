"""Puts members back into a text from which they were removed, and which may have changed since.

Where the lines around a member are still the same, it returns to its place, with its comments: the change
from the old text without it to the old text is applied to the new one. Otherwise it goes to the end of its
object as it was written, or, in TOML, as a new table. No other value changes: a result in which one does
is not used.
"""

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any, TypeGuard, cast

import msgspec

from mcp_workbench.config import jsonc
from mcp_workbench.hosts.edit_json import Source, put_all
from mcp_workbench.hosts.files import Keys
from mcp_workbench.hosts.plan import Member, edited, editor
from mcp_workbench.hosts.read import value_at
from mcp_workbench.transport.json_text import read_json

Lines = list[str]

FEW = 50  # members that are tried one by one, each with a new look at the text


def put_back(text: str, old: str, keys: Sequence[Keys], format: str) -> str:
    """Returns the text with these members as they are in the old text. They must be there, and not here.

    Raises CannotEdit if there is no place for one of them.
    """
    tool = editor(format)
    then = tool.lookup(old, ())
    plain = edited(text, format, [Member(path, value_at(then, path)) for path in keys])
    goal = _Goal(format, tool.lookup(plain, ()), strict=_is_strict(text) and _is_strict(old))
    if goal.reached_by(result := _to_their_places(text, old, keys, format)):
        return result
    if 1 < len(keys) <= FEW:
        for path in keys:
            text = put_back(text, old, (path,), format)
        return text
    if goal.reached_by(result := _as_written(text, old, keys, format)):
        return result
    return plain


def _to_their_places(text: str, old: str, keys: Sequence[Keys], format: str) -> str | None:
    tool = editor(format)
    then, now = tool.lookup(old, ()), tool.lookup(text, ())
    gone = {
        (*holder, name)
        for holder in {path[:-1] for path in keys}
        for name in {*_members(then, holder)} - {*_members(now, holder)}
    }
    old = tool.remove_all(old, gone - set(keys))  # or they would stand between
    return merge_lines(tool.remove_all(old, keys), old, text)


def _members(value: Any, holder: Keys) -> dict[str, Any]:
    members = value_at(value, holder)
    return cast("dict[str, Any]", members) if isinstance(members, dict) else {}


def _as_written(text: str, old: str, keys: Sequence[Keys], format: str) -> str | None:
    value = editor(format).lookup(text, ())
    if format == "toml" or not all(isinstance(value_at(value, path[:-1]), dict) for path in keys):
        return None
    root = jsonc.read(old)
    sources = ((path, Source.of(old, jsonc.find(root, path).node)) for path in keys)
    return put_all(text, sources)


class _Goal(msgspec.Struct, frozen=True):
    """What a text with everything put back must mean."""

    format: str
    value: Any
    strict: (
        bool  # no comments and no trailing commas: there were none, so its host may not read them
    )

    def reached_by(self, text: str | None) -> TypeGuard[str]:
        if text is None:
            return False
        try:
            value = editor(self.format).lookup(text, ())
        except ValueError:  # of either format
            return False
        return value == self.value and (_is_strict(text) or not self.strict)


def _is_strict(text: str) -> bool:
    """Is this JSON without comments and trailing commas?"""
    try:
        read_json(text)
    except (ValueError, RecursionError):
        return False
    return True


def merge_lines(base: str, changed: str, text: str) -> str | None:
    """Returns the text with the change from `base` to `changed`; None if it differs from `base` there."""
    old, new, lines = (whole.splitlines(keepends=True) for whole in (base, changed, text))
    places = _places(old, lines)
    merged: Lines = []
    done = 0
    for first, last, start, end in _changes(old, new):
        place = _place(places, first, last, len(lines))
        if place is None or place[0] < done:
            return None
        merged += lines[done : place[0]] + new[start:end]
        done = place[1]
    return "".join(merged + lines[done:])


def _place(places: dict[int, int], first: int, last: int, count: int) -> tuple[int, int] | None:
    """Returns where the lines from `first` to `last` of the base are now; None if they are not."""
    if first < last:
        now = [places.get(line, -1) for line in range(first, last)]
        whole = now[0] >= 0 and now == list(range(now[0], now[0] + len(now)))
        return (now[0], now[-1] + 1) if whole else None
    if first - 1 in places:
        return places[first - 1] + 1, places[first - 1] + 1
    if first in places:
        return places[first], places[first]
    return None if count else (0, 0)


def _places(old: Lines, new: Lines) -> dict[int, int]:
    """Returns where each line is that is still the same."""
    places: dict[int, int] = {}
    done = there = 0
    for first, last, start, end in [*_changes(old, new), (len(old), len(old), len(new), len(new))]:
        places |= zip(range(done, first), range(there, start), strict=True)
        done, there = last, end
    return places


def _changes(old: Lines, new: Lines) -> list[tuple[int, int, int, int]]:
    """Returns the changed ranges in both; equal beginnings and ends are skipped first, for speed."""
    shorter = min(len(old), len(new))
    head = next((i for i in range(shorter) if old[i] != new[i]), shorter)
    tail = next((i for i in range(shorter - head) if old[-1 - i] != new[-1 - i]), shorter - head)
    matcher = SequenceMatcher(None, old[head : len(old) - tail], new[head : len(new) - tail])
    return [
        (head + first, head + last, head + start, head + end)
        for kind, first, last, start, end in matcher.get_opcodes()
        if kind != "equal"
    ]
