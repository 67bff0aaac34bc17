"""A form's fields are those of its schema, whatever the server wrote into it."""

from typing import Any

import pytest

from mcp_workbench.schema.form_fields import FormField, fits_format, form_fields

SCHEMA: dict[str, Any] = {
    "properties": {
        "name": {"type": "string", "title": "Your name", "minLength": 1, "maxLength": 20},
        "age": {"type": "integer", "minimum": 18, "description": "in years", "default": 30},
        "unit": {"enum": ["km", "mi"], "enumNames": ["Kilometres", "Miles"]},
        "tags": {"type": "array", "maxItems": 2, "items": {"anyOf": [{"const": "a"}, {}]}},
        "sure": {"type": "boolean"},
    },
    "required": ["name", 7],
}


def test_each_property_is_a_field() -> None:
    name, age, unit, tags, sure = form_fields(SCHEMA)

    assert (name.label, name.kind, name.required, name.bounds) == (
        "Your name",
        "string",
        True,
        (1, 20),
    )
    assert (age.label, age.about, age.default, age.bounds) == ("age", "in years", 30, (18, None))
    assert (unit.kind, unit.choices) == ("choice", (("km", "Kilometres"), ("mi", "Miles")))
    assert (tags.kind, tags.choices, tags.bounds) == ("choices", (("a", "a"),), (None, 2))
    assert (sure.kind, sure.required) == ("boolean", False)


@pytest.mark.parametrize("schema", [None, [], {}, {"properties": []}, {"required": "x"}])
def test_a_schema_without_properties_has_no_fields(schema: Any) -> None:
    assert form_fields(schema) == []


def test_odd_keywords_are_ignored() -> None:
    odd: dict[str, Any] = {
        "title": 1,
        "description": [],
        "minLength": "x",
        "maxLength": True,
        "enum": "no list",
    }

    [field] = form_fields({"properties": {"a": odd}})

    assert field == FormField("a", "a", "string", schema=odd)
    assert field.bounds == (None, None)


@pytest.mark.parametrize(
    ("text", "name", "fits"),
    [
        ("a@example.com", "email", True),
        ("example.com", "email", False),
        ("https://example.com", "uri", True),
        ("no address", "uri", False),
        ("2026-02-28", "date", True),
        ("2026-02-30", "date", False),
        ("2026-02-28T10:00:00", "date-time", True),
        ("10 o'clock", "date-time", False),
        ("anything", "hostname", True),
    ],
)
def test_known_formats_are_checked(text: str, name: str, fits: bool) -> None:
    assert fits_format(text, name) is fits
