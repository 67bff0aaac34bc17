"""The strings of a host's file that a preview must not show."""

import re
from collections.abc import Iterator
from typing import Any, cast

from mcp_workbench.core import jsonc
from mcp_workbench.hosts.secrets import (
    FLAG,
    PLAIN,
    REFERENCE,
    TELLTALE,
    header_argument,
    is_secret,
    secret_query,
)

Path = tuple[str | int, ...]
Span = tuple[int, int]

HIDDEN = "[hidden]"
# Objects whose values are nobody's business, whatever their names say.
_APART = {"env", "environment", "envs", "headers", "http_headers"}
# Variables in the hosts' own spelling: names, no values.
_NAMED = re.compile(r"(?:(?:Bearer )?(?:\$\{(?:env|input):[^}]+\}|\{env:\w+\}|\$\w+))")


def masked(text: str, format: str) -> str:
    """The text with every secret in it hidden."""
    if not text.strip():
        return text
    spans = sorted(set(_toml(text) if format == "toml" else _json(text)), reverse=True)
    for start, end in spans:
        text = f'{text[:start]}"{HIDDEN}"{text[end:]}'
    return text


def _json(text: str) -> Iterator[Span]:
    root = jsonc.read(text)
    for path in secret_strings(root.value):
        node = jsonc.find(root, path).node
        yield node.start, node.end


def _toml(text: str) -> Iterator[Span]:
    """Whole values: what stands under `env` and headers, what has a telling name or look."""
    from mcp_workbench.hosts.toml_scan import statements  # only where there is such a file

    for found in statements(text):
        if found.header:
            continue
        value = text[found.value : found.end].rstrip()
        words = value.replace("'", '"').split('"')
        listed = "args" in found.path and any(_hidden_words(words[1::2]))
        if _APART & set(found.path) or listed or _telling(found.path[-1], value.strip(" \"'")):
            start = found.value + (len(value) - len(value.lstrip()))
            yield start, found.value + len(value)


def secret_strings(value: Any, path: Path = ()) -> Iterator[Path]:
    """The paths of all strings that are, or may be, secrets."""
    if isinstance(value, dict):
        for key, item in cast("dict[str, Any]", value).items():
            yield from secret_strings(item, (*path, key))
    elif isinstance(value, list):
        items = cast("list[Any]", value)
        words = [item if isinstance(item, str) else "" for item in items]
        for index, (item, hidden) in enumerate(zip(items, _hidden_words(words), strict=True)):
            yield from [(*path, index)] if hidden else secret_strings(item, (*path, index))
    elif isinstance(value, str) and _hidden(path, value):
        yield path


def _hidden(path: Path, value: str) -> bool:
    named = _NAMED.fullmatch(value) or REFERENCE.search(value)
    if named and not TELLTALE.search(value):
        return False
    if _APART & set(path) and value.strip().lower() not in PLAIN:
        return True
    return _telling(str(path[-1]) if path else "", value)


def _telling(name: str, value: str) -> bool:
    return is_secret(name, value) or secret_query(value) or bool(header_argument(value))


def _hidden_words(words: list[str]) -> Iterator[bool]:
    """Of a command line: `--token X`, `--token=X`, and what gives itself away."""
    flag = ""
    for word in words:
        found = FLAG.fullmatch(word)
        assigned = bool(found and found[2] and is_secret(found[1], found[2]))
        yield assigned or (not found and _telling(flag, word))
        flag = found[1] if found and not found[2] else ""
