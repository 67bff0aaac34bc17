"""`json.loads` and `json.dumps` as servers use them, without what `json` loads for itself.

`json` needs `re`, which needs `enum`: they are half of the time in which a server starts, and the tests
start thousands. The parser and the writer are the interpreter's own, the same that `json` uses.
"""

from __future__ import annotations

import _json

TYPE_CHECKING = False  # so it is with `typing`
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

SPACE = " \t\n\r"


class _Usual:
    """How `json.JSONDecoder()` reads."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    array_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float  # NaN, Infinity, -Infinity


def _writer(text: Callable[[str], str]) -> Callable[[Any, int], tuple[str, ...]]:
    """As `json.JSONEncoder()` writes, with strings that are written so."""
    return _json.make_encoder({}, _refuse, text, None, ": ", ", ", False, False, True)


def _refuse(value: object) -> Any:
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


_scan = _json.make_scanner(_Usual())  # pyright: ignore[reportArgumentType]
_ascii = _writer(_json.encode_basestring_ascii)
_unicode = _writer(_json.encode_basestring)


def loads(data: str | bytes) -> Any:
    text = (data if isinstance(data, str) else data.decode("utf-8", "surrogatepass")).strip(SPACE)
    try:
        value, end = _scan(text, 0)
    except StopIteration as stop:
        raise ValueError(f"no value at {stop.value}: {text[:200]}") from None
    if end != len(text):
        raise ValueError(f"more after the value, at {end}: {text[:200]}")
    return value


def dumps(value: Any, *, ensure_ascii: bool = True) -> str:
    return "".join((_ascii if ensure_ascii else _unicode)(value, 0))
