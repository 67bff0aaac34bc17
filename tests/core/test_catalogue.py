"""Definitions stay what the server wrote; the contract's views add to them."""

import json

import msgspec
import pytest

from mcp_workbench.core.catalogue import (
    Catalogue,
    Definition,
    KnownCatalogue,
    OpenToolboxResult,
    Unavailable,
    read_definitions,
    tool_info,
    tool_info_json,
)
from mcp_workbench.core.spec import ServerAddress, ToolFilter
from tests.kit.config import spec
from tests.kit.results import raw

HERE = ServerAddress("dev", "odd")


def definition(text: bytes) -> Definition:
    found, complaints = read_definitions([msgspec.Raw(text)])
    assert complaints == []
    [one] = found.values()
    return one


def test_unknown_members_and_number_forms_survive_byte_for_byte() -> None:
    text = b'{"name":"x","n":[1.0,1E+2,12345678901234567890,-0.0,null],"\\u00e9":"\\u00e9\\/","inputSchema":{}}'

    shown = tool_info_json(definition(text), HERE)

    assert shown == text[:-1] + b',"toolbox_name":"dev","source_server":"odd"}'


def test_white_space_between_tokens_is_left_out() -> None:
    spaced = b'{ "name" : "x" ,\r\n\t"d" : "a  b" }'

    assert definition(spaced).raw == b'{"name":"x","d":"a  b"}'


def test_one_odd_tool_costs_no_other() -> None:
    odd = [raw(5), raw({"title": "no name"}), raw({"name": 7}), raw({"name": ""}), raw(None)]

    found, complaints = read_definitions([raw({"name": "a"}), *odd, raw({"name": "b"})])

    assert list(found) == ["a", "b"]
    assert len(complaints) == len(odd)


def test_of_two_tools_with_one_name_the_first_is_kept_and_the_second_told() -> None:
    found, complaints = read_definitions([raw({"name": "a", "n": 1}), raw({"name": "a", "n": 2})])

    assert json.loads(found["a"].raw)["n"] == 1
    assert complaints == ["a second tool named 'a' was left out"]


@pytest.mark.parametrize("schema", [{}, {"properties": {}}, {"type": "array"}, None, [], "x"])
def test_a_tool_with_an_odd_schema_is_a_tool(schema: object) -> None:
    one = definition(msgspec.json.encode({"name": "odd", "inputSchema": schema}))

    assert json.loads(tool_info_json(one, HERE))["inputSchema"] == schema
    assert tool_info(one, HERE).input_schema == (schema if isinstance(schema, dict) else {})


def test_our_words_win_over_a_server_that_uses_them() -> None:
    one = definition(b'{"name":"x","toolbox_name":"evil","source_server":1,"k":1.0}')

    shown = tool_info_json(one, HERE)

    assert json.loads(shown) == {
        "name": "x",
        "toolbox_name": "dev",
        "source_server": "odd",
        "k": 1.0,
    }
    assert shown.count(b"toolbox_name") == shown.count(b"source_server") == 1
    assert b"1.0" in shown


def test_python_programs_see_the_same_tool() -> None:
    one = definition(b'{"name":"x","description":"d","inputSchema":{"type":"object"},"y":1}')

    info = tool_info(one, HERE)

    assert (info.name, info.toolbox_name, info.source_server) == ("x", "dev", "odd")
    assert (info.description, info.input_schema) == ("d", {"type": "object"})
    assert info.definition == {
        "name": "x",
        "description": "d",
        "inputSchema": {"type": "object"},
        "y": 1,
    }


def test_a_missing_description_is_empty_for_python() -> None:
    assert tool_info(definition(b'{"name":"x"}'), HERE).description == ""
    assert tool_info(definition(b'{"name":"x","description":5}'), HERE).description == ""


@pytest.mark.parametrize("number", [b"1e999", b"-1e999", b"1" + b"0" * 400])
def test_a_number_too_large_for_python_costs_no_tool(number: bytes) -> None:
    one = definition(b'{"name":"x","description":"d","inputSchema":{"maximum":%b}}' % number)

    assert tool_info(one, HERE).name == "x"


def test_values_are_frozen_and_compare_by_content() -> None:
    info = tool_info(definition(b'{"name":"x"}'), HERE)
    result = OpenToolboxResult("dev", "", 1, (info,))

    assert result == OpenToolboxResult("dev", "", 1, (info,), ())
    with pytest.raises(AttributeError):
        result.toolbox = "other"  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(AttributeError):
        info.name = "other"  # pyright: ignore[reportAttributeAccessIssue]
    assert Unavailable("a", "b") == Unavailable("a", "b")
    assert Catalogue({"x": Definition("x", b"{}")}).names == ("x",)


def test_the_report_on_a_server_that_is_not_connected_has_what_was_known_and_nothing_else() -> None:
    tools = [definition(msgspec.json.encode({"name": name})) for name in ("a", "b", "secret")]
    known = KnownCatalogue(
        Catalogue({tool.name: tool for tool in tools}),
        modern=False,
        revision="2025-11-25",
        server_name="odd server",
        server_version="1.2",
        instructions="Ask first.",
        seconds=0.5,
        at=100.0,
        offers={"prompts": (b'{"name":"p"}',)},
    )
    server = spec("odd", tools=ToolFilter(include=("*", "none"), exclude=("secret",)))

    report = known.report(server, now=160.0)

    assert [tool.name for tool in report.tools] == ["a", "b"]
    assert json.loads(msgspec.json.encode(msgspec.structs.replace(report, tools=()))) == {
        "address": {"toolbox": "dev", "server": "odd"},
        "reason": "",
        "revision": "2025-11-25",
        "server_name": "odd server",
        "server_version": "1.2",
        "instructions": "Ask first.",
        "tools": [],
        "hidden": 1,
        "idle_filters": ["none"],
        "complaints": [],
        "seconds": 0.5,
        "skipped": 0,
        "last_skipped": "",
        "age": 60.0,
        "change": None,
        "processes": 0,
        "box": "",
        "offers": {"prompts": [{"name": "p"}]},
        "unlike_lock": [],
    }
    assert known.age(now=99.0) == 0.0, "the clock was set back"
