"""The small pure parts: excerpts, signatures, progress, tables."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mcp_workbench.cli.call_arguments import argument_errors, argument_notes
from mcp_workbench.cli.error_reports import WIDEST, excerpt
from mcp_workbench.cli.terminal import plain, progress_text, table
from mcp_workbench.cli.tools import read_only, signature, tokens
from mcp_workbench.core.catalogue import ToolInfo

SECRETS = st.text(st.characters(codec="utf-8"), min_size=1).map(lambda text: f"sk{text}7q")


def tool(schema: Any, **definition: Any) -> ToolInfo:
    whole = {"name": "go", "inputSchema": schema} | definition
    return ToolInfo("go", "dev", "car", "", schema or {}, whole)


def pointed(line: str, column: int, path: str = "") -> str:
    shown = excerpt(line, column, path)
    return shown.text[shown.offset : shown.offset + shown.width]


def test_an_excerpt_shows_keys_and_hides_values() -> None:
    line = '    "env": {"TOKEN": "abc", "N": 12345678, "F": true},'
    shown = excerpt(line, 13, "toolboxes.dev.mcpServers.fs.env.TOKEN")
    assert shown.text == '"env": {"TOKEN": "…", "N": …, "F": true},'
    assert pointed(line, 13) == '"TOKEN"'


def test_an_excerpt_shows_the_value_in_question_where_it_is_harmless() -> None:
    line = '{"toolMode": "dynamix", "description": "other"}'
    assert excerpt(line, 2, "toolMode").text == '{"toolMode": "dynamix", "description": "…"}'
    assert pointed(line, 14, "toolMode") == '"dynamix"'


def test_an_excerpt_names_variables_but_not_their_defaults() -> None:
    assert excerpt('"X": "Bearer ${TOKEN:-abc}"', 7, "a.headers.X").text == '"X": "…${TOKEN}…"'


def test_an_excerpt_of_a_long_line_holds_what_it_points_at() -> None:
    line = "{" + ", ".join(f'"key{n}": {n}' for n in range(50)) + "}"
    shown = excerpt(line, line.index('"key40"') + 1, "")
    assert len(shown.text) <= WIDEST
    assert pointed(line, line.index('"key40"') + 1) == '"key40"'


@given(SECRETS, st.integers(1, 60))
@example("sk${7q", 1)  # begins like a variable
def test_an_excerpt_never_shows_a_secret(secret: str, column: int) -> None:
    quoted = json.dumps(secret, ensure_ascii=False)
    for value in (quoted, quoted[:-1], f"[{quoted}, 1]", f"{{{quoted[:-1]}"):
        shown = excerpt(f'  "TOKEN": {value}', column, "toolboxes.dev.mcpServers.fs.env.TOKEN")
        assert "7q" not in shown.text


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (
            {"properties": {"b": {"type": "string"}, "a": {"type": "integer"}}, "required": ["a"]},
            "go(a: int, b?: string)",
        ),
        ({"properties": {"l": {"type": "array", "items": {"type": "string"}}}}, "go(l?: string[])"),
        ({"properties": {"s": {"enum": ["open", "closed"]}}}, 'go(s?: "open"|"closed")'),
        (
            {"properties": {"n": {"type": ["number", "null"]}, "x": {}, "y": True}},
            "go(n?: num|null, x?: any, y?: any)",
        ),
        ({"properties": 7, "required": "x"}, "go()"),
        (None, "go()"),
    ],
)
def test_a_signature_survives_any_schema(schema: Any, told: str) -> None:
    assert signature(tool(schema)) == told


def test_an_open_schema_takes_unknown_arguments() -> None:
    schema: dict[str, Any] = {"properties": {"path": {"type": "string"}}}
    assert argument_errors(tool(schema), {"pth": "x"}, {"pth"}) == []
    closed = tool(schema | {"additionalProperties": False})
    assert argument_errors(closed, {"pth": "x"}, {"pth"}) == [
        "unknown argument 'pth' for dev/car/go (did you mean 'path'?)"
    ]


def test_a_slip_that_an_open_schema_lets_pass_is_remarked_on() -> None:
    info = tool({"properties": {"limit": {"type": "integer"}}})
    assert argument_notes(info, {"limits": 5, "other": 1}) == [
        "unknown argument 'limits' for dev/car/go (did you mean 'limit'?)"
    ]
    assert argument_notes(tool({}), {"anything": 1}) == []


def test_what_does_not_fit_is_told_with_its_place() -> None:
    schema: dict[str, Any] = {
        "properties": {
            "unit": {"type": "string", "enum": ["km", "mi"]},
            "edits": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"old": {"type": "string"}, "n": {"type": "integer"}},
                    "required": ["old"],
                    "additionalProperties": False,
                },
            },
            "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            "title": {"type": "string"},
            "flag": {"type": "boolean"},
        }
    }
    wrong = {
        "unit": "kmm",
        "edits": [{"old": "a", "n": 2.0}, {"n": 1.5, "odl": "x"}, 7],
        "either": None,
        "title": 5,
        "flag": 1,
    }
    assert argument_errors(tool(schema), wrong, set()) == [
        "argument 'unit' takes one of km, mi; not 'kmm' (did you mean 'km'?)",
        "missing 'old' in argument 'edits[1]'",
        "argument 'edits[1].n' takes int, not a number",
        "unknown 'odl' in argument 'edits[1]' (did you mean 'old'?)",
        "argument 'edits[2]' takes {old: string, n?: int}, not a number",
        "argument 'either' takes string|int, not null",
        "argument 'title' takes string, not a number: write title=5",
        "argument 'flag' takes bool, not a number",
    ]


def test_a_value_of_the_wrong_kind_is_told_however_it_was_typed() -> None:
    info = tool({"properties": {"n": {"type": "integer"}, "s": {"type": ["string", "integer"]}}})
    assert argument_errors(info, {"n": "x", "s": "1"}, {"n", "s"}) == [
        "argument 'n' takes int, not the text 'x'"
    ]
    assert argument_errors(info, {"n": "x"}, set()) == ["argument 'n' takes int, not text"]
    assert argument_errors(info, {"n": 2, "s": 1}, set()) == []


def test_limits_and_choices_are_told() -> None:
    count = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    tags = {"type": "array", "items": {"type": "string"}}
    size = {"type": "integer", "minimum": 3}
    info = tool({"properties": {"n": count, "tags": tags, "size": size, "no": False}})

    wrong = {"n": "x", "tags": "a,b", "size": 2, "no": 1}

    assert argument_errors(info, wrong, {"n", "tags"}) == [
        "argument 'n' takes int|null, not the text 'x'",
        "argument 'tags' takes string[], not the text 'a,b': write tags:=JSON",
        "argument 'size' must be at least 3",
        "argument 'no' is not allowed",
    ]


def test_claims_and_cost() -> None:
    assert read_only(tool({}, annotations={"readOnlyHint": True})) is True
    assert read_only(tool({}, annotations={"readOnlyHint": "yes"})) is None
    assert read_only(tool({}, annotations=None)) is None
    assert tokens(tool({})) == 9


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"progress": 1, "total": 4, "message": "half"}, "1/4 half"),
        ({"progress": 0.5}, "0.5"),
        ({"progress": "x", "message": 7}, ""),
        ({"message": "on it"}, "on it"),
    ],
)
def test_progress_in_words(params: dict[str, Any], told: str) -> None:
    assert progress_text(params) == told


def test_text_of_others_can_not_steer_a_terminal() -> None:
    assert plain("a\x1b[31mb\x07\u202ec\td\n") == "a\\x1b[31mb\\x07\\u202ec\td\n"


def test_a_table_is_as_wide_as_it_must_be() -> None:
    rows = [("A", "N"), ("long", "7"), ("x", "1234")]
    assert table(rows, right=frozenset({1})) == ["A        N", "long     7", "x     1234"]
    assert table([]) == []
