"""Queries: what is searched for, in which servers, and what was found; and the words of all of it.

Queries and the searched fields of tools are split and stemmed the same way.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from sys import intern
from typing import Any, cast

import msgspec

from mcp_workbench.core.apps import is_for_model
from mcp_workbench.core.catalogue import Catalogue, Definition, read_object
from mcp_workbench.core.spec import ServerAddress, ServerSpec, ToolboxSpec, ToolIdentifier

Json = dict[str, Any]

MOST_NAMED = 20  # tools that a query may ask for by their names, whatever its limit


class SearchableServer(msgspec.Struct, frozen=True):
    """A server whose tools are known, connected or not."""

    spec: ServerSpec
    toolbox: ToolboxSpec
    catalogue: Catalogue
    title: str = ""
    text: str = ""

    @property
    def fingerprint(self) -> tuple[object, ...]:
        """Equal as long as none of the searched texts has changed."""
        return (self.catalogue, self.spec.tools, self.title, self.text, self.toolbox.description)

    @property
    def about(self) -> ServerDescription:
        box = self.toolbox
        words = f"{box.name} {box.description}"
        return ServerDescription(self.spec.address.server, self.title, self.text, words)

    def visible(self) -> list[Definition]:
        """The tools that a model may find."""
        shows, tools = self.spec.tools.shows, self.catalogue.tools
        return [tool for name, tool in tools.items() if shows(name) and is_for_model(tool.raw)]


class SearchScope(msgspec.Struct, frozen=True):
    """All servers of a view: those whose tools are known, and the others."""

    known: dict[ServerAddress, SearchableServer]
    unknown: tuple[ServerSpec, ...]


class Query(msgspec.Struct, frozen=True):
    """What to search for, and where."""

    words: str
    toolbox: str = ""
    server: str = ""
    limit: int = 5

    def covers(self, address: ServerAddress) -> bool:
        return self.toolbox in ("", address.toolbox) and self.server in ("", address.server)


class FoundTool(msgspec.Struct, frozen=True):
    """A hit; `twins` are the same tool of the same server in other toolboxes."""

    tool: ToolIdentifier
    definition: Definition
    score: float = 0.0
    twins: tuple[ServerAddress, ...] = ()


class Siblings(msgspec.Struct, frozen=True):
    """The other tools of a server that fits."""

    address: ServerAddress
    names: tuple[str, ...]


class Unread(msgspec.Struct, frozen=True):
    """A server whose tools are not known: not asked yet, starting, or failed for a reason."""

    address: ServerAddress
    starting: bool = False
    reason: str = ""


class SearchResult(msgspec.Struct, frozen=True):
    """The result of a query."""

    tools: tuple[FoundTool, ...]
    total: int  # tools that were searched
    siblings: tuple[Siblings, ...] = ()
    strange: tuple[str, ...] = ()  # words of the query that no tool has
    close: dict[str, tuple[str, ...]] = {}  # to them: words that were searched for instead
    unknown: tuple[Unread, ...] = ()  # servers that could not be searched
    weak: bool = False
    named: bool = False  # the query consists of tool names
    left_out: tuple[ToolIdentifier, ...] = ()  # named too, beyond the limit
    wordless: bool = False  # the query has no word to search for
    in_english: bool = False  # the searched tools are described in English


# Words

Stem = Callable[[str], str]

# Words of any English text, which say nothing about a tool.
_COMMON = """a an and any are as at be been but by can could did do does for from had has have how i if in
into is it its just let may me might must my need of on or our out please shall should so some
such than that the their them then there these they this those to us was we were what when where
which while who whom why will with would you your"""
STOP_WORDS = frozenset(_COMMON.split())
# Words of any text in German, French, Spanish, Italian, Portuguese or Dutch, and of no English one.
_COMMON_ELSEWHERE = """aus avec bei che como dans das degli dei della der des dos een eine einen einer het
ihre los mit nach nicht ou par para pela pelo pour que sind sur uma una und une uno van von voor wird"""
FOREIGN_WORDS = frozenset(_COMMON_ELSEWHERE.split())
LONGEST = 64  # characters of a word; a longer one is data
MOST_STEMS = 50_000  # cached
MOST_ASKED = 512  # different words of a query

# Characters of scripts without spaces: Thai to Khmer, Chinese, Japanese, and Korean.
_SIGNS = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
    r"\u2e80-\u30ff\u3130-\u318f\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
# Combining marks: accents, points, and the vowels of Indic scripts.
_MARKS = (
    r"\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc"
    r"\u0900-\u0903\u093a-\u094f\u0951-\u0957\u0962\u0963\u0981-\u0983\u09bc-\u09cd\u0a01-\u0a03"
    r"\u0a3c-\u0a51\u0a81-\u0a83\u0abc-\u0acd\u0b01-\u0b03\u0b3c-\u0b57\u0b82\u0bbe-\u0bcd"
    r"\u0c00-\u0c04\u0c3c-\u0c56\u0c81-\u0c83\u0cbc-\u0cd6\u0d00-\u0d03\u0d3b-\u0d4d\u0d81-\u0d83"
    r"\u0dca-\u0ddf"
)
_RUNS = re.compile(rf"[{_SIGNS}]+|(?:[^\W\d_{_SIGNS}][{_MARKS}]*)+|\d+")
_IS_SIGN = re.compile(rf"[{_SIGNS}]").match
# Between `aB`, and before the last letter of `ABc`.
_HUMPS = re.compile(
    r"(?<=[a-z\u00df-\u00f6\u00f8-\u00ff])(?=[A-Z\u00c0-\u00d6\u00d8-\u00de])|(?<=[A-Z])(?=[A-Z][a-z])"
)


# Words with the space behind them. Longer ones are cut: the time to put the marks of one letter in order grows with
# the square of their number, and nobody else runs meanwhile.
_PIECES = re.compile(r"\S{1,128}\s*|\s+")


def _one_spelling(piece: str) -> str:
    """One spelling of what looks the same."""
    return piece if piece.isascii() else unicodedata.normalize("NFKC", piece)


def parts(text: str) -> Iterator[str]:
    """Split text: `getUserByID2` is get, user, by, id, 2; scripts without spaces become pairs."""
    if not text.isascii():
        text = "".join(map(_one_spelling, _PIECES.findall(text)))
    for run in _RUNS.findall(text):
        if run.islower():
            yield run
        elif _IS_SIGN(run):
            yield from (run[at : at + 2] for at in range(max(len(run) - 1, 1)))
        else:
            yield from (part.lower() for part in _HUMPS.split(run))


class QueryWords(msgspec.Struct, frozen=True):
    """The stems of a query: how often each occurs, and how it is spelled there."""

    times: dict[str, int]
    spelled: dict[str, str]
    close: dict[str, tuple[str, ...]] = {}  # to words that no tool has: close ones that some have


class Words:
    """Splits text, drops stop words, and stems the rest; caches the stems."""

    def __init__(self) -> None:
        self._stems: dict[str, str] = {}
        self._stem: Stem | None = None
        self._lock = threading.Lock()  # large indexes are built in a thread

    def of(self, text: str, spellings: set[str] | None = None) -> list[str]:
        """Return the stems of a text, in its order; adds the words as they are spelled to `spellings`."""
        words = [word for word in parts(text) if _counts(word)]
        if spellings is not None:
            spellings.update(words)
        return [self.stem(word) for word in words]

    def asked(self, query: str) -> QueryWords:
        """Return the words of a query; what follows after MOST_ASKED different ones is ignored."""
        times: dict[str, int] = {}
        spelled: dict[str, str] = {}
        stems: dict[str, str] = {}  # of the words so far
        for word in parts(query):
            stem = stems.get(word)
            if stem is None:
                if len(times) >= MOST_ASKED or not _counts(word):
                    continue
                stem = stems[word] = self.stem(word)
                spelled.setdefault(stem, word)
            times[stem] = times.get(stem, 0) + 1
        return QueryWords(times, spelled)

    def stem(self, word: str) -> str:
        stem = self._stems.get(word)
        if stem is None:
            if len(self._stems) >= MOST_STEMS:
                self._stems.clear()
            with self._lock:
                stem = self._stems[word] = self._stemmer()(word)
        return stem

    def _stemmer(self) -> Stem:
        if self._stem is None:
            library: Any = import_module("snowballstemmer")  # loaded with the first search
            self._stem = cast("Stem", library.stemmer("english").stemWord)
        return self._stem


def _counts(word: str) -> bool:
    return word not in STOP_WORDS and len(word) <= LONGEST


# The searched fields of a tool and its server

NAMES = (
    "tool", "description", "parameters", "parameter_texts", "server", "title", "server_text", "toolbox",
)  # fmt: skip
WEIGHTS = (3.0, 1.0, 0.5, 0.5, 1.5, 1.0, 0.3, 0.3)
OF_TOOL = 4  # the first fields are the tool's own, the rest its server's
DEEPEST = 4  # levels of parameters
MOST_READ = 512 << 10  # bytes of a definition; of a larger one, only the name is searched
LINES = 3  # of a server's instructions
MOST_TEXT = 16 << 10  # characters of them

Places = tuple[tuple[int, int], ...]  # (field, how often the word occurs there)
Counts = dict[str, Places]


class ServerDescription(msgspec.Struct, frozen=True):
    """The searched texts of a server, apart from its tools."""

    server: str
    title: str = ""
    text: str = ""  # its description, or the first lines of its instructions
    toolbox: str = ""  # name and description


class FieldCounts(msgspec.Struct, frozen=True):
    """Word counts of some fields, and the length of each field."""

    counts: Counts
    lengths: tuple[int, ...]
    spellings: tuple[str, ...] = ()  # of the words, where they are not stems themselves


def tool_counts(definition: Definition, words: Words) -> FieldCounts:
    """Count the words of the tool's own fields."""
    if len(definition.raw) > MOST_READ:
        return _counted((definition.name, "", "", ""), words, 0)
    tool = read_object(definition.raw)
    names: list[str] = []
    texts: list[str] = []
    for name, descriptions in parameters(tool.get("inputSchema"), DEEPEST):
        names.append(name)
        texts += descriptions
    description = f"{_text(tool.get('title'))} {_text(tool.get('description'))}"
    return _counted((definition.name, description, " ".join(names), " ".join(texts)), words, 0)


