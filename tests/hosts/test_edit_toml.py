"""One table of a TOML file is added or removed, and every other byte stays."""

# What is made up has no types.
# pyright: basic

from __future__ import annotations

import tomllib

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mcp_workbench.hosts.edit_toml import lookup, put, remove, remove_all, with_values
from mcp_workbench.hosts.files import CannotEdit
from mcp_workbench.hosts.read import NotToml
from mcp_workbench.hosts.read import parse_toml as parse
from tests.hosts.writers import entries, toml_names, toml_scalars, toml_texts

KEYS = ("mcp_servers", "workbench")
ENTRY = {"command": "/opt/mcp-workbench", "args": ["serve", "--config", '/x "y"/ü.toml'], "n": 7}

servers = st.dictionaries(toml_names, entries, max_size=3)
others = st.dictionaries(
    toml_names.filter(lambda name: name != "mcp_servers").map(lambda name: f"o-{name}"),
    st.dictionaries(toml_names, toml_scalars, max_size=3),
    max_size=2,
)
files = st.tuples(servers, others).flatmap(
    lambda both: toml_texts(*both).map(lambda text: (text, both[0]))
)


@given(files)
@settings(deadline=None)
def test_a_new_table_stands_at_the_end_and_goes_again(file) -> None:
    text, _ = file
    document = parse(text)

    after = put(text, KEYS, ENTRY)

    assert after.startswith(text)
    expected = {**document, "mcp_servers": {**document.get("mcp_servers", {}), "workbench": ENTRY}}
    assert parse(after) == expected
    if text.endswith("\n") or not text.removeprefix("\ufeff"):
        assert remove(after, KEYS) == text
    else:
        assert remove(after, KEYS).rstrip("\r\n") == text.rstrip("\r\n")


@given(files, st.data())
@settings(deadline=None)
def test_a_removed_table_takes_nothing_with_it(file, data) -> None:
    text, known = file
    assume(known)
    name = data.draw(st.sampled_from(list(known)))
    document = parse(text)

    after = remove(text, ("mcp_servers", name))

    left = {key: value for key, value in document["mcp_servers"].items() if key != name}
    assert parse(after).get("mcp_servers", {}) == left
    rest = {key: value for key, value in document.items() if key != "mcp_servers"}
    assert {key: value for key, value in parse(after).items() if key != "mcp_servers"} == rest
    assert _pieces_of(after, text)


def _pieces_of(small: str, large: str) -> bool:
    """Are the lines of the one lines of the other, in their order?"""
    lines = iter(large.removeprefix("\ufeff").split("\n"))
    return all(line in lines for line in small.removeprefix("\ufeff").split("\n") if line)


@given(files)
@settings(deadline=None)
def test_the_editor_sees_what_the_reader_sees(file) -> None:
    """Every value alone, under its own path, is what the whole has there."""
    text, _ = file
    document = parse(text)
    literals = []

    assert with_values(text, lambda path, literal: literals.append((path, literal))) == text
    for path, literal in literals:
        value = document
        for key in path:
            value = value[key]
        assert tomllib.loads(f"x = {literal}")["x"] == value


@pytest.mark.parametrize(
    "text",
    [
        'mcp_servers = {a = {command = "x"}}\n',
        'z = 1\nmcp_servers = {a = {command = "x"}} # inline\n',
        '[[mcp_servers]]\ncommand = "x"\n',
    ],
)
def test_what_can_not_grow_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(CannotEdit) as refused:
        put(text, KEYS, ENTRY)
    assert refused.value.line == text.split("mcp_servers")[0].count("\n") + 1


def test_an_inline_table_is_not_taken_apart() -> None:
    with pytest.raises(CannotEdit):
        remove('mcp_servers = {a = {command = "x"}}\n', ("mcp_servers", "a"))


def test_of_several_in_an_inline_table_the_first_is_named() -> None:
    text = 'z = 1\nmcp_servers = {b = {command = "y"}, a = {command = "x"}}\n'
    with pytest.raises(CannotEdit) as refused:
        remove_all(text, [("mcp_servers", "b"), ("mcp_servers", "a")])
    assert (refused.value.message, refused.value.line) == (
        "mcp_servers.a is written inside of another value",
        2,
    )


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (
            'mcp_servers.a.command = "x"\nmcp_servers.b.command = "y"\n',
            'mcp_servers.b.command = "y"\n',
        ),
        ('[mcp_servers]\na = {command = "x"}\n# b\nb = {}\n', "[mcp_servers]\n# b\nb = {}\n"),
        ("[\"mcp_servers\".'a']\nx = 1\n# for t\n[t]\n", "# for t\n[t]\n"),
    ],
)
def test_every_spelling_of_a_table_is_found(text: str, left: str) -> None:
    assert remove(text, ("mcp_servers", "a")) == left


def test_an_entry_of_ours_is_exchanged() -> None:
    text = put("x = 1\n", KEYS, {"command": "old"})

    assert lookup(put(text, KEYS, ENTRY), KEYS) == ENTRY


def test_what_is_no_toml_is_told_with_its_place() -> None:
    with pytest.raises(NotToml) as wrong:
        parse('a = 1\nb = "secret\n')
    assert wrong.value.line == 2
    assert "secret" not in wrong.value.message


def test_what_is_nested_too_deeply_is_told_and_not_a_crash() -> None:
    with pytest.raises(NotToml, match="nested too deeply"):
        parse(f"a = {'[' * 5000}{']' * 5000}\n")


@pytest.mark.parametrize(
    "text", ["a." * 50_000 + "b=1", '"x..y".' * 50_000 + "b=1", "[" + "a ." * 50_000 + "b]"]
)
def test_a_key_of_many_parts_is_refused_before_it_is_read(text: str) -> None:
    with pytest.raises(NotToml, match="nested too deeply"):
        parse(text)


@pytest.mark.parametrize("text", ["." * 5000, "One. Two. Three.\n" * 500, "a.b, " * 500])
def test_a_text_of_many_dots_is_none(text: str) -> None:
    assert parse(f"x = '''{text}'''") == {"x": text}
