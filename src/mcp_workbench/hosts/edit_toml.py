"""Edits TOML: one table is added or removed, and every other byte stays, comments included.

The standard library reads the values, before and after; tomlkit writes. Its tree is changed in the
bodies of its containers, which are what it renders: the dictionaries above them merge tables that
stand apart in the text, and give a comment in front of a table to the table before it.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, cast

import tomlkit
from tomlkit.container import Container
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AbstractTable, AoT, Item, Key, Table

from mcp_workbench.config.jsonc import BOM
from mcp_workbench.hosts.files import CannotEdit, Keys
from mcp_workbench.hosts.read import NotToml, parse_toml, value_at

Body = list[tuple[Key | None, Item]]

_MARK = "\0\n"  # no TOML text has this character
_MARK_AND_GAP = re.compile(r"(?:(?:\A|(?<=\n))[ \t]*\r?\n)?\0\n")  # and the blank line before it


def lookup(text: str, keys: Keys) -> Any:
    """Returns the value at this path, or None."""
    return value_at(parse_toml(text), keys)


def put(text: str, keys: Keys, value: dict[str, Any]) -> str:
    """Returns the text with this table at its end; an older one is removed first."""
    return put_all(text, ((keys, value),))


def put_all(text: str, members: Iterable[tuple[Keys, Any]]) -> str:
    """Returns the text with all these tables at its end; older ones are removed first."""
    members = list(members)
    text = remove_all(text, [keys for keys, _ in members])
    newline = "\r\n" if "\r\n" in text else "\n"
    pieces = [text]
    value = parse_toml(text)
    for keys, new in members:
        table = f"[{tomlkit.key(list(keys)).as_string()}]\n{_table(new).as_string()}"
        last = pieces[-1]
        gap = "" if not last.lstrip(BOM) else newline if last.endswith("\n") else newline * 2
        pieces.append(gap + table.replace("\n", newline))
        value = _with(value, keys, new)
    whole = "".join(pieces)
    if _pruned(_parsed(whole)) != _pruned(value):
        keys = members[0][0]
        message = f"{'.'.join(keys[:-1])} is written so that no table can be added to it"
        raise CannotEdit(message, line_of(text, keys), 1)
    _document(whole)  # fails here, and not in a later preview
    return whole


def remove(text: str, keys: Keys) -> str:
    """Returns the text without the table at this path and all that is below it."""
    return remove_all(text, (keys,))


def remove_all(text: str, paths: Iterable[Keys]) -> str:
    """Returns the text without the tables at these paths. It is parsed once for all of one table."""
    names: defaultdict[Keys, set[str]] = defaultdict(set)
    for keys in paths:
        names[keys[:-1]].add(keys[-1])
    for holder, doomed in names.items():
        there = lookup(text, holder)
        members = cast("dict[str, Any]", there) if isinstance(there, dict) else {}
        if present := doomed & members.keys():
            text = _without_tables(text, holder, present)
    return text


def _without_tables(text: str, holder: Keys, names: set[str]) -> str:
    def drop(body: Body, index: int) -> None:
        body[index] = (None, tomlkit.ws(_MARK + _comments_after(body[index][1])))

    rest = _MARK_AND_GAP.sub("", _edited(text, holder, names, drop))
    if _pruned(_parsed(rest)) != _pruned(_without(parse_toml(text), holder, names)):
        keys = (*holder, min(names))  # what is around one of them is around all
        message = f"{'.'.join(keys)} is written inside of another value"
        raise CannotEdit(message, line_of(text, keys), 1)
    return rest


def line_of(text: str, keys: Keys) -> int:
    """Returns the line of the deepest thing on this path that exists, else the first line."""

    def mark(body: Body, index: int) -> None:
        body.insert(index, (None, tomlkit.ws(_MARK)))

    with suppress(CannotEdit):
        for depth in range(len(keys), 0, -1):
            before, marked, _ = _edited(text, keys[: depth - 1], {keys[depth - 1]}, mark).partition(
                _MARK
            )
            if marked:
                return before.count("\n") + 1
    return 1


def with_values(text: str, instead: Callable[[Keys, str], str | None]) -> str:
    """Returns the text with other strings in place of values: `instead(path, literal)`, None for the same."""
    document = _document(text)
    for path, body, index in _values(document.body, ()):
        key, old = body[index]
        replacement = instead(path, old.as_string())
        if replacement is not None:
            new = tomlkit.string(replacement)
            for name in ("indent", "comment_ws", "comment", "trail"):
                setattr(new.trivia, name, getattr(old.trivia, name))
            body[index] = (key, new)
    return _rendered(text, document)


def _document(text: str) -> Container:
    """Parses a text that is TOML to the standard library; tomlkit must reproduce every byte of it."""
    document = None
    with suppress(TOMLKitError, RecursionError):
        document = tomlkit.parse(text.removeprefix(BOM))
    if document is None or _rendered(text, document) != text:
        raise CannotEdit("this TOML can't be edited without changing other parts of it")
    return document


def _rendered(text: str, document: Container) -> str:
    return text[: text.startswith(BOM)] + document.as_string()


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        return parse_toml(text)
    except NotToml:
        return None


def _edited(text: str, holder: Keys, names: set[str], edit: Callable[[Body, int], None]) -> str:
    """Returns the text after an edit of everything at these paths: a table may be in several pieces."""
    document = _document(text)
    for body, index in list(_places(document.body, holder, names)):
        edit(body, index)
    return _rendered(text, document)


def _places(body: Body, holder: Keys, names: set[str]) -> Iterator[tuple[Body, int]]:
    """Yields the last pieces first, so that an edit moves none that is still to come."""
    wanted = {holder[0]} if holder else names
    for index in reversed(range(len(body))):
        key, item = body[index]
        if key is None or key.key not in wanted:
            continue
        if not holder:
            yield body, index
        elif isinstance(item, Table):
            yield from _places(item.value.body, holder[1:], names)


def _values(body: Body, path: Keys) -> Iterator[tuple[Keys, Body, int]]:
    """Yields everything that is neither a table nor a comment."""
    for index, (key, item) in enumerate(body):
        if key is None:
            continue
        inner = (*path, key.key)
        if isinstance(item, AbstractTable | AoT):
            for table in item.body if isinstance(item, AoT) else (item,):
                yield from _values(table.value.body, inner)
        else:
            yield inner, body, index


def _comments_after(item: Item) -> str:
    """Returns the blank lines and comments at the end of a table: they belong to what follows."""
    while isinstance(item, AoT):
        item = item.body[-1]
    if not isinstance(item, Table):
        return ""
    comments = ""
    for key, inner in reversed(item.value.body):
        if key is not None:
            return _comments_after(inner) + comments
        comments = inner.as_string() + comments
    return comments


def _with(value: dict[str, Any], keys: Keys, new: Any) -> dict[str, Any]:
    name, *below = keys
    inner = value.get(name, {})
    if below and not isinstance(inner, dict):
        return {}
    if below:
        new = _with(cast("dict[str, Any]", inner), tuple(below), new)
    return {**value, name: new}


def _without(value: dict[str, Any], holder: Keys, names: set[str]) -> dict[str, Any]:
    if not holder:
        return {key: item for key, item in value.items() if key not in names}
    inner = value.get(holder[0])
    if not isinstance(inner, dict):
        return value
    return value | {holder[0]: _without(cast("dict[str, Any]", inner), holder[1:], names)}


def _pruned(value: Any) -> Any:
    """Returns the value without empty tables: one that was only implied goes with what implied it."""
    if not isinstance(value, dict):
        return repr(value)  # nan is not equal to itself
    members = {key: _pruned(item) for key, item in cast("dict[str, Any]", value).items()}
    return {key: item for key, item in members.items() if item != {}}


def _table(value: dict[str, Any]) -> Table:
    table = tomlkit.table()
    for key, item in value.items():
        table.add(key, _inline(item))
    return table


def _inline(value: Any) -> Item:
    """Returns a value on one line: a table below ours would be a table of its own otherwise."""
    if isinstance(value, list):
        array = tomlkit.array()
        for item in cast("list[Any]", value):
            cast("list[Item]", array).append(_inline(item))
        return array
    if isinstance(value, dict):
        table = tomlkit.inline_table()
        for key, item in cast("dict[str, Any]", value).items():
            table.add(key, _inline(item))
        return table
    return cast("Item", tomlkit.item(value))
