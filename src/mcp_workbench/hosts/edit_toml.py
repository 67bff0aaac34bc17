"""TOML files of others, changed by one table: every other byte stays, comments included."""

import re
import tomllib
from typing import Any, cast

import msgspec

from mcp_workbench.core.jsonc import BOM
from mcp_workbench.hosts.refusals import CannotEdit
from mcp_workbench.hosts.toml_scan import Keys, Statement, statements

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_BLANK_LINE = re.compile(r"(?:\A|(?<=\n))[ \t]*\r?\n\Z")


class NotToml(ValueError):
    """The text is not TOML; this is where, and why."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column


def parse(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text.removeprefix(BOM))
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
        message = re.sub(r" \(at .*\)$", "", str(error))
        # The reader quotes a character at most, so no secret is in its words.
        line, column = map(int, place.groups()) if place else (text.count("\n") + 1, 1)
        raise NotToml(message[:1].lower() + message[1:], line, column) from None


def lookup(text: str, keys: Keys) -> Any:
    """The value at this path, or None where there is nothing."""
    value: Any = parse(text)
    for key in keys:
        if not isinstance(value, dict) or key not in value:
            return None
        value = cast("dict[str, Any]", value)[key]
    return value


def put(text: str, keys: Keys, value: dict[str, Any]) -> str:
    """The text with this table at its end; one that was there is taken out first."""
    if lookup(text, keys) is not None:
        text = remove(text, keys)
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = [f"[{'.'.join(map(_name, keys))}]"]
    lines += [f"{_name(key)} = {_written(item)}" for key, item in value.items()]
    gap = "" if not text.lstrip(BOM) else newline if text.endswith("\n") else newline * 2
    whole = text + gap + newline.join(lines) + newline
    try:
        right = lookup(whole, keys) == value
    except NotToml:
        right = False
    if not right:
        message = f"{'.'.join(keys[:-1])} is written so that no table can be added to it"
        raise CannotEdit(message, *_place(text, statements(text), keys))
    return whole


def remove(text: str, keys: Keys) -> str:
    """The text without the table at this path and all that is below it."""
    if lookup(text, keys) is None:
        return text
    spans = [(s.start, s.end) for s in statements(text) if s.path[: len(keys)] == keys]
    left = text
    for start, end in reversed(_joined(text, spans)):
        left = left[:start] + left[end:]
    try:
        after = parse(left)
    except NotToml:
        after = None
    if after is None or _pruned(after) != _pruned(_without(parse(text), keys)):
        line, column = _place(text, statements(text), keys)
        raise CannotEdit(f"{'.'.join(keys)} is written inside of another value", line, column)
    return left


def _joined(text: str, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Neighbours as one span, and with each the blank line before it."""
    joined: list[tuple[int, int]] = []
    for start, end in spans:
        if joined and not _other(text[joined[-1][1] : start]):
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return [(_with_gap(text, start), end) for start, end in joined]


def _other(between: str) -> bool:
    """Is there anything but blank lines and comments? Those inside of a table belong to it."""
    return any(line.strip() and not line.lstrip().startswith("#") for line in between.splitlines())


def _with_gap(text: str, start: int) -> int:
    blank = _BLANK_LINE.search(text, 0, start)
    return blank.start() if blank else start


def _without(value: dict[str, Any], keys: Keys) -> dict[str, Any]:
    if len(keys) == 1:
        return {key: item for key, item in value.items() if key != keys[0]}
    return {
        key: _without(cast("dict[str, Any]", item), keys[1:])
        if key == keys[0] and isinstance(item, dict)
        else item
        for key, item in value.items()
    }


def _pruned(value: Any) -> Any:
    """Without empty tables: one that was only implied goes with what implied it."""
    if not isinstance(value, dict):
        return repr(value)  # nan is not equal to itself
    members = {key: _pruned(item) for key, item in cast("dict[str, Any]", value).items()}
    return {key: item for key, item in members.items() if item != {}}


def _place(text: str, found: list[Statement], keys: Keys) -> tuple[int, int]:
    for s in found:
        if keys[: len(s.path)] == s.path:
            return text.count("\n", 0, s.start) + 1, 1
    return 1, 1


def _name(key: str) -> str:
    return key if _BARE.fullmatch(key) else _string(key)


def _string(text: str) -> str:
    """A basic string; JSON's escapes are TOML's, but for the control character 127."""
    return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f")


def _written(value: Any) -> str:
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_written, cast('list[Any]', value)))}]"
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return "{ " + ", ".join(f"{_name(k)} = {_written(v)}" for k, v in items) + " }"
    return msgspec.json.encode(value).decode()
