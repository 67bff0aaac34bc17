"""What `lock diff` shows: the old and the new text of each definition, field by field.

Texts are of servers that nobody has approved: everything that can't be seen is spelled out, and nothing
can move the cursor.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import msgspec

from mcp_workbench.core.catalogue import read_object
from mcp_workbench.core.definition_warnings import STEPS, definition_warnings
from mcp_workbench.core.hidden_text import spelled_out
from mcp_workbench.core.lock_changes import Difference
from mcp_workbench.core.lock_states import SINGULAR
from mcp_workbench.core.raw_json import Steps, TooComplex

SHORT = 16  # hexadecimal digits of a hash that are shown; as many are enough to approve it
MOST_FIELDS = 20_000  # of a definition; a larger one is shown as it is
PATHS = 16  # characters of all paths, for each byte of a definition; one with more is shown as it is, too
SHORT_PATHS = 256 << 10  # of a short one
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def short_hash(text: str) -> str:
    return text.removeprefix("sha256:")[:SHORT]


def is_meant(text: str, full: str) -> bool:
    """Does this text of a person name this hash?"""
    digits = text.strip().lower().removeprefix("sha256:")
    return len(digits) >= SHORT and full.removeprefix("sha256:").startswith(digits)


def named(one: Difference) -> str:
    """Returns `tool 'add'`, `instructions`, `launch line`."""
    return f"{SINGULAR[one.kind]} '{escaped(one.name)}'" if one.name else SINGULAR[one.kind]


def escaped(text: str) -> str:
    """Returns a text in one line, with everything that can't be seen spelled out."""
    for sign, instead in _ESCAPES.items():
        text = text.replace(sign, instead)
    return spelled_out(text)


def text_diff(old: bytes | None, new: bytes) -> list[str]:
    """Returns the lines of a comparison: `- field: old`, `+ field: new`. Without an old text, all fields."""
    after = _fields(new)
    if old is None:
        return [f"+ {field}: {text}" for field, text in after.items()]
    before = _fields(old)
    lines: list[str] = []
    for field in dict.fromkeys((*before, *after)):
        if before.get(field) == after.get(field):
            continue
        if field in before:
            lines.append(f"- {field}: {before[field]}")
        if field in after:
            lines.append(f"+ {field}: {after[field]}")
    if lines:
        return lines
    # A number in another spelling, or a member that occurs twice.
    return [
        f"- {escaped(old.decode(errors='replace'))}",
        f"+ {escaped(new.decode(errors='replace'))}",
    ]


def text_warnings(raw: bytes) -> list[str]:
    """Returns the warnings about concealed text and suspicious phrases in a definition."""
    try:
        value = _value(raw)
    except (msgspec.DecodeError, RecursionError):
        return ["it can't be read whole"]
    levels = {"concealed": "concealed text", "phrase": "suspicious phrase"}
    return [
        f"{levels[w.level]} ({w.kind}){f' in {w.field}' if w.field else ''}: {w.excerpt}".rstrip(
            ": "
        )
        for w in definition_warnings(value, Steps(STEPS))
    ]


def _value(raw: bytes) -> Any:
    return read_object(raw) if raw.lstrip().startswith(b"{") else msgspec.json.decode(raw)


def _fields(raw: bytes) -> dict[str, str]:
    """Returns every value of a definition by its path, in its order; one field if there are too many."""
    fields: dict[str, str] = {}
    steps = Steps(PATHS * len(raw) + SHORT_PATHS)
    try:
        for path, text in _leaves(_value(raw), "", steps):
            fields[path or "text"] = text
            if len(fields) > MOST_FIELDS:
                break
        else:
            return fields
    except (msgspec.DecodeError, RecursionError, TooComplex):
        pass
    return {"definition": escaped(raw.decode(errors="replace"))}


def _leaves(value: Any, path: str, steps: Steps) -> Iterator[tuple[str, str]]:
    """Yields values with their paths. Of deep and wide texts those would be the square: TooComplex."""
    waiting = [iter([(path, value)])]
    while waiting:
        found = next(waiting[-1], None)
        if found is None:
            waiting.pop()
            continue
        path, item = found
        steps.take(len(path))
        if isinstance(item, dict) and item:
            waiting.append(_members(path, cast("dict[str, Any]", item)))
        elif isinstance(item, list) and item:
            waiting.append(_items(path, cast("list[Any]", item)))
        else:
            shown = f'"{escaped(item)}"' if isinstance(item, str) else repr(cast("object", item))
            yield path, shown


def _members(path: str, members: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in members.items():
        yield f"{path}.{escaped(name)}" if path else escaped(name), value


def _items(path: str, items: list[Any]) -> Iterator[tuple[str, Any]]:
    for number, value in enumerate(items):
        yield f"{path}[{number}]", value
