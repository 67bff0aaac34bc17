"""The careful reading of a wrong call: every problem at once, in order, with its path."""

import json
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mcp_workbench.core.errors import InvalidCall
from mcp_workbench.core.raw_json import LARGE, LONGEST_NAME, MOST_MEMBERS
from mcp_workbench.core.spec import ToolIdentifier
from mcp_workbench.server.own_definitions import (
    open_toolbox_definition,
    use_tool_definition,
)
from mcp_workbench.server.tool_requests import (
    WantedPart,
    read_open_toolbox,
    read_tool,
    read_use_tool,
)
from mcp_workbench.server.wrong_arguments import renamed_hint, wrong_reading
from tests.kit.config import snapshot
from tests.kit.results import raw

GOOD = {"toolbox": "dev", "server": "fs", "tool": "read"}


def allowed(schema: Any, value: Any) -> bool:
    validator: Any = jsonschema.Draft202012Validator(schema)
    return validator.is_valid(value)


def problems(value: Any) -> str:
    with pytest.raises(InvalidCall) as caught:
        read_use_tool(raw(value))
    text = str(caught.value)
    assert text.startswith("Invalid parameters: ")
    return text.removeprefix("Invalid parameters: ")


def test_a_right_call_is_read() -> None:
    tool, arguments, _ = read_use_tool(raw({"tool": GOOD, "arguments": {"a": 1.5}}))

    assert tool == ToolIdentifier("dev", "fs", "read")
    assert bytes(arguments) == b'{"a":1.5}'


@pytest.mark.parametrize(
    "doubled",
    [
        b'{"tool":5,"tool":%b,"arguments":{"a":1.50}}',
        b'{"tool":{"x":1},"arguments":{"a":1.50},"tool":%b}',
        b'{"arguments":[],"tool":%b,"arguments":{"a":1.50}}',
        b'{"tool":{"toolbox":"","server":null,"x":1},"tool":%b,"arguments":{"a":1.50}}',
    ],
)
def test_of_a_name_that_stands_twice_the_last_value_counts(doubled: bytes) -> None:
    tool, arguments, _ = read_use_tool(msgspec.Raw(doubled % json.dumps(GOOD).encode()))

    assert tool == ToolIdentifier("dev", "fs", "read")
    assert bytes(arguments) == b'{"a":1.50}'


def test_so_it_is_inside_a_tool() -> None:
    twice = b'{"tool":{"toolbox":5,"server":"fs","tool":"read","toolbox":"dev"}}'

    assert read_use_tool(msgspec.Raw(twice))[0] == ToolIdentifier("dev", "fs", "read")


def test_so_it_is_with_our_other_tools() -> None:
    assert read_open_toolbox(b'{"toolbox_name":5,"toolbox_name":"dev"}') == ("dev", None)


def test_a_last_value_that_is_wrong_is_told() -> None:
    wrong = b'{"tool":%b,"tool":5}' % json.dumps(GOOD).encode()

    with pytest.raises(InvalidCall, match="tool: Expected object, received number"):
        read_use_tool(msgspec.Raw(wrong))


def test_the_retired_form_is_hinted_at_beside_the_right_one_too() -> None:
    with pytest.raises(InvalidCall) as caught:
        read_use_tool(raw({"tool": GOOD, "tool_name": "dev__fs__read"}))

    assert str(caught.value) == 'Invalid parameters: Unrecognized key: "tool_name"'
    assert caught.value.hint == renamed_hint()


def test_the_form_of_the_typescript_versions_after_ours_is_explained() -> None:
    theirs = {"toolbox": "dev", "server": "fs", "name": "read"}
    with pytest.raises(InvalidCall) as caught:
        read_use_tool(raw({"tool": theirs}))

    assert str(caught.value) == (
        'Invalid parameters: tool.tool: Required; tool: Unrecognized key: "name"'
    )
    assert caught.value.hint == (
        '"name" of the TypeScript workbench (0.12 to 0.14) is "tool" in the identifier: '
        '{"tool": {"toolbox": "…", "server": "…", "tool": "…"}, "arguments": {…}}. '
        "More: mcp-workbench explain migration"
    )


@pytest.mark.parametrize("native", [False, True])
def test_so_is_their_form_of_open_toolbox(*, native: bool) -> None:
    with pytest.raises(InvalidCall) as caught:
        read_open_toolbox(b'{"toolbox":"dev"}', native=native)

    assert str(caught.value) == "Invalid parameters: toolbox_name: Required"
    assert caught.value.hint == (
        '"toolbox" of the TypeScript workbench (0.12 to 0.14) is "toolbox_name": '
        '{"toolbox_name": "…"}. More: mcp-workbench explain migration'
    )


