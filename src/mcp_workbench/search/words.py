"""Text as the words that count, the same way for queries and for tools."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, cast

Stem = Callable[[str], str]

# Words of any English text, which say nothing about a tool.
_COMMON = """a an and any are as at be been but by can could did do does for from had has have how i if in
into is it its just let may me might must my need of on or our out please shall should so some
such than that the their them then there these they this those to us was we were what when where
which while who whom why will with would you your"""
STOP_WORDS = frozenset(_COMMON.split())
LONGEST = 64  # characters of a word; a longer one is data
MOST_STEMS = 50_000  # remembered

# Signs of languages that are written without spaces.
_SIGNS = r"\u2e80-\u30ff\u3130-\u318f\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
_RUNS = re.compile(rf"[{_SIGNS}]+|[^\W\d_{_SIGNS}]+|\d+")
_IS_SIGN = re.compile(rf"[{_SIGNS}]").match
# Between `aB`, and before the last letter of `ABc`.
_HUMPS = re.compile(
    r"(?<=[a-z\u00df-\u00f6\u00f8-\u00ff])(?=[A-Z\u00c0-\u00d6\u00d8-\u00de])|(?<=[A-Z])(?=[A-Z][a-z])"
)


def parts(text: str) -> Iterator[str]:
    """`getUserByID2` is get, user, by, id, 2; signs without spaces between them go in pairs."""
    for run in _RUNS.findall(text):
        if run.islower():
            yield run
        elif _IS_SIGN(run):
            yield from (run[at : at + 2] for at in range(max(len(run) - 1, 1)))
        else:
            yield from (part.lower() for part in _HUMPS.split(run))


class Words:
    """Splits, drops, and stems; remembers the stems."""

    def __init__(self) -> None:
        self._stems: dict[str, str] = {}
        self._stem: Stem | None = None
        self._one_at_a_time = threading.Lock()  # large indexes are built in a thread

    def of(self, text: str) -> list[str]:
        return [self._stemmed(word) for word in parts(text) if _counts(word)]

    def told(self, text: str) -> dict[str, str]:
        """Each word that counts with the spelling that it came in."""
        found: dict[str, str] = {}
        for word in parts(text):
            if _counts(word):
                found.setdefault(self._stemmed(word), word)
        return found

    def _stemmed(self, word: str) -> str:
        stem = self._stems.get(word)
        if stem is None:
            if len(self._stems) >= MOST_STEMS:
                self._stems.clear()
            with self._one_at_a_time:
                stem = self._stems[word] = self._stemmer()(word)
        return stem

    def _stemmer(self) -> Stem:
        if self._stem is None:
            library: Any = import_module("snowballstemmer")  # not before somebody searches
            self._stem = cast("Stem", library.stemmer("english").stemWord)
        return self._stem


def _counts(word: str) -> bool:
    return word not in STOP_WORDS and len(word) <= LONGEST
