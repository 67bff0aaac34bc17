"""Words that differ from a misspelt one by a single letter: added, left out, replaced, or two swapped."""

from __future__ import annotations

from collections.abc import Iterable

SHORTEST = 4  # letters of a word that is corrected; shorter ones are close to too many


class CloseWords:
    """Finds the close ones among many words.

    The first letter has to be right, as it nearly always is. A word that differs by one letter shares
    its first two letters, or its last two, so that only a few words are compared.
    """

    def __init__(self, words: Iterable[str]) -> None:
        self._starts: dict[str, list[str]] = {}
        self._ends: dict[str, list[str]] = {}
        for word in words:
            if len(word) >= SHORTEST - 1 and word.isalpha():
                self._starts.setdefault(word[:2], []).append(word)
                self._ends.setdefault(word[0] + word[-2:], []).append(word)

    def of(self, word: str) -> set[str]:
        """Return the words that are close to this one."""
        if len(word) < SHORTEST or not word.isalpha():
            return set()
        candidates = {
            *self._starts.get(word[:2], ()),
            *self._ends.get(word[0] + word[-2:], ()),
        }
        return {candidate for candidate in candidates if is_close(word, candidate)}


def is_close(one: str, other: str) -> bool:
    """Whether one edit makes these the same."""
    longer = len(one) - len(other)
    if abs(longer) > 1:
        return False
    at = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        at += 1
    rest, others = one[at:], other[at:]
    if longer > 0:
        return rest[1:] == others
    if longer < 0:
        return rest == others[1:]
    return rest[1:] == others[1:] or (rest[2:] == others[2:] and rest[1::-1] == others[:2])
