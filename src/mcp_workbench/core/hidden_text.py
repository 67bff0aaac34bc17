"""Characters that hide text from people and show it to models: where they are, and how to show them.

Pure and linear in the text: one search for each kind, by an expression that never goes back.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

# Codes rather than the characters themselves, so that this file hides nothing.
_ZERO_WIDTH = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2060-\u2065\u3164\ufeff\uffa0"
)
_SELECTORS = "\ufe00-\ufe0f\U000e0100-\U000e01ef"
_TAGS = "\U000e0000-\U000e007f"
_BIDI = "\u202a-\u202e\u2066-\u2069"
_CONTROL = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
_PRIVATE = "\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd"

# The flags of England, Scotland and Wales: no other ones are in general use, and a body of free choice
# would hide text.
_FLAGS = {
    "\U0001f3f4" + "".join(chr(0xE0000 + ord(sign)) for sign in body) + "\U000e007f"
    for body in ("gbeng", "gbsct", "gbwls")
}
_FLAG = 7  # characters of one
_TAG_RUN = re.compile(f"[{_TAGS}]+")
_BIDI_RUN = re.compile(f"[{_BIDI}]+")
_CONTROL_RUN = re.compile(f"[{_CONTROL}]+")
_PRIVATE_RUN = re.compile(f"[{_PRIVATE}]+")
_ZERO_WIDTH_RUN = re.compile(f"[{_ZERO_WIDTH}]+")
_SELECTOR_RUN = re.compile(f"[{_SELECTORS}]{{2,}}")
_WORD = re.compile(r"[^\W\d_]+")
_LATIN = re.compile("[A-Za-z\u00c0-\u024f\u1e00-\u1eff]+")
# Alphabets with letters that look Latin. Of the Greek ones only those: formulas mix the others.
_OTHERS = re.compile(
    "[\u0400-\u052f\u1c80-\u1c8f\u2de0-\u2dff\ua640-\ua69f\u0531-\u0587\u13a0-\u13fd\uab70-\uabbf"
    "\u0391\u0392\u0395-\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03b9\u03bf]"
)
_ABBREVIATION = re.compile("[A-Z]{2,}[\u0430-\u044f\u0450-\u045f]+")  # with an ending of Russian
_MARKS_OF_DIRECTION = "\u061c\u200e\u200f"  # beside a word, in text of both directions
_RUN = 2  # zero-width characters in a row that hide a text by themselves

_SPELLED = re.compile(
    f"[{_TAGS}]+|[{_ZERO_WIDTH}{_BIDI}{_CONTROL}{_PRIVATE}\U000e0100-\U000e01ef\u2028\u2029\ud800-\udfff]"
)


class HiddenText(NamedTuple):
    """One place where characters hide text."""

    kind: str
    start: int
    end: int


def hidden_text(text: str) -> Iterator[HiddenText]:
    """Yields the first place of each kind of concealment."""
    if text.isascii():
        checks = (_control_characters,)
    else:
        checks = (
            _tag_characters,
            _bidirectional,
            _control_characters,
            _zero_width,
            _selectors,
            _private,
            _mixed_scripts,
        )
    for check in checks:
        place = check(text)
        if place is not None:
            yield place


def _tag_characters(text: str) -> HiddenText | None:
    for run in _TAG_RUN.finditer(text):
        flag = text[max(run.start() - 2, 0) : run.end()].replace("\ufe0f", "")
        if flag[-_FLAG:] not in _FLAGS or run.end() - run.start() != _FLAG - 1:
            return HiddenText("tag characters", *run.span())
    return None


def _bidirectional(text: str) -> HiddenText | None:
    return _first("bidirectional override", _BIDI_RUN, text)


def _control_characters(text: str) -> HiddenText | None:
    run = _CONTROL_RUN.search(text)
    if run is None:
        return None
    is_escape = any(sign in "\x1b\x9b" for sign in run[0])
    return HiddenText("escape sequence" if is_escape else "control character", *run.span())


def _selectors(text: str) -> HiddenText | None:
    return _first("variation selectors", _SELECTOR_RUN, text)


def _private(text: str) -> HiddenText | None:
    return _first("private-use character", _PRIVATE_RUN, text)


def _first(kind: str, expression: re.Pattern[str], text: str) -> HiddenText | None:
    run = expression.search(text)
    return None if run is None else HiddenText(kind, *run.span())


def _zero_width(text: str) -> HiddenText | None:
    """In a word, at its end, or several in a row. Scripts and emoji that need them conceal nothing."""
    for run in _ZERO_WIDTH_RUN.finditer(text):
        before, after = text[run.start() - 1 : run.start()], text[run.end() : run.end() + 1]
        inside = before.isalnum() and after.isalnum()
        in_word = inside and (_is_plain_letter(before) or _is_plain_letter(after))
        at_end = _is_plain_letter(before) and run[0] not in _MARKS_OF_DIRECTION
        if in_word or at_end or run.end() - run.start() >= _RUN:
            return HiddenText("zero-width character", *run.span())
    return None


def _is_plain_letter(sign: str) -> bool:
    """Is this of an alphabet that needs no joiners? Latin, Greek, Cyrillic, digits."""
    return sign.isalnum() and sign < "\u0530"


def _mixed_scripts(text: str) -> HiddenText | None:
    """A word of Latin letters and others that look like them."""
    for word in _WORD.finditer(text):
        letters = word[0]
        if letters.isascii() or not _LATIN.search(letters) or not _OTHERS.search(letters):
            continue
        if not _ABBREVIATION.fullmatch(letters):
            return HiddenText("mixed scripts in a word", *word.span())
    return None


# Text for people

_BEFORE, _WITHIN, _AFTER = 40, 90, 40  # characters of an excerpt, spelled out
_BREAKS = {ord(sign): " " for sign in "\t\n\r"}


def spelled_out(text: str) -> str:
    """Returns the text in one line, with characters that can't be seen spelled out."""
    return _SPELLED.sub(_spelling, text.translate(_BREAKS))


def _spelling(match: re.Match[str]) -> str:
    signs = match[0]
    if "\U000e0000" <= signs[0] <= "\U000e007f":
        letters = "".join(chr(ord(sign) - 0xE0000) for sign in signs)
        return f"[tags: {''.join(x if x.isprintable() else '?' for x in letters)}]"
    name = unicodedata.name(signs, "")
    return f"[U+{ord(signs):04X}{' ' if name else ''}{name}]"


def excerpt(text: str, start: int, end: int) -> str:
    """Returns a place of a text and what is around it, spelled out and cut."""
    before = spelled_out(text[max(start - _BEFORE, 0) : start])
    within = spelled_out(text[start : min(end, start + _WITHIN)])
    after = spelled_out(text[end : end + _AFTER])
    cut_before = start > _BEFORE or len(before) > _BEFORE
    cut_within = end - start > _WITHIN or len(within) > _WITHIN
    cut_after = len(text) > end + _AFTER or len(after) > _AFTER
    return (
        f"{'…' if cut_before else ''}{before[-_BEFORE:]}"
        f"{within[:_WITHIN]}{'…' if cut_within else ''}"
        f"{after[:_AFTER]}{'…' if cut_after else ''}"
    ).strip()
