"""Edits JSON: one member is added, replaced or removed, and every other byte stays, comments included."""

import re
from collections.abc import Iterable
from itertools import groupby
from typing import Any, cast

import msgspec

from mcp_workbench.config import jsonc
from mcp_workbench.config.jsonc import Child, Node
from mcp_workbench.hosts.files import CannotEdit, Keys
from mcp_workbench.hosts.read import parse_json, value_at

_SPACE = " \t\r\n"
_TO_LINE_END = re.compile(r"[ \t]*(?=\r?\n)")
_TO_CLOSING = re.compile(r"[ \t]*(?=[}\]])")
_BLANKS = re.compile(r"[ \t]*")
_INDENT = re.compile(r"[ \t]*")
UNIT = "  "  # one level, if the file has no indentation


def lookup(text: str, keys: Keys) -> Any:
    """Returns the value at this path, or None."""
    return value_at(parse_json(text), keys)


def put(text: str, keys: Keys, value: Any) -> str:
    """Returns the text with this value at this path: in place of the old one, else as the last member."""
    if not text.lstrip(jsonc.BOM).strip():
        return f"{text[: text.startswith(jsonc.BOM)]}{_whole(keys, value)}\n"
    root = jsonc.read(text)
    child, depth = _deepest(root, keys)
    style = _Style(text, root)
    if depth == len(keys):
        indent = style.indent_at(child.start)
        new = style.written(value, indent, inline=style.on_one_line(child.node))
        return text[: child.node.start] + new + text[child.node.end :]
    if not isinstance(child.node.value, dict):
        where = ".".join(keys[:depth]) or "the file"
        raise CannotEdit(f"{where} is no object", *jsonc.place(text, child.start))
    for key in reversed(keys[depth + 1 :]):
        value = {key: value}
    return style.inserted(child.node, {keys[depth]: value})


def put_all(text: str, members: Iterable[tuple[Keys, Any]]) -> str:
    """Returns the text with all these values at their paths, as if each was put after the other.

    New members of one object are inserted together: parsing the text for each would take a time that
    grows with the square of their number.
    """
    for holder, group in groupby(members, key=lambda member: member[0][:-1]):
        (first, value), *others = group
        text = put(text, first, value)  # makes the object if needed; the others follow its layout
        if others:
            text = _put_beside(text, holder, {keys[-1]: value for keys, value in others})
    return text


def _put_beside(text: str, holder: Keys, values: dict[str, Any]) -> str:
    """Puts values into an object that has members already."""
    root = jsonc.read(text)
    node = jsonc.find(root, holder).node
    new = {key: value for key, value in values.items() if key not in node.members}
    if new:
        text = _Style(text, root).inserted(node, new)
    for key, value in values.items():
        if key not in new:
            text = put(text, (*holder, key), value)
    return text


def remove(text: str, keys: Keys) -> str:
    """Returns the text without the member at this path."""
    if lookup(text, keys[:-1]) is None:
        return text
    root = jsonc.read(text)
    while True:  # a duplicate name is removed as well
        holder, depth = _deepest(root, keys[:-1])
        places = [i for i, c in enumerate(holder.node.children) if c.key == keys[-1]]
        if depth < len(keys) - 1 or not places or not isinstance(holder.node.value, dict):
            return text
        text = _removed(text, holder.node, places[-1])
        if len(places) == 1:
            return text
        root = jsonc.read(text)


def _whole(keys: Keys, value: Any) -> str:
    for key in reversed(keys):
        value = {key: value}
    return _pretty(value, UNIT)


def _deepest(root: Node, keys: Keys) -> tuple[Child, int]:
    """Returns the deepest node on the path that exists, and its depth."""
    child, depth = Child("", root.start, root), 0
    for key in keys:
        inner = child.node.members.get(key)
        if inner is None:
            break
        child, depth = inner, depth + 1
    return child, depth


def _pretty(value: Any, unit: str, indent: str = "") -> str:
    """Writes objects over several lines, everything else on one."""
    if not isinstance(value, dict) or not value:
        return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()
    inner = indent + unit
    members = cast("dict[str, Any]", value).items()
    lines = [f"{inner}{_name(key)}: {_pretty(item, unit, inner)}" for key, item in members]
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"


