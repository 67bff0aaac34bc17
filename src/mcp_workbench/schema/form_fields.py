"""The schema of a form that a server asks a person to fill in: its fields, and what each takes."""

from __future__ import annotations

from typing import Any

import msgspec

from mcp_workbench.schema.document import as_list, as_object, is_type, properties_of, required_of

Json = dict[str, Any]
Choices = tuple[tuple[str, str], ...]

_BOUNDS = {
    "integer": ("minimum", "maximum"),
    "number": ("minimum", "maximum"),
    "choices": ("minItems", "maxItems"),
}
_LENGTH = ("minLength", "maxLength")


class FormField(msgspec.Struct, frozen=True):
    """One field of a form."""

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

    @property
    def format(self) -> str:
        return str(self.schema.get("format", ""))

    @property
    def bounds(self) -> tuple[Any, Any]:
        """The least and the most: of a number, of choices, of characters; None: no bound."""
        low, high = (self.schema.get(key) for key in _BOUNDS.get(self.kind, _LENGTH))
        return low if is_type(low, "number") else None, high if is_type(high, "number") else None


def form_fields(schema: Any) -> list[FormField]:
    """Returns the fields of a form, in its order."""
    whole = as_object(schema)
    required = frozenset(required_of(whole))
    return [
        _field(name, as_object(inner), required=name in required)
        for name, inner in properties_of(whole).items()
    ]


def fits_format(text: str, name: str) -> bool:
    """Does the text have this format? Every text has an unknown format."""
    from datetime import date, datetime  # only while somebody types

    match name:
        case "email":
            user, at, domain = text.rpartition("@")
            return bool(user and at and domain) and " " not in text
        case "uri":
            scheme, colon, rest = text.partition(":")
            return bool(colon and rest) and scheme[:1].isalpha() and " " not in text
        case "date" | "date-time":
            try:
                (date if name == "date" else datetime).fromisoformat(text)
            except ValueError:
                return False
            return True
        case _:
            return True


def _field(name: str, schema: Json, *, required: bool) -> FormField:
    many = schema.get("type") == "array"
    choices = _choices(as_object(schema.get("items")) if many else schema)
    kind = str(schema.get("type", "string"))
    if choices or many:
        kind = "choices" if many else "choice"
    about, label = schema.get("description"), schema.get("title")
    return FormField(
        name,
        label if isinstance(label, str) and label else name,
        kind,
        about if isinstance(about, str) else "",
        choices,
        required,
        schema,
    )


def _choices(schema: Json) -> Choices:
    values = as_list(schema.get("enum"))
    if values:
        titles = as_list(schema.get("enumNames"))
        named = titles if len(titles) == len(values) else values
        return tuple((str(v), str(t)) for v, t in zip(values, named, strict=True))
    options = [as_object(o) for key in ("oneOf", "anyOf") for o in as_list(schema.get(key))]
    return tuple(
        (str(o["const"]), str(o.get("title", o["const"]))) for o in options if "const" in o
    )
