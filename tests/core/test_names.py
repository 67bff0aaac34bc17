"""Flat names, as the contract gives them."""

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench import ToolIdentifier, generate_tool_name, parse_tool_name

# A name of dynamic mode: no `__` inside, no `_` at the end.
names = st.from_regex(r"\A[A-Za-z0-9-](?:_?[A-Za-z0-9-])*\Z")
names = names | names.map(lambda name: f"_{name}")
tools = st.text(min_size=1)


@given(names, names, tools)
def test_parsing_takes_apart_what_generating_joined(toolbox: str, server: str, tool: str) -> None:
    flat = generate_tool_name(toolbox, server, tool)

    # A tool may begin with `_`: the separator is then found one place earlier only if `server`
    # could end with `_`, which the configuration forbids.
    assert parse_tool_name(flat) == ToolIdentifier(toolbox, server, tool)


@given(st.text(alphabet="a_", max_size=12))
def test_what_parses_generates_the_same_name_again(name: str) -> None:
    found = parse_tool_name(name)

    if found is None:
        parts = name.split("__", 2)
        assert len(parts) < 3 or "" in parts
    else:
        assert generate_tool_name(found.toolbox, found.server, found.tool) == name


@pytest.mark.parametrize(
    ("toolbox", "server", "tool", "flat"),
    [
        ("dev", "filesystem", "read_file", "dev__filesystem__read_file"),
        ("dev", "filesystem", "read_file_async_v2", "dev__filesystem__read_file_async_v2"),
        ("dev", "filesystem", "my__special__tool", "dev__filesystem__my__special__tool"),
        ("dev", "server", "my__special__tool", "dev__server__my__special__tool"),
        ("test", "server", "my__special__tool", "test__server__my__special__tool"),
        ("test", "server", "tool__with__underscores", "test__server__tool__with__underscores"),
        ("dev", "server", "tool__with__extras", "dev__server__tool__with__extras"),
        ("prod", "memory", "store_value", "prod__memory__store_value"),
        ("prod", "memory", "store_value_async", "prod__memory__store_value_async"),
        ("testing", "clickhouse", "run_query", "testing__clickhouse__run_query"),
        ("main", "serena", "find_symbol", "main__serena__find_symbol"),
        ("dev", "odd", "_private", "dev__odd___private"),
        ("dev", "odd", "émoji 🙂/x.y", "dev__odd__émoji 🙂/x.y"),
    ],
)
def test_the_contract_s_examples_go_both_ways(
    toolbox: str, server: str, tool: str, flat: str
) -> None:
    assert generate_tool_name(toolbox, server, tool) == flat
    assert parse_tool_name(flat) == ToolIdentifier(toolbox, server, tool)


@pytest.mark.parametrize(
    "name",
    [
        "dev__filesystem_read_file",  # the form before 0.5.0
        "dev_filesystem__read_file",
        "dev__only_two_parts",
        "__filesystem__read_file",
        "dev____read_file",
        "dev__filesystem__",
        "invalid",
        "",
        "__",
        "____",
        "dev",
    ],
)
def test_anything_else_is_no_flat_name(name: str) -> None:
    assert parse_tool_name(name) is None


def test_parsing_knows_one_separator_and_no_special_cases() -> None:
    """One split, one test for emptiness."""
    source = inspect.getsource(parse_tool_name)

    assert source.count("split(") == source.count(" if ") == 1
    assert "for " not in source.partition('"""')[2].rpartition('"""')[2]
    assert "'_'" not in source
    assert '"_"' not in source


def test_an_identifier_works_by_position_and_by_name() -> None:
    by_position = ToolIdentifier("dev", "odd", "echo")

    assert by_position == ToolIdentifier(toolbox="dev", server="odd", tool="echo")
    assert (by_position.toolbox, by_position.server, by_position.tool) == ("dev", "odd", "echo")


def test_an_identifier_can_not_be_changed() -> None:
    identifier = ToolIdentifier("dev", "fs", "read")

    with pytest.raises(AttributeError):
        identifier.toolbox = "prod"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


def test_equal_identifiers_are_one_key_and_different_ones_are_not() -> None:
    seen = {ToolIdentifier("a", "b", "c"): 1}

    assert seen[ToolIdentifier("a", "b", "c")] == 1
    assert ToolIdentifier("a", "c", "b") not in seen


def test_the_constructor_does_not_check() -> None:
    assert ToolIdentifier("", "", "").tool == ""


def test_an_identifier_reads_as_a_path() -> None:
    assert str(ToolIdentifier("dev", "fs", "read")) == "dev/fs/read"
    assert str(ToolIdentifier("dev", "fs", "read").address) == "dev/fs"
