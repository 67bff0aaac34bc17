"""What is said to be wrong with arguments is wrong, and names the place."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.core.call_request import CallRequest
from mcp_workbench.core.catalogue import Definition
from mcp_workbench.core.spec import ToolIdentifier
from mcp_workbench.gateway.arguments import error_with_hint, hint_for, result_with_hint
from mcp_workbench.schema.mismatches import MOST, explain, mismatches
from tests.kit.results import raw
from tests.schema.strategies import NAMES, SCALARS, SCHEMAS

VALUES = st.recursive(
    SCALARS, lambda one: st.lists(one, max_size=3) | st.dictionaries(NAMES, one, max_size=3)
)


@given(SCHEMAS, st.dictionaries(NAMES, VALUES, max_size=4))
def test_nothing_is_called_wrong_that_a_validator_accepts(
    schema: dict[str, Any], arguments: dict[str, Any]
) -> None:
    without_remote = json.loads(json.dumps(schema).replace("https://example.com/schema.json", "#"))
    told = explain(without_remote, arguments)

    assert len(told) <= MOST
    if told:
        with pytest.raises(
            (jsonschema.ValidationError, RecursionError)
        ):  # `$ref` may go in circles
            jsonschema.validate(arguments, without_remote, jsonschema.Draft202012Validator)


INTEGER = {"type": "integer"}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "minLength": 2},
        "count": {**INTEGER, "minimum": 1, "maximum": 9},
        "mode": {"enum": ["fast", "slow"]},
        "edits": {
            "type": "array",
            "maxItems": 2,
            "items": {"type": "object", "required": ["old"], "properties": {"old": {"type": "string"}}},
        },
        "either": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "link": {"$ref": "#/$defs/link"},
    },
    "required": ["path"],
    "additionalProperties": False,
    "$defs": {"link": {"type": "object", "required": ["to"], "additionalProperties": False, "properties": {"to": {"type": "string"}}}},
}  # fmt: skip
OPEN = {key: value for key, value in SCHEMA.items() if key != "additionalProperties"}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"path": "ab"}, []),
        ({}, ["path: Required"]),
        ({"pth": "x"}, ["path: Required", "pth: unknown. Did you mean 'path'?"]),
        ({"path": 5}, ["path: Expected string, received number"]),
        ({"path": "a"}, ["path: must have at least 2 characters"]),
        ({"path": "ab", "count": 1.0}, []),
        ({"path": "ab", "count": "1"}, ["count: Expected integer, received string"]),
        ({"path": "ab", "count": 10}, ["count: must be at most 9"]),
        ({"path": "ab", "count": True}, ["count: Expected integer, received boolean"]),
        (
            {"path": "ab", "mode": "fas"},
            ['mode: must be one of "fast", "slow", not "fas". Did you mean \'fast\'?'],
        ),
        ({"path": "ab", "edits": [{"old": "x"}, {"new": 1}]}, ["edits[1].old: Required"]),
        ({"path": "ab", "edits": [{"olld": "x"}]}, ["edits[0].old: Required, got 'olld'"]),
        (
            {"path": "ab", "edits": [{"old": ""}] * 3},
            ["edits: must have at most 2 items"],
        ),
        ({"path": "ab", "either": 5}, ["either: fits none of the forms that are allowed"]),
        ({"path": "ab", "link": {}}, ["link.to: Required"]),
    ],
)
def test_a_problem_has_its_path_and_the_nearest_name(
    arguments: dict[str, Any], told: list[str]
) -> None:
    assert explain(SCHEMA, arguments) == told


def test_a_name_too_many_is_no_problem_where_any_may_come() -> None:
    assert explain(OPEN, {"path": "ab", "more": 1}) == []
    assert explain(OPEN, {"pathh": "ab"}) == ["path: Required, got 'pathh'"]


# What a caller is told


def call(arguments: Any) -> CallRequest:
    return CallRequest(ToolIdentifier("d", "s", "edit"), {"arguments": raw(arguments)})


TOOL = Definition("edit", json.dumps({"name": "edit", "inputSchema": SCHEMA}).encode())


def test_the_lesson_is_the_problems_and_the_signature() -> None:
    told = hint_for(TOOL, call({"path": 5}))

    problems, signature = told.split("\n")
    assert problems == "path: Expected string, received number"
    assert signature.startswith('edit(path: string@{"minLength":2}, count?: int(1..9), ')


@pytest.mark.parametrize("definition", [b'{"name":"edit"}', b'{"name":"edit","inputSchema":7}'])
def test_where_nothing_is_wrong_nothing_is_said(definition: bytes) -> None:
    assert hint_for(TOOL, call({"path": "fine"})) == ""
    assert hint_for(Definition("edit", definition), call({"x": 1})) == ""


@pytest.mark.parametrize(
    "result",
    [
        b'{"content":[{"type":"text","text":"no"}],"isError":true}',
        b'{"content": [ ] , "x": 1e2, "isError":true}',
        b'{"content":[{"type":"new","n":1.0}],"isError":true}',
    ],
)
def test_a_lesson_comes_behind_the_server_s_words_and_changes_no_other_byte(result: bytes) -> None:
    taught = result_with_hint(result, "LESSON")

    block = b'{"type":"text","text":"LESSON"}'
    assert json.loads(taught)["content"][:-1] == json.loads(result)["content"]
    for found in (b"," + block, block):
        if found in taught:
            without = taught.replace(found, b"")
            assert without.replace(b" ", b"") == result.replace(b" ", b"")
            break
    else:
        pytest.fail("the hint_for is missing")


def test_an_error_keeps_its_code_and_data() -> None:
    error = raw(b'{"code":-32602,"message":"bad","data":{"n":1.0}}')

    assert bytes(error_with_hint(error, "bad", "LESSON")) == (
        b'{"code":-32602,"message":"bad\\nLESSON","data":{"n":1.0}}'
    )


def test_references_and_choices_of_members_can_be_left_to_the_server() -> None:
    arguments: dict[str, Any] = {
        "path": "here",
        "either": 5,
        "link": {},
        "mode": "fats",
        "count": "1",
    }

    everything = [(m.kind, m.path) for m in mismatches(SCHEMA, arguments)]
    direct = [(m.kind, m.path) for m in mismatches(SCHEMA, arguments, direct=True)]

    assert everything == [
        ("choice", ("either",)),
        ("missing", ("link", "to")),
        ("value", ("mode",)),
        ("type", ("count",)),
    ]
    assert direct == [("value", ("mode",)), ("type", ("count",))]
