"""Where the statements of a TOML text stand. Whether it is TOML at all, `tomllib` has said before."""

import re

import msgspec

Keys = tuple[str, ...]

_LINE = re.compile(r"[ \t]*(?:#[^\n]*)?\r?(?:\n|\Z)")  # blank, or a comment
_BLANK = re.compile(r"[ \t]*")
_KEY = re.compile(
    r"""[ \t]*(?:(?P<bare>[A-Za-z0-9_-]+)|"(?P<basic>(?:[^"\\\n]|\\.)*)"|'(?P<literal>[^'\n]*)')[ \t]*"""
)
_TOKEN = re.compile(  # what a value is made of; strings and comments first, for they hide the rest
    r'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}'
    r"|'''(?:[^']|'(?!''))*'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'"
    r"|\#[^\n]*"
    r"|[\[{]|[\]}]|\n|[^\"'\#\[\]{}\n]+",
    re.DOTALL,
)


class Statement(msgspec.Struct, frozen=True):
    """A table's header or a `key = value`, on whole lines: `text[start:end]`."""

    path: Keys  # the whole path of what it defines
    start: int
    end: int
    header: bool
    value: int = 0  # where the value begins


def statements(text: str) -> list[Statement]:
    """Every statement in its order; comments and blank lines belong to none."""
    found: list[Statement] = []
    table: Keys = ()
    at = 1 if text.startswith("\ufeff") else 0
    while at < len(text):
        line = _LINE.match(text, at)
        if line and line.end() > at:
            at = line.end()
            continue
        blank = _BLANK.match(text, at)
        first = blank.end() if blank else at
        if text[first] == "[":
            brackets = 2 if text.startswith("[[", first) else 1
            table, _ = _keys(text, first + brackets)
            end = _line_end(text, first)
            found.append(Statement(table, at, end, header=True))
        else:
            keys, after = _keys(text, first)
            end = _value_end(text, after + 1)
            found.append(Statement((*table, *keys), at, end, header=False, value=after + 1))
        at = end
    return found


def _keys(text: str, at: int) -> tuple[Keys, int]:
    """A dotted key, and the offset behind it."""
    keys: list[str] = []
    while part := _KEY.match(text, at):
        keys.append(_plain(part))
        at = part.end()
        if text[at : at + 1] != ".":
            break
        at += 1
    return tuple(keys), at


def _plain(part: re.Match[str]) -> str:
    if part["basic"] is None:
        return part["bare"] or part["literal"] or ""
    import tomllib  # only commands that read such files come here

    return tomllib.loads(f'k = "{part["basic"]}"')["k"]


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1


def _value_end(text: str, at: int) -> int:
    """Behind the line break that ends the value: one outside of strings and brackets."""
    depth = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            return len(text)
        at = token.end()
        word = token[0]
        if word in "[{":
            depth += 1
        elif word in "]}":
            depth -= 1
        elif word == "\n" and depth == 0:
            return at
    return at