class _Style:
    """The layout of this file, so that new text looks like the rest."""

    def __init__(self, text: str, root: Node) -> None:
        self.text = text
        self.newline = "\r\n" if "\r\n" in text else "\n"
        self.flat = bool(root.children) and "\n" not in text.strip()
        self.unit = self._unit(root)

    def _unit(self, node: Node) -> str:
        """Returns the indent of the first object whose members have lines of their own."""
        for child in node.children:
            inner = self.indent_at(child.start)
            outer = self.indent_at(node.start)
            if self.starts_line(child.start) and inner.startswith(outer) and inner != outer:
                return inner[len(outer) :]
        for child in node.children:
            if (unit := self._unit(child.node)) and unit != UNIT:
                return unit
        return UNIT

    def line_start(self, offset: int) -> int:
        start = self.text.rfind("\n", 0, offset) + 1
        return start + (start == 0 and self.text.startswith(jsonc.BOM))

    def indent_at(self, offset: int) -> str:
        match = _INDENT.match(self.text, self.line_start(offset), offset)
        return match[0] if match else ""

    def starts_line(self, offset: int) -> bool:
        return not self.text[self.line_start(offset) : offset].strip(" \t")

    def on_one_line(self, node: Node) -> bool:
        return bool(node.children) and "\n" not in self.text[node.start : node.end]

    def written(self, value: Any, indent: str, *, inline: bool = False) -> str:
        if self.flat or inline:
            return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()
        return _pretty(value, self.unit).replace("\n", self.newline + indent)

    def inserted(self, node: Node, members: dict[str, Any]) -> str:
        """Returns the text with more members at the end of this object; many only if it has one."""
        text, closing = self.text, node.end - 1
        at = len(text[:closing].rstrip(_SPACE))  # behind the last member, comma or comment
        last = node.children[-1] if node.children else None
        comma = last.node.end if last and not self._has_comma(last, closing) else None
        open_end = "\n" in text[at:closing]  # the closing brace has a line of its own
        inline = self.flat or self.on_one_line(node) or bool(last and not open_end)
        indent = self._member_indent(node, last)
        gap = f"{self.newline}{indent}" if open_end or not inline else " " if last else ""
        new = ",".join(
            f"{gap}{_name(key)}: {self.written(value, indent, inline=inline)}"
            for key, value in members.items()
        )
        if last and comma is None:
            new += ","  # like the member before
        if not open_end and not inline:
            new += f"{self.newline}{self.indent_at(node.start)}"
        if comma is not None:
            return f"{text[:comma]},{text[comma:at]}{new}{text[at:]}"
        return f"{text[:at]}{new}{text[at:]}"

    def _member_indent(self, node: Node, last: Child | None) -> str:
        if last and self.starts_line(last.start):
            return self.indent_at(last.start)
        return self.indent_at(node.start) + self.unit

    def _has_comma(self, last: Child, closing: int) -> bool:
        return comma_after(self.text, last.node.end, closing) is not None


def _name(key: str) -> str:
    return msgspec.json.encode(key).decode()


def comma_after(text: str, offset: int, limit: int) -> int | None:
    """Returns the offset of the comma behind a member, past space and comments."""
    at = jsonc.past_gap(text, offset, limit)
    return at if text[at : at + 1] == "," else None


def _removed(text: str, holder: Node, index: int) -> str:
    child, closing = holder.children[index], holder.end - 1
    start, end = child.start, child.node.end
    comma = comma_after(text, end, closing)
    if comma is not None:
        text = text[:comma] + text[comma + 1 :]
    elif index:  # the last member: the comma before it goes as well
        before = comma_after(text, holder.children[index - 1].node.end, start)
        if before is not None:
            text = text[:before] + text[before + 1 :]
            start, end = start - 1, end - 1
    return _closed(_cut(text, start, end), holder.start)


def _cut(text: str, start: int, end: int) -> str:
    """Removes a span and the space that belongs to it, but never the end of a comment."""
    before = len(text[:start].rstrip(_SPACE))
    own_line = "\n" in text[before:start]
    if _TO_LINE_END.match(text, end) or (not own_line and _TO_CLOSING.match(text, end)):
        start = before
    else:
        blanks = _BLANKS.match(text, end)
        end = blanks.end() if blanks else end
    return text[:start] + text[end:]


def _closed(text: str, opening: int) -> str:
    """Writes an object with nothing but space in it as `{}`."""
    inside = text[opening + 1 :]
    rest = inside.lstrip(_SPACE)
    return text[: opening + 1] + rest if rest.startswith("}") else text