def test_a_name_beside_the_right_key_is_no_other_form() -> None:
    with pytest.raises(InvalidCall) as caught:
        read_use_tool(raw({"tool": {**GOOD, "name": "read"}}))

    assert caught.value.hint == ""


def test_arguments_are_optional() -> None:
    assert bytes(read_use_tool(raw({"tool": GOOD}))[1]) == b"{}"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({}, "tool: Required"),
        ({"tool": {}}, "tool.toolbox: Required; tool.server: Required; tool.tool: Required"),
        ({"tool": {**GOOD, "server": ""}}, "tool.server: Server name cannot be empty"),
        ({"tool": {**GOOD, "toolbox": ""}}, "tool.toolbox: Toolbox name cannot be empty"),
        ({"tool": {**GOOD, "tool": ""}}, "tool.tool: Tool name cannot be empty"),
        ({"tool": {**GOOD, "tool": 5}}, "tool.tool: Expected string, received number"),
        ({"tool": {**GOOD, "tool": None}}, "tool.tool: Expected string, received null"),
        ({"tool": {**GOOD, "tool": True}}, "tool.tool: Expected string, received boolean"),
        ({"tool": {**GOOD, "tool": []}}, "tool.tool: Expected string, received array"),
        ({"tool": {**GOOD, "tool": {}}}, "tool.tool: Expected string, received object"),
        ({"tool": []}, "tool: Expected object, received array"),
        ({"tool": None}, "tool: Expected object, received null"),
        ({"tool": GOOD, "arguments": []}, "arguments: Expected object, received array"),
        ({"tool": GOOD, "arguments": None}, "arguments: Expected object, received null"),
        ({"tool": GOOD, "arguments": "{}"}, "arguments: Expected object, received string"),
        ({"tool": GOOD, "extraField": 1}, 'Unrecognized key: "extraField"'),
        ({"tool": {**GOOD, "extra": 1}}, 'tool: Unrecognized key: "extra"'),
        (
            {
                "extra": 1,
                "tool": {"more": 1, "tool": "", "toolbox": 3},
                "arguments": 5,
                "tool_name": "x",
            },
            (
                "tool.toolbox: Expected string, received number; tool.server: Required; "
                "tool.tool: Tool name cannot be empty; arguments: Expected object, received number; "
                'tool: Unrecognized key: "more"; Unrecognized key: "extra"; '
                'Unrecognized key: "tool_name"'
            ),
        ),
        ([], "Expected object, received array"),
        ("x", "Expected object, received string"),
        (5, "Expected object, received number"),
    ],
)
def test_every_problem_is_told_once_in_the_order_of_the_schema(value: Any, text: str) -> None:
    assert problems(value) == text


@pytest.mark.parametrize("value", [{"tool": "dev__fs__read"}, {"tool_name": "x"}])
def test_retired_inputs_get_the_new_form(value: Any) -> None:
    with pytest.raises(InvalidCall) as caught:
        read_use_tool(raw(value))

    assert '"tool": {"toolbox"' in caught.value.hint
    assert "mcp-workbench explain migration" in caught.value.hint


def test_other_mistakes_get_no_hint_about_retired_inputs() -> None:
    with pytest.raises(InvalidCall) as caught:
        read_use_tool(raw({"tool": {}}))

    assert caught.value.hint == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({}, "toolbox_name: Required"),
        ({"toolbox_name": ""}, "toolbox_name: Toolbox name cannot be empty"),
        ({"toolbox_name": 5}, "toolbox_name: Expected string, received number"),
        ([], "Expected object, received array"),
        (
            {"toolbox_name": "x", "detail": "more"},
            "detail: must be one of schema, full, signature, names",
        ),
    ],
)
def test_opening_is_read_with_the_same_care(value: Any, text: str) -> None:
    with pytest.raises(InvalidCall, match=r"^Invalid parameters: ") as caught:
        read_open_toolbox(raw(value))

    assert str(caught.value) == f"Invalid parameters: {text}"


LONG = "x" * (LARGE + 1)


