"""Text as the words that count, the same way for queries and for tools."""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, cast

import msgspec

Stem = Callable[[str], str]

# Words of any English text, which say nothing about a tool.
_COMMON = """a an and any are as at be been but by can could did do does for from had has have how i if in
into is it its just let may me might must my need of on or our out please shall should so some
such than that the their them then there these they this those to us was we were what when where
which while who whom why will with would you your"""
STOP_WORDS = frozenset(_COMMON.split())
LONGEST = 64  # characters of a word; a longer one is data
MOST_STEMS = 50_000  # remembered
MOST_ASKED = 512  # different words of a query

# Signs of languages that are written without spaces: Thai to Khmer, Chinese, Japanese, and Korean.
_SIGNS = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
    r"\u2e80-\u30ff\u3130-\u318f\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
# Marks that belong to the letter before them: accents, points, and the vowels of India's scripts.
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


def parts(text: str) -> Iterator[str]:
    """`getUserByID2` is get, user, by, id, 2; signs without spaces between them go in pairs."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)  # one spelling of what looks the same
    for run in _RUNS.findall(text):
        if run.islower():
            yield run
        elif _IS_SIGN(run):
            yield from (run[at : at + 2] for at in range(max(len(run) - 1, 1)))
        else:
            yield from (part.lower() for part in _HUMPS.split(run))


class Asked(msgspec.Struct, frozen=True):
    """The words of a query that count, stemmed: how often each stands there, and how it is spelt."""

    times: dict[str, int]
    spelled: dict[str, str]


class Words:
    """Splits, drops, and stems; remembers the stems."""

    def __init__(self) -> None:
        self._stems: dict[str, str] = {}
        self._stem: Stem | None = None
        self._one_at_a_time = threading.Lock()  # large indexes are built in a thread

    def of(self, text: str) -> list[str]:
        return [self._stemmed(word) for word in parts(text) if _counts(word)]

    def asked(self, query: str) -> Asked:
        """The words of a query; whatever comes after very many of them is data."""
        times: dict[str, int] = {}
        spelled: dict[str, str] = {}
        stems: dict[str, str] = {}  # so that no more are made than are asked for
        for word in parts(query):
            stem = stems.get(word)
            if stem is None:
                if len(times) >= MOST_ASKED or not _counts(word):
                    continue
                stem = stems[word] = self._stemmed(word)
                spelled.setdefault(stem, word)
            times[stem] = times.get(stem, 0) + 1
        return Asked(times, spelled)

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
