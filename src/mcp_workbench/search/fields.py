"""What of a tool is searched, and how much each part of it weighs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

import msgspec

from mcp_workbench.core.catalogue import Definition, read_object
from mcp_workbench.search.words import Words

Json = dict[str, Any]

NAMES = (
    "tool", "description", "parameters", "parameter_texts", "server", "title", "server_text", "toolbox",
)  # fmt: skip
WEIGHTS = (3.0, 1.0, 0.5, 0.3, 1.5, 1.0, 0.3, 0.3)
OF_TOOL = 4  # the first ones are the tool's own, the rest its server's
DEEPEST = 4  # levels of parameters
MOST_READ = 512 << 10  # bytes of a definition; of a larger one, the name is searched
LINES = 3  # of a server's instructions
MOST_TEXT = 16 << 10  # characters of them

Places = tuple[tuple[int, int], ...]  # in which fields a word stands, and how often
Counts = dict[str, Places]


class About(msgspec.Struct, frozen=True):
    """What is known of a server beside its tools."""

    server: str
    title: str = ""
    text: str = ""  # its description, or the first lines of its instructions
    toolbox: str = ""  # name and description


class Counted(msgspec.Struct, frozen=True):
    """Some fields as numbers: where each word stands, and how long each field is."""

    counts: Counts
    lengths: tuple[int, ...]


def tool_counts(definition: Definition, words: Words) -> Counted:
    """The tool's own fields."""
    if len(definition.raw) > MOST_READ:
        return _counted((definition.name, "", "", ""), words, 0)
    whole = read_object(definition.raw)
    names: list[str] = []
    texts: list[str] = []
    for name, said in _parameters(whole.get("inputSchema"), DEEPEST):
        names.append(name)
        texts += said
    described = f"{_text(whole.get('title'))} {_text(whole.get('description'))}"
    return _counted((definition.name, described, " ".join(names), " ".join(texts)), words, 0)


def server_counts(about: About, words: Words) -> Counted:
    """The fields that all tools of a server share."""
    lines = " ".join(about.text[:MOST_TEXT].splitlines()[:LINES])
    return _counted((about.server, about.title, lines, about.toolbox), words, OF_TOOL)


def _counted(texts: tuple[str, ...], words: Words, first: int) -> Counted:
    counts: Counts = {}
    lengths: list[int] = []
    for field, text in enumerate(texts, first):
        found = words.of(text)
        lengths.append(len(found))
        for word, times in Counter(found).items():
            counts[word] = (*counts.get(word, ()), (field, times))
    return Counted(counts, tuple(lengths))


def _parameters(schema: Any, depth: int) -> Iterator[tuple[str, list[str]]]:
    """Names of parameters, with what is said of them: descriptions, and values to choose from."""
    if not isinstance(schema, dict) or depth == 0:
        return
    own = cast("Json", schema)
    listed: Any = own.get("properties")
    for name, value in cast("Json", listed).items() if isinstance(listed, dict) else ():
        yield name, _said(value)
        yield from _parameters(value, depth - 1)
    inner: list[Any] = [own.get("items"), own.get("additionalProperties")]
    for key in ("anyOf", "oneOf", "allOf"):
        branches: Any = own.get(key)
        inner += cast("list[Any]", branches) if isinstance(branches, list) else []
    for value in inner:
        yield from _parameters(value, depth - 1)


def _said(schema: Any) -> list[str]:
    if not isinstance(schema, dict):
        return []
    own = cast("Json", schema)
    values: Any = own.get("enum")
    chosen = cast("list[Any]", values) if isinstance(values, list) else []
    return [text for text in (own.get("description"), *chosen) if isinstance(text, str)]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