def test_a_large_call_is_read_like_a_small_one() -> None:
    tool, arguments, wanted = read_use_tool(
        raw({"tool": GOOD, "arguments": {"text": LONG}, "lines": "1", "context": 2})
    )

    assert tool == ToolIdentifier("dev", "fs", "read")
    assert json.loads(bytes(arguments)) == {"text": LONG}
    assert wanted == WantedPart(lines="1", context=2)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([LONG], "Expected object, received array"),
        (LONG, "Expected object, received string"),
        ({"tool": GOOD, "arguments": [LONG]}, "arguments: Expected object, received array"),
        ({"arguments": {"text": LONG}}, "tool: Required"),
        (
            {"tool": {**GOOD, "tool": ""}, "arguments": {"text": LONG}, "extra": 1},
            'tool.tool: Tool name cannot be empty; Unrecognized key: "extra"',
        ),
        ({"tool": {**GOOD, "tool": LONG}}, "tool: longer than 64 KiB"),
        (
            {"tool": GOOD, "arguments": {}, **{f"k{n}": "x" * (LARGE // 2) for n in range(2)}},
            "all beside arguments: longer than 64 KiB",
        ),
        (
            {"tool": GOOD, **dict.fromkeys(map(str, range(MOST_MEMBERS)), 0)},
            f"an object with more than {MOST_MEMBERS} members",
        ),
    ],
)
def test_so_are_the_problems_of_a_large_one(value: Any, text: str) -> None:
    assert problems(value) == text


def test_more_members_than_anybody_would_send_are_told_in_place_of_other_problems() -> None:
    many = raw({"toolbox_name": 5, **dict.fromkeys(map(str, range(MOST_MEMBERS)), 0)})

    with pytest.raises(InvalidCall) as caught:
        read_open_toolbox(many)
    texts = {str(caught.value), str(wrong_reading(many, "query", {}))}
    assert texts == {f"Invalid parameters: an object with more than {MOST_MEMBERS} members"}


@pytest.mark.parametrize(
    ("text", "tool"),
    [
        (json.dumps(GOOD), ToolIdentifier("dev", "fs", "read")),
        (json.dumps({**GOOD, "more": 1}), None),
        (json.dumps({**GOOD, "tool": ""}), None),
        (json.dumps({**GOOD, "tool": "x" * LONGEST_NAME}), None),
        ('{"toolbox":', None),
        ("[" * 3000, None),
    ],
)
def test_a_tool_that_has_another_form_is_none(text: str, tool: ToolIdentifier | None) -> None:
    assert read_tool(text.encode()) == tool


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"context": "x"}, "context: Expected integer, received string"),
        ({"context": 1.5}, "context: Expected integer, received number"),
        (
            {"lines": 5, "select": []},
            "lines: Expected string, received number; select: Expected string, received array",
        ),
        ({"context": -3, "handle": None}, "handle: Expected string, received null"),
    ],
)
def test_a_wanted_part_of_another_type_is_told(value: Any, text: str) -> None:
    assert problems({"tool": GOOD, **value}) == text


def test_opening_ignores_other_keys() -> None:
    assert read_open_toolbox(raw({"toolbox_name": "dev", "other": 5})) == ("dev", None)


names = st.sampled_from(["", "x", "dev"]) | st.integers() | st.none() | st.lists(st.none())
identifiers = st.dictionaries(st.sampled_from(["toolbox", "server", "tool", "extra"]), names)
wishes = st.dictionaries(
    st.sampled_from(["tool", "arguments", "tool_name", "x", "toolbox_name"]),
    identifiers | names,
)


@given(wishes)
@example({"tool": GOOD, "arguments": {"toolbox": 1}})
def test_what_the_schema_allows_is_accepted_and_nothing_else(value: dict[str, Any]) -> None:
    if allowed(use_tool_definition()["inputSchema"], value):
        assert read_use_tool(raw(value))[0] == ToolIdentifier(**value["tool"])
    else:
        assert problems(value)


@given(wishes)
def test_the_same_holds_for_opening(value: dict[str, Any]) -> None:
    if allowed(open_toolbox_definition(snapshot())["inputSchema"], value):
        assert read_open_toolbox(raw(value)) == (value["toolbox_name"], None)
    else:
        with pytest.raises(InvalidCall):
            read_open_toolbox(raw(value))


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1" * 500, "0.1" + "0" * 500])
def test_no_number_is_too_odd_to_be_told_about(number: str) -> None:
    text = f'{{"tool":"x","arguments":{{"n":{number}}}}}'

    with pytest.raises(InvalidCall, match="tool: Expected object, received string"):
        read_use_tool(text.encode())


def test_an_empty_name_is_empty_however_it_is_spelled() -> None:
    spaced = json.dumps({"tool": {**GOOD, "tool": ""}}, indent=2).encode()

    with pytest.raises(InvalidCall, match=r"tool\.tool: Tool name cannot be empty"):
        read_use_tool(spaced)
