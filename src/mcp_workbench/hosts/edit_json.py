"""Edits JSON: one member is added, replaced or removed, and every other byte stays, comments included."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, cast

import msgspec

from mcp_workbench.config import jsonc
from mcp_workbench.config.jsonc import Child, Node
from mcp_workbench.hosts.files import CannotEdit, Keys
from mcp_workbench.hosts.read import parse_json, value_at

Span = tuple[int, int]

_SPACE = " \t\r\n"
_TO_LINE_END = re.compile(r"[ \t]*(?=\r?\n)")
_TO_CLOSING = re.compile(r"[ \t]*(?=[}\]])")
_INDENT = re.compile(r"[ \t]*")
UNIT = "  "  # one level, if the file has no indentation


class Source(msgspec.Struct, frozen=True):
    """A value as it was written elsewhere, with its comments."""

    text: str
    indent: str  # of the line that it began on

    def __repr__(self) -> str:
        return f"Source({len(self.text)} characters)"  # it may hold a secret

    @classmethod
    def of(cls, text: str, node: Node) -> "Source":
        """Returns the source of a value in this text."""
        indent = _INDENT.match(text, text.rfind("\n", 0, node.start) + 1)
        return cls(text[node.start : node.end], indent[0] if indent else "")

    def written(self, indent: str, newline: str) -> str:
        first, *lines = self.text.replace("\r\n", "\n").split("\n")
        return newline.join([first, *(indent + line.removeprefix(self.indent) for line in lines)])


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
    return remove_all(text, (keys,))


def remove_all(text: str, paths: Iterable[Keys]) -> str:
    """Returns the text without the members at these paths. Each object is parsed and rewritten once."""
    names: defaultdict[Keys, set[str]] = defaultdict(set)
    for keys in paths:
        names[keys[:-1]].add(keys[-1])
    for holder, doomed in names.items():
        if isinstance(lookup(text, holder), dict):
            node = jsonc.find(jsonc.read(text), holder).node
            text = _without_members(text, node, doomed)
    return text


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
        if isinstance(value, Source):
            return value.written(indent, self.newline)
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


def _without_members(text: str, holder: Node, names: set[str]) -> str:
    """Returns the text without these members of an object, duplicates included."""
    children = holder.children
    doomed = [index for index, child in enumerate(children) if child.key in names]
    if not doomed:
        return text
    closing = holder.end - 1
    limits = [*(child.start for child in children[1:]), closing]  # the end of the gap behind each
    commas = [
        comma_after(text, child.node.end, limit)
        for child, limit in zip(children, limits, strict=True)
    ]
    cuts = [(comma, comma + 1) for comma in map(commas.__getitem__, doomed) if comma is not None]
    kept = [index for index, child in enumerate(children) if child.key not in names]
    before = commas[kept[-1]] if kept and commas[-1] is None else None
    if before is not None and kept[-1] < doomed[-1]:  # the last member goes, and with it this comma
        cuts.append((before, before + 1))
    for first, last in _runs(text, children, doomed):
        gap = (children[last].node.end, limits[last])
        cuts.append(_with_space(text, children[first].start, gap, commas[last]))
    inside = _without_spans(text, holder.start + 1, closing, cuts)
    return text[: holder.start + 1] + (inside if inside.strip(_SPACE) else "") + text[closing:]


def _runs(text: str, children: Sequence[Child], doomed: list[int]) -> Iterator[tuple[int, int]]:
    """Yields first and last index of neighbours with no comment between them."""
    first = last = doomed[0]
    for index in doomed[1:]:
        between = text[children[last].node.end : children[index].start]
        if index != last + 1 or between.strip(_SPACE) != ",":
            yield first, last
            first = index
        last = index
    yield first, last


def _with_space(text: str, start: int, gap: tuple[int, int], comma: int | None) -> tuple[int, int]:
    """Returns the span from `start` to the gap with the space that belongs to it, but never the end of
    a comment. `comma` is in the gap and goes as well."""
    end, limit = gap
    behind = text[end : limit + 1]
    if comma is not None:
        behind = behind[: comma - end] + behind[comma - end + 1 :]
    before = start
    while before and text[before - 1] in _SPACE:
        before -= 1
    own_line = "\n" in text[before:start]
    if _TO_LINE_END.match(behind) or (not own_line and _TO_CLOSING.match(behind)):
        return before, end
    blanks = len(behind) - len(behind.lstrip(" \t"))
    return start, end + blanks + (comma is not None and comma <= end + blanks)


def _without_spans(text: str, start: int, end: int, spans: list[Span]) -> str:
    """Returns this part of the text without these spans, which may overlap."""
    pieces: list[str] = []
    for first, last in sorted(spans):
        pieces.append(text[start : max(first, start)])
        start = max(start, last)
    return "".join([*pieces, text[start:end]])
