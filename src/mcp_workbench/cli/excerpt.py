"""The line of a configuration file that a problem is about, without the values that may be secret."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

# A string, closed or not, that is a key if a colon follows; a bare word; or what stands between them.
_PIECE = re.compile(
    r'(?P<string>"(?:[^"\\]|\\.)*"?)(?P<key>(?=\s*:))?|(?P<word>[^\s,:\[\]{}"]+)|[\s,:\[\]{}]'
)
_VARIABLE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*(?=:-|\})")
_HARMLESS_WORD = re.compile(r"true|false|null|-?\d{1,6}(\.\d{1,3})?")
_HARMLESS_KEY = re.compile(
    r"\.(type|transport|description|era|scope|toolFilters(\[\d+\])?)$|^toolMode$"
)
_BLANKS = str.maketrans(
    "\t\r", "  "
)  # each as wide as a column; some files end lines with CR alone
WIDEST = 76  # characters of a line; more is of no use above a caret


class Excerpt(NamedTuple):
    """A line as it may be shown, and where in it the problem stands."""

    text: str
    offset: int
    width: int


def excerpt(line: str, column: int, path: str) -> Excerpt:
    """What may be shown of a line: its keys, not its values, for a pasted token may stand anywhere.

    The exception is the value that the problem is about, where its key never holds a secret.
    """
    shown, offset, width = "", len(line), 1
    for piece, told in _pieces(line, column, path):
        if piece.start() < column <= piece.end():
            offset, width = len(shown), len(told)
        shown += told
    first = max(min(len(shown) - len(shown.lstrip()), offset), offset + width + 1 - WIDEST)
    text = shown[first:].rstrip()
    cut = text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"
    return Excerpt(cut, offset - first, min(width, WIDEST))


def _pieces(line: str, column: int, path: str) -> Iterator[tuple[re.Match[str], str]]:
    meant = False  # the value at the column, or the one whose key stands there
    for piece in _PIECE.finditer(line.translate(_BLANKS)):
        meant = meant or piece.start() < column <= piece.end()
        shows = meant and piece["string"] and piece["key"] is None and _HARMLESS_KEY.search(path)
        meant = meant and not shows and piece.group() != ","
        yield piece, piece.group() if shows else _masked(piece)


def _masked(piece: re.Match[str]) -> str:
    whole = piece.group()
    if piece["string"] and piece["key"] is None:
        variables = "".join(f"{name}}}…" for name in _VARIABLE.findall(whole))
        return f'"…{variables}"'
    if piece["word"] and not _HARMLESS_WORD.fullmatch(whole):
        return "…"
    return whole
