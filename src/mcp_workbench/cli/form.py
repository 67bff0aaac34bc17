"""A server's form: its fields, and what a person typed into one of them."""

import math
from typing import Any, cast

import msgspec

from mcp_workbench.core.errors import did_you_mean

Json = dict[str, Any]
Choices = tuple[tuple[str, str], ...]

_YES = frozenset({"y", "yes", "true", "1", "on"})
_NO = frozenset({"n", "no", "false", "0", "off"})
_FORMATS = {
    "email": "an e-mail address",
    "uri": "an address such as https://…",
    "date": "YYYY-MM-DD",
    "date-time": "YYYY-MM-DDThh:mm:ss",
}


class BadValue(Exception):
    """This can't be the value; the text says what can."""


class Field(msgspec.Struct, frozen=True):
    """One thing to fill in."""

    name: str
    label: str
    kind: str  # string, integer, number, boolean, choice, choices
    about: str = ""
    choices: Choices = ()  # each with the title that is shown
    required: bool = False
    schema: Json = {}

    @property
    def default(self) -> Any:
        return self.schema.get("default")


def fields(schema: Any) -> list[Field]:
    """The fields of a form, in its order."""
    whole = _object(schema)
    required: Any = whole.get("required")
    needed = {name for name in _list(required) if isinstance(name, str)}
    found = _object(whole.get("properties"))
    return [_field(name, _object(inner), required=name in needed) for name, inner in found.items()]


def _field(name: str, schema: Json, *, required: bool) -> Field:
    many = schema.get("type") == "array"
    choices = _choices(_object(schema.get("items")) if many else schema)
    kind = str(schema.get("type", "string"))
    if choices or many:
        kind = "choices" if many else "choice"
    about, label = schema.get("description"), schema.get("title")
    return Field(
        name,
        label if isinstance(label, str) and label else name,
        kind,
        about if isinstance(about, str) else "",
        choices,
        required,
        schema,
    )


def _choices(schema: Json) -> Choices:
    listed = _list(schema.get("enum"))
    if listed:
        titles = _list(schema.get("enumNames"))
        named = titles if len(titles) == len(listed) else listed
        return tuple((str(v), str(t)) for v, t in zip(listed, named, strict=True))
    options = [_object(option) for key in ("oneOf", "anyOf") for option in _list(schema.get(key))]
    return tuple(
        (str(o["const"]), str(o.get("title", o["const"]))) for o in options if "const" in o
    )


def hint(field: Field) -> str:
    """What the field takes, in a few words."""
    if field.kind == "boolean":
        return "yes or no"
    if field.kind == "choice":
        return f"1 to {len(field.choices)}, or a name"
    if field.kind == "choices":
        return "numbers or names, with commas between them"
    if field.kind in ("integer", "number"):
        low, high = field.schema.get("minimum"), field.schema.get("maximum")
        word = "a whole number" if field.kind == "integer" else "a number"
        return f"{word}{f' from {low}' if low is not None else ''}{f' to {high}' if high is not None else ''}"
    return _FORMATS.get(str(field.schema.get("format", "")), "text")


def shown(field: Field, value: Any) -> str:
    """A value as its person would write it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(shown(field, item) for item in cast("list[Any]", value))
    return dict(field.choices).get(str(value), str(value))


def read(field: Field, text: str) -> Any:
    """The value that was typed. Raises BadValue."""
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


def _number(field: Field, text: str) -> float:
    try:
        value = int(text) if field.kind == "integer" else float(text)
    except ValueError:
        raise BadValue(f"{hint(field)}, please") from None
    low, high = field.schema.get("minimum"), field.schema.get("maximum")
    too_low = isinstance(low, int | float) and value < low
    too_high = isinstance(high, int | float) and value > high
    if too_low or too_high or value in (math.inf, -math.inf) or math.isnan(value):
        raise BadValue(f"{hint(field)}, please")
    return value


def _choice(field: Field, text: str) -> str:
    word = text.strip()
    for value, title in field.choices:
        if word in (value, title) or word.lower() in (value.lower(), title.lower()):
            return value
    if word.isdecimal() and 1 <= int(word) <= len(field.choices):
        return field.choices[int(word) - 1][0]
    near = did_you_mean(word, [title for _, title in field.choices])
    raise BadValue(f"that is none of them{f': {near}' if near else ''}")


def _several(field: Field, text: str) -> list[str]:
    parts = [part for part in text.split(",") if part.strip()]
    found = list(dict.fromkeys(_choice(field, part) if field.choices else part for part in parts))
    low, high = field.schema.get("minItems"), field.schema.get("maxItems")
    if isinstance(low, int) and len(found) < low:
        raise BadValue(f"at least {low} of them, please")
    if isinstance(high, int) and len(found) > high:
        raise BadValue(f"at most {high} of them, please")
    return found


def _text(field: Field, text: str) -> str:
    low, high = field.schema.get("minLength"), field.schema.get("maxLength")
    if isinstance(low, int) and len(text) < low:
        raise BadValue(f"at least {low} characters, please")
    if isinstance(high, int) and len(text) > high:
        raise BadValue(f"at most {high} characters, please")
    if not _has_format(text, str(field.schema.get("format", ""))):
        raise BadValue(f"{hint(field)}, please")
    return text


def _has_format(text: str, form: str) -> bool:
    from datetime import date, datetime  # only while somebody types

    match form:
        case "email":
            name, at, domain = text.rpartition("@")
            return bool(name and at and domain) and " " not in text
        case "uri":
            scheme, colon, rest = text.partition(":")
            return bool(colon and rest) and scheme[:1].isalpha() and " " not in text
        case "date" | "date-time":
            try:
                (date if form == "date" else datetime).fromisoformat(text)
            except ValueError:
                return False
            return True
        case _:
            return True


def _object(value: Any) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