def server_counts(server: ServerDescription, words: Words) -> FieldCounts:
    """Count the words of the fields that all tools of a server share."""
    lines = " ".join(server.text[:MOST_TEXT].splitlines()[:LINES])
    return _counted((server.server, server.title, lines, server.toolbox), words, OF_TOOL)


def _counted(texts: tuple[str, ...], words: Words, first: int) -> FieldCounts:
    counts: Counts = {}
    lengths: list[int] = []
    spellings: set[str] = set()
    for field, text in enumerate(texts, first):
        stems = words.of(text, spellings)
        lengths.append(len(stems))
        for word, times in Counter(stems).items():
            counts[word] = (*counts.get(word, ()), (field, times))
    others = tuple(intern(word) for word in spellings if word not in counts)
    return FieldCounts(counts, tuple(lengths), others)


def parameters(schema: Any, depth: int) -> Iterator[tuple[str, list[str]]]:
    """Yield the names of parameters, each with its description and its enum values."""
    if not isinstance(schema, dict) or depth == 0:
        return
    own = cast("Json", schema)
    listed: Any = own.get("properties")
    for name, value in cast("Json", listed).items() if isinstance(listed, dict) else ():
        yield name, _descriptions(value)
        yield from parameters(value, depth - 1)
    inner: list[Any] = [own.get("items"), own.get("additionalProperties")]
    for key in ("anyOf", "oneOf", "allOf"):
        branches: Any = own.get(key)
        inner += cast("list[Any]", branches) if isinstance(branches, list) else []
    for value in inner:
        yield from parameters(value, depth - 1)


def _descriptions(schema: Any) -> list[str]:
    if not isinstance(schema, dict):
        return []
    own = cast("Json", schema)
    values: Any = own.get("enum")
    chosen = cast("list[Any]", values) if isinstance(values, list) else []
    return [text for text in (own.get("description"), *chosen) if isinstance(text, str)]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
