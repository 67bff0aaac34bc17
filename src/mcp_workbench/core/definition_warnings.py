"""Warnings about what a server says of itself: concealed text, and phrases that try to direct a model.

Warning lights for people: they block nothing, and one who knows the list can write around it. Pure: no
network, no process, no file; `serve` does not load it. Time grows with the text, within a budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, cast

import msgspec

from mcp_workbench.core.hidden_text import excerpt, hidden_text, spelled_out
from mcp_workbench.core.phrases import phrases, readable
from mcp_workbench.core.raw_json import Steps, TooComplex

Level = Literal["concealed", "phrase"]
STEPS = 1_000_000  # of one server; a step is about a microsecond
DEEPEST = 64  # levels of a definition that are read
MOST = 10  # warnings about one definition
UNREAD = "too large to be read whole"
_LONGEST_FIELD = 120  # characters of the path of a field that are shown
_PER_TEXT = 10  # steps, however short it is
_CHARACTERS = 8  # of ASCII that are searched per step; others cost one each


class DefinitionWarning(msgspec.Struct, frozen=True):
    """One warning: where in a definition, and what. The excerpt has invisible characters spelled out."""

    level: Level
    kind: str
    field: str  # such as `inputSchema.properties.city.description`
    excerpt: str


def definition_warnings(definition: Any, steps: Steps | None = None) -> list[DefinitionWarning]:
    """Returns the warnings about a tool, a prompt, a template or a text, as decoded from JSON.

    Definitions of one server share `steps`. What is beyond them is not read, which is a warning, too.
    """
    steps = Steps(STEPS) if steps is None else steps
    # By level: many phrases must not keep concealed text from being noticed.
    levels: dict[Level, dict[tuple[str, str], DefinitionWarning]] = {"concealed": {}, "phrase": {}}
    unread: list[DefinitionWarning] = []
    field = ""
    try:
        for field, text in _texts(definition, steps):
            steps.take(len(text) // (_CHARACTERS if text.isascii() else 1) + _PER_TEXT)
            for level, read in _READERS.items():
                if len(levels[level]) < MOST:
                    for warning in read(field, text, steps):
                        levels[level].setdefault((warning.field, warning.kind), warning)
    except TooComplex:
        unread.append(DefinitionWarning("phrase", UNREAD, _shown(field), ""))
    found = [warning for level in levels.values() for warning in level.values()]
    return found[: MOST - len(unread)] + unread


def _concealed(field: str, text: str, _steps: Steps) -> Iterator[DefinitionWarning]:
    for place in hidden_text(text):
        shown = excerpt(text, place.start, place.end)
        yield DefinitionWarning("concealed", place.kind, _shown(field), shown)


def _phrases(field: str, text: str, steps: Steps) -> Iterator[DefinitionWarning]:
    plain = readable(text)
    for found in phrases(plain, steps):
        shown = excerpt(plain, found.start, found.end)
        yield DefinitionWarning("phrase", found.kind, _shown(field), shown)


_READERS: dict[Level, Callable[[str, str, Steps], Iterator[DefinitionWarning]]] = {
    "concealed": _concealed,
    "phrase": _phrases,
}


def _shown(field: str) -> str:
    """Returns the path of a field, whose parts are names of the server, cut and spelled out."""
    text = spelled_out(field[: _LONGEST_FIELD * 4])
    return text if len(text) <= _LONGEST_FIELD else f"{text[:_LONGEST_FIELD]}…"


def _texts(value: Any, steps: Steps) -> Iterator[tuple[str, str]]:
    """Yields every string with its path: values, and names of members that the server chose."""
    waiting: list[tuple[str, Any, int]] = [("", value, 0)]
    while waiting:
        path, item, depth = waiting.pop()
        steps.take()
        if isinstance(item, str):
            yield path, item
        elif isinstance(item, dict | list) and depth >= DEEPEST:
            raise TooComplex
        elif isinstance(item, dict):
            members = cast("dict[str, Any]", item)
            steps.take(len(members))
            yield from ((_below(path, name), name) for name in members)
            waiting += [(_below(path, n), member, depth + 1) for n, member in members.items()][::-1]
        elif isinstance(item, list):
            items = cast("list[Any]", item)
            steps.take(len(items))
            waiting += [(f"{path}[{n}]", one, depth + 1) for n, one in enumerate(items)][::-1]


def _below(path: str, name: str) -> str:
    """Returns the path of a member; long ones are cut, or deep ones would cost their square."""
    return (
        f"{path[: _LONGEST_FIELD * 4]}.{name[:_LONGEST_FIELD]}" if path else name[:_LONGEST_FIELD]
    )
