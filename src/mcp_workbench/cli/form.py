"""A field of a server's form in words, and the value that a person typed into it."""

import math
from typing import Any, cast

from mcp_workbench.core.errors import did_you_mean
from mcp_workbench.schema.form import FormField, fits_format

_YES = frozenset({"y", "yes", "true", "1", "on"})
_NO = frozenset({"n", "no", "false", "0", "off"})
_FORMATS = {
    "email": "an e-mail address",
    "uri": "an address such as https://…",
    "date": "YYYY-MM-DD",
    "date-time": "YYYY-MM-DDThh:mm:ss",
}


class BadValue(Exception):
    """The text is not a value of the field; the message says what is."""


def hint(field: FormField) -> str:
    """Returns what the field takes, in a few words."""
    if field.kind == "boolean":
        return "yes or no"
    if field.kind == "choice":
        return f"1 to {len(field.choices)}, or a name"
    if field.kind == "choices":
        return "numbers or names, with commas between them"
    if field.kind in ("integer", "number"):
        low, high = field.bounds
        word = "a whole number" if field.kind == "integer" else "a number"
        return f"{word}{f' from {low}' if low is not None else ''}{f' to {high}' if high is not None else ''}"
    return _FORMATS.get(field.format, "text")


def shown(field: FormField, value: Any) -> str:
    """Returns a value as a person would write it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(shown(field, item) for item in cast("list[Any]", value))
    return dict(field.choices).get(str(value), str(value))


def read(field: FormField, text: str) -> Any:
    """Returns the value that was typed. Raises BadValue."""
    match field.kind:
        case "boolean":
            return _truth(text)
        case "integer" | "number":
            return _number(field, text)
        case "choice":
            return _choice(field, text)
        case "choices":
            return _several(field, text)
        case _:
            return _text(field, text)


def _truth(text: str) -> bool:
    word = text.strip().lower()
    if word not in _YES | _NO:
        raise BadValue("yes or no, please")
    return word in _YES


def _number(field: FormField, text: str) -> float:
    try:
        value = int(text) if field.kind == "integer" else float(text)
    except ValueError:
        raise BadValue(f"{hint(field)}, please") from None
    low, high = field.bounds
    too_low = low is not None and value < low
    too_high = high is not None and value > high
    if too_low or too_high or value in (math.inf, -math.inf) or math.isnan(value):
        raise BadValue(f"{hint(field)}, please")
    return value


def _choice(field: FormField, text: str) -> str:
    word = text.strip()
    for value, title in field.choices:
        if word in (value, title) or word.lower() in (value.lower(), title.lower()):
            return value
    if word.isdecimal() and 1 <= int(word) <= len(field.choices):
        return field.choices[int(word) - 1][0]
    near = did_you_mean(word, [title for _, title in field.choices])
    raise BadValue(f"that is none of them{f': {near}' if near else ''}")


def _several(field: FormField, text: str) -> list[str]:
    parts = [part for part in text.split(",") if part.strip()]
    values = list(dict.fromkeys(_choice(field, part) if field.choices else part for part in parts))
    _require_bounds(field, len(values), "of them")
    return values


def _text(field: FormField, text: str) -> str:
    _require_bounds(field, len(text), "characters")
    if not fits_format(text, field.format):
        raise BadValue(f"{hint(field)}, please")
    return text


def _require_bounds(field: FormField, count: int, what: str) -> None:
    low, high = field.bounds
    if low is not None and count < low:
        raise BadValue(f"at least {low} {what}, please")
    if high is not None and count > high:
        raise BadValue(f"at most {high} {what}, please")
