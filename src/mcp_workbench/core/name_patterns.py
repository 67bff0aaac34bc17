"""Globs for names, as in `toolFilters` and `approve`.

A list of a hostile server is long, and a filter may be, too. So names without a glob are looked up, globs are one
expression, and what was decided about a name is kept: the same lists are filtered again and again.
"""

import re
from collections.abc import Collection, Sequence
from fnmatch import translate
from itertools import accumulate

MOST_KEPT = 16_384  # decisions of one filter
LONGEST_KEPT = 4096  # characters of a name whose decision is kept
# Characters that are compared to find patterns without a match, in about 30 ms. A name costs as much as CALL more.
IDLE_CHARACTERS = 2_000_000
CALL = 16

_ALL = "*"
_SIGNS = frozenset("*?[")


def is_glob(pattern: str) -> bool:
    return not _SIGNS.isdisjoint(pattern)


class NamePatterns:
    """Names and globs; a name matches if one of them does."""

    __slots__ = ("_globs", "_has_all", "_names")

    def __init__(self, patterns: Collection[str]) -> None:
        globs = [translate(pattern) for pattern in patterns if pattern != _ALL and is_glob(pattern)]
        self._names = frozenset(patterns)  # a name may look like a glob
        self._has_all = _ALL in self._names
        self._globs = re.compile("|".join(globs)).match if globs else None

    def match(self, name: str) -> bool:
        if self._has_all or name in self._names:
            return True
        return self._globs is not None and self._globs(name) is not None


class NameFilter:
    """Shows names that match one of `include` and none of `exclude`."""

    __slots__ = ("_exclude", "_include", "_kept", "_shows_all")

    def __init__(self, include: Collection[str], exclude: Collection[str]) -> None:
        self._include = NamePatterns(include)
        self._exclude = NamePatterns(exclude)
        self._shows_all = _ALL in include and not exclude
        self._kept: dict[str, bool] = {}

    def shows(self, name: str) -> bool:
        if self._shows_all:
            return True
        shown = self._kept.get(name)
        if shown is None:
            shown = self._include.match(name) and not self._exclude.match(name)
            if len(name) <= LONGEST_KEPT:
                if len(self._kept) >= MOST_KEPT:
                    self._kept.clear()
                self._kept[name] = shown
        return shown


def unmatched(patterns: Sequence[str], names: Sequence[str]) -> list[str]:
    """Returns the patterns that match none of the names. `*` is never one.

    Of very many globs and names only the first globs are tried: others count as matched.
    """
    known = frozenset(names)
    left = [pattern for pattern in patterns if pattern != _ALL and pattern not in known]
    effort = CALL * len(names) + sum(map(len, names))
    efforts = accumulate(effort if is_glob(pattern) else 0 for pattern in left)
    return [
        pattern
        for pattern, spent in zip(left, efforts, strict=True)
        if not is_glob(pattern) or (spent <= IDLE_CHARACTERS and not _matches_any(pattern, names))
    ]


def _matches_any(glob: str, names: Sequence[str]) -> bool:
    return any(map(re.compile(translate(glob)).match, names))
