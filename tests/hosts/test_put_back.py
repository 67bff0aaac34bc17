"""Members return to a text as they were, and nothing else in it changes."""

# What is made up has no types.
# pyright: basic

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mcp_workbench.config import jsonc
from mcp_workbench.hosts.edit_json import put, remove_all
from mcp_workbench.hosts.edit_toml import remove_all as remove_tables
from mcp_workbench.hosts.put_back import merge_lines, put_back
from tests.hosts.writers import jsonc_texts, names, values

OLD = """{
  "mcpServers": {
    "a": {"command": "x"},
    "b": {
      "command": "y", // why
      "args": []
    }
  }
}
"""
B = ("mcpServers", "b")
some = st.dictionaries(
    names, values.filter(lambda value: value is not None), min_size=1, max_size=4
)


@given(some.flatmap(lambda section: jsonc_texts({"mcpServers": section})), st.data())
@settings(deadline=None)
def test_what_was_removed_returns_and_no_other_value_changes(text: str, data) -> None:
    document = jsonc.parse(text)
    section = document["mcpServers"]
    doomed = data.draw(st.lists(st.sampled_from(list(section)), unique=True, min_size=1))
    keys = [("mcpServers", name) for name in doomed]
    rest = remove_all(text, keys)

    assert put_back(rest, text, keys, "json") == text
    assume("new" not in section)
    grown = put(rest, ("mcpServers", "new"), {"command": "x"})
    after = jsonc.parse(put_back(grown, text, keys, "json"))
    assert after == {"mcpServers": section | {"new": {"command": "x"}}}


def test_a_member_goes_to_the_end_with_its_comments_where_its_place_is_gone() -> None:
    """The line before it has another comma now, and other indentation."""
    now = '{\n\t"mcpServers": {\n\t\t"c": {"command": "z"}\n\t}\n}\n'

    assert put_back(now, OLD, [B], "json") == (
        '{\n\t"mcpServers": {\n\t\t"c": {"command": "z"},\n\t\t"b": {\n'
        '\t\t  "command": "y", // why\n\t\t  "args": []\n\t\t}\n\t}\n}\n'
    )


@pytest.mark.parametrize("now", ["", "{}", '{"mcpServers": {}, "other": 1}\n'])
def test_a_member_returns_to_a_file_without_its_object(now: str) -> None:
    after = jsonc.parse(put_back(now, OLD, [B], "json"))

    assert after["mcpServers"] == {"b": {"command": "y", "args": []}}


def test_a_table_returns_to_a_file_that_was_written_anew() -> None:
    old = "[s.a]\nx = 1 # one\n\n[s.b]\ny = 2 # two\n"
    keys = [("s", "b")]

    assert put_back(remove_tables(old, keys), old, keys, "toml") == old
    assert put_back("s = {}\n", "[s]\nb = {y = 2}\n", [], "toml") == "s = {}\n"
    assert put_back("[other]\nz = 3\n", old, keys, "toml") == "[other]\nz = 3\n\n[s.b]\ny = 2\n"


@pytest.mark.parametrize(
    ("base", "changed", "text", "merged"),
    [
        ("a\nb\n", "a\nnew\nb\n", "a\nb\nc\n", "a\nnew\nb\nc\n"),
        ("a\nb\n", "a\nnew\nb\n", "a\nmine\nb\n", "a\nnew\nmine\nb\n"),
        ("a\nb\n", "a\nnew\nb\n", "b\n", "new\nb\n"),
        ("a\nb\n", "a\nB\n", "a\nx\n", None),
        ("a\n", "b\n", "", None),
        ("", "b\n", "", "b\n"),
        ("a\n", "a\n", "anything", "anything"),
    ],
)
def test_a_change_is_applied_where_the_lines_around_it_are_the_same(
    base: str, changed: str, text: str, merged: str | None
) -> None:
    assert merge_lines(base, changed, text) == merged
