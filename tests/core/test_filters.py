"""Which of a server's tools its toolbox shows."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.core.spec import ToolFilter, tool_filter

TOOLS = ("read_file", "read_media_file", "write_file", "list")
NAMES = st.text(st.sampled_from("abc_*?!."), max_size=6)


@pytest.mark.parametrize(
    ("patterns", "shown"),
    [
        (["*"], TOOLS),
        ([], ()),
        (["list"], ("list",)),
        (["read_*"], ("read_file", "read_media_file")),
        (["read_*", "!read_media_file"], ("read_file",)),
        (["!read_media_file"], ("read_file", "write_file", "list")),
        (["!*"], ()),
        (["*_file", "!read_*", "list"], ("write_file", "list")),
        (["READ_*"], ()),
        (["unknown"], ()),
    ],
    ids=str,
)
def test_a_list_of_filters_shows(patterns: list[str], shown: tuple[str, ...]) -> None:
    chosen = tool_filter(tuple(patterns))

    assert tuple(tool for tool in TOOLS if chosen.shows(tool)) == shown


def test_without_any_filter_all_tools_are_shown() -> None:
    assert all(ToolFilter().shows(tool) for tool in TOOLS)


def test_a_filter_that_matches_nothing_is_named_as_the_file_spells_it() -> None:
    chosen = tool_filter(("read_*", "nope", "!read_medai_file", "!write_*"))

    assert chosen.idle(TOOLS) == ["nope", "!read_medai_file"]
    assert tool_filter(("*", "nope")).idle(()) == ["nope"], "a server may have no tools at all"


@given(st.lists(NAMES), NAMES)
def test_an_exclusion_always_wins(patterns: list[str], tool: str) -> None:
    assert not tool_filter((*patterns, f"!{tool}")).shows(tool)


@given(st.lists(NAMES.filter(lambda p: not p.startswith("!"))), NAMES)
def test_inclusions_show_what_one_of_them_matches(patterns: list[str], tool: str) -> None:
    expected = any(tool == p or fnmatchcase(tool, p) for p in patterns)

    assert tool_filter(tuple(patterns)).shows(tool) is expected


@given(st.lists(NAMES.map(lambda p: f"!{p}"), min_size=1), NAMES)
def test_only_exclusions_mean_all_but_those(patterns: list[str], tool: str) -> None:
    with_star = tool_filter(("*", *patterns))

    assert tool_filter(tuple(patterns)).shows(tool) is with_star.shows(tool)


@given(st.lists(NAMES), NAMES, NAMES)
def test_one_more_exclusion_never_shows_more(patterns: list[str], more: str, tool: str) -> None:
    with_one = tool_filter(("*", *patterns, f"!{more}"))

    assert not with_one.shows(tool) or tool_filter(("*", *patterns)).shows(tool)
