"""Arguments that were typed as text, as their schema wants them: `2` is a number where it takes one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mcp_workbench.core.raw_json import TooComplex
from mcp_workbench.schema.mismatches import Mismatch, mismatches
from mcp_workbench.transport.json_text import read_json

Json = dict[str, Any]


def typed(schema: Json, arguments: Json, texts: Iterable[str]) -> Json:
    """Returns the arguments, with those named in `texts` as the schema wants them.

    A text stays a text where the schema takes one, and where it does not say what it takes. Otherwise
    its JSON value is used if the schema takes values of that type; if not, the text stays, and a check
    reports it.
    """
    return arguments | {name: _value(schema, name, arguments[name]) for name in texts}


def _value(schema: Json, name: str, text: str) -> Any:
    try:
        if not _about(schema, name, text):
            return text
        value = read_json(text)
        refused = isinstance(value, str) or any(map(_is_whole, _about(schema, name, value)))
    except (ValueError, RecursionError, TooComplex):  # no JSON, or nothing is certain
        return text
    return text if refused else value


def _about(schema: Json, name: str, value: Any) -> list[Mismatch]:
    """Returns what the schema refuses of this one argument."""
    wrong = mismatches(schema, {name: value})
    return [m for m in wrong if m.path[:1] == (name,) and m.kind != "unknown"]


def _is_whole(mismatch: Mismatch) -> bool:
    """Is the value of another type? A limit, or a member inside it, is reported of the value itself."""
    return len(mismatch.path) == 1 and mismatch.kind != "limit"
