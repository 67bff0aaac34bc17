"""A text becomes the value that its schema wants; nothing is guessed where the schema does not say."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_workbench.schema.text_values import typed

NULL = {"type": "null"}
INT = {"type": "integer"}
TEXT = {"type": "string"}
NEEDY = {"type": "object", "properties": {"a": INT}, "required": ["a"]}


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        # One type
        (INT, "2", 2),
        (INT, "-2", -2),
        (INT, "2.0", 2.0),
        (INT, "2.5", "2.5"),
        (INT, "two", "two"),
        (INT, "007", "007"),
        (INT, "", ""),
        (INT, "true", "true"),
        (INT, "12345678901234567890123", 12345678901234567890123),
        ({"type": "number"}, "2", 2),
        ({"type": "number"}, "2.5", 2.5),
        ({"type": "number"}, "1e3", 1000.0),
        ({"type": "number"}, "NaN", "NaN"),
        ({"type": "boolean"}, "true", True),
        ({"type": "boolean"}, "false", False),
        ({"type": "boolean"}, "1", "1"),
        ({"type": "boolean"}, "yes", "yes"),
        (NULL, "null", None),
        ({"type": "array"}, '["a", 1]', ["a", 1]),
        ({"type": "array"}, "a,b", "a,b"),
        ({"type": "array", "items": INT}, '["a"]', ["a"]),  # the check names the item
        ({"type": "object"}, '{"a": 1}', {"a": 1}),
        (NEEDY, "{}", {}),  # the check names the member
        ({"type": "object"}, "[]", "[]"),
        ({"type": "object"}, '"{}"', '"{}"'),
        # Texts stay texts
        (TEXT, "2", "2"),
        (TEXT, "true", "true"),
        (TEXT, "null", "null"),
        (TEXT, '{"a": 1}', '{"a": 1}'),
        (TEXT | {"enum": ["1", "2"]}, "2", "2"),
        (TEXT | {"enum": ["1", "2"]}, "3", "3"),
        (TEXT | {"minLength": 5}, "12", "12"),
        # Several types
        ({"type": ["integer", "null"]}, "2", 2),
        ({"type": ["integer", "null"]}, "null", None),
        ({"type": ["string", "null"]}, "null", "null"),
        ({"type": ["string", "integer"]}, "2", "2"),
        ({"anyOf": [INT, NULL]}, "2", 2),
        ({"anyOf": [INT, NULL]}, "null", None),
        ({"anyOf": [INT, NULL]}, "x", "x"),
        ({"anyOf": [TEXT, INT]}, "2", "2"),
        ({"anyOf": [INT, {"type": "array", "items": INT}]}, "[1, 2]", [1, 2]),
        ({"oneOf": [{"type": "boolean"}, INT]}, "true", True),
        ({"oneOf": [NEEDY, NULL]}, '{"a": 1}', {"a": 1}),
        ({"oneOf": [NEEDY, NULL]}, "{}", {}),
        ({"allOf": [INT, {"minimum": 1}]}, "2", 2),
        ({"anyOf": [{"$ref": "#/$defs/count"}, NULL]}, "2", 2),
        ({"$ref": "#/$defs/count"}, "2", 2),
        # Values
        ({"enum": [1, 2]}, "2", 2),
        ({"enum": [1, 2]}, "3", "3"),
        ({"enum": [1, "1"]}, "1", "1"),
        ({"const": 7}, "7", 7),
        (INT | {"maximum": 5}, "9", 9),  # the check names the limit
        # Nothing is known
        ({}, "2", "2"),
        (True, "2", "2"),
        ({"type": "file"}, "2", "2"),
        ({"description": "a number"}, "2", "2"),
        ({"$ref": "https://example.com/count"}, "2", "2"),
        ({"anyOf": [INT, {}]}, "2", "2"),
    ],
)
def test_a_text_is_what_its_schema_wants(schema: Any, text: str, value: Any) -> None:
    whole = {"type": "object", "properties": {"x": schema}, "$defs": {"count": INT}}

    result = typed(whole, {"x": text}, {"x"})["x"]

    assert (result, type(result)) == (value, type(value))


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({}, "2"),
        ({"type": "object"}, "2"),
        ({"additionalProperties": False}, "2"),
        ({"additionalProperties": INT}, 2),
        ({"properties": "odd"}, "2"),
        ({"allOf": [{"properties": {"x": INT}}]}, 2),
        ({"properties": {"x": INT}, "required": ["y"]}, 2),
    ],
)
def test_the_rest_of_a_schema_decides_nothing(schema: Any, value: Any) -> None:
    assert typed(schema, {"x": "2"}, {"x"}) == {"x": value}


def test_only_what_was_typed_as_text_is_read() -> None:
    schema = {"properties": {"a": INT, "b": INT}}

    assert typed(schema, {"a": "1", "b": "2"}, {"a"}) == {"a": 1, "b": "2"}


def test_a_schema_that_is_too_large_to_follow_leaves_the_text() -> None:
    deep: Any = INT
    for _ in range(12):
        deep = {"anyOf": [{"allOf": [deep, NULL]}] * 4}

    assert typed({"properties": {"x": deep}}, {"x": "2"}, {"x"}) == {"x": "2"}
