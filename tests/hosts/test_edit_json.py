"""One member of a JSON file is put, exchanged or removed, and every other byte stays."""

# What is made up has no types.
# pyright: basic

from __future__ import annotations

import json
import re
from functools import partial

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from mcp_workbench.config import jsonc
from mcp_workbench.hosts.edit_json import lookup, put, put_all, remove, remove_all
from mcp_workbench.hosts.files import CannotEdit
from tests.hosts.writers import jsonc_texts, names, values

KEYS = ("mcpServers", "workbench")
ENTRY = {"command": "/opt/mcp-workbench", "args": ["serve", "--config", "/x y/ü.json"]}


def documents(servers: int):
    """Those with at least so many servers."""
    section = st.dictionaries(names, values, min_size=servers, max_size=3)
    rest = st.dictionaries(names, values, max_size=3)
    return st.builds(lambda rest, section: {**rest, "mcpServers": section}, rest, section)


texts = documents(0).flatmap(jsonc_texts)
filled = documents(1).flatmap(jsonc_texts)
strict_texts = documents(0).flatmap(partial(jsonc_texts, liberties=False))
bare = st.dictionaries(names, values, max_size=3).flatmap(jsonc_texts)


def grown_by_one_piece(small: str, large: str) -> bool:
    """Is the large text the small one with one piece put in, and perhaps a comma elsewhere?"""
    return _one_piece(small, large) or any(
        _one_piece(small, large[: found.start()] + large[found.end() :])
        for found in re.finditer(",", large)
    )


def _one_piece(small: str, large: str) -> bool:
    first = 0
    while first < len(small) and first < len(large) and small[first] == large[first]:
        first += 1
    rest = small[first:]
    return len(large) >= len(small) and large.endswith(rest)


@given(texts)
@settings(deadline=None)
def test_a_new_member_leaves_every_other_byte_alone(text: str) -> None:
    document = jsonc.parse(text)
    assume("workbench" not in document["mcpServers"])

    after = put(text, KEYS, ENTRY)

    section = {**document["mcpServers"], "workbench": ENTRY}
    assert jsonc.parse(after) == {**document, "mcpServers": section}
    assert list(jsonc.parse(after)["mcpServers"]) == list(section)
    assert grown_by_one_piece(text, after)
    if document["mcpServers"]:
        assert remove(after, KEYS) == text


@given(texts | bare, st.dictionaries(names, values, min_size=1, max_size=4))
@settings(deadline=None)
def test_many_members_are_put_as_if_one_by_one(text: str, section) -> None:
    assume(isinstance(jsonc.parse(text).get("mcpServers", {}), dict))
    members = [(("mcpServers", name), value) for name, value in section.items()]
    one_by_one = text
    for keys, value in members:
        one_by_one = put(one_by_one, keys, value)

    assert put_all(text, members) == one_by_one


@given(bare)
@settings(deadline=None)
def test_a_missing_section_is_made(text: str) -> None:
    document = jsonc.parse(text)
    assume("mcpServers" not in document)

    after = put(text, KEYS, ENTRY)

    assert jsonc.parse(after) == {**document, "mcpServers": {"workbench": ENTRY}}
    assert grown_by_one_piece(text, after)


@given(filled, st.data())
@settings(deadline=None)
def test_a_removed_member_takes_nothing_with_it(text: str, data) -> None:
    document = jsonc.parse(text)
    name = data.draw(st.sampled_from(list(document["mcpServers"])))

    after = remove(text, ("mcpServers", name))

    section = {key: value for key, value in document["mcpServers"].items() if key != name}
    assert jsonc.parse(after) == {**document, "mcpServers": section}
    assert grown_by_one_piece(after, text)


@given(filled, st.data())
@settings(deadline=None)
def test_many_members_are_removed_as_if_one_by_one(text: str, data) -> None:
    document = jsonc.parse(text)
    doomed = data.draw(st.lists(st.sampled_from(list(document["mcpServers"])), unique=True))
    one_by_one = text
    for name in doomed:
        one_by_one = remove(one_by_one, ("mcpServers", name))

    after = remove_all(text, [("mcpServers", name) for name in doomed])

    section = {key: value for key, value in document["mcpServers"].items() if key not in doomed}
    assert jsonc.parse(after) == {**document, "mcpServers": section}
    assert "".join(after.split()) == "".join(one_by_one.split())  # gaps may differ


@pytest.mark.parametrize(
    ("text", "names", "after"),
    [
        ('{"a": 1, "b": 2, "c": 3}', "bc", '{"a": 1}'),
        ('{"a": 1, "b": 2,\n  "c": 3\n}', "bc", '{"a": 1\n}'),
        ('{"a": 1,\n  "b": 2, "c": 3}', "ab", '{"c": 3}'),
        ('{\n  "a": 1,\n  "b": 2, // why\n  "c": 3\n}', "abc", "{\n  // why\n}"),
        ('{"a": 1, /* b */ "b": 2, "c": 3}', "ab", '{/* b */ "c": 3}'),
        ('{"a": 1, "b": 2, "c": 3, "d": 4}', "bd", '{"a": 1, "c": 3}'),
    ],
)
def test_neighbours_that_are_removed_leave_no_gap(text: str, names: str, after: str) -> None:
    assert remove_all(text, [(name,) for name in names]) == after


@given(filled, st.data())
@settings(deadline=None)
def test_an_exchanged_value_leaves_the_rest_alone(text: str, data) -> None:
    document = jsonc.parse(text)
    name = data.draw(st.sampled_from(list(document["mcpServers"])))
    place = jsonc.find(jsonc.read(text), ("mcpServers", name)).node

    after = put(text, ("mcpServers", name), ENTRY)

    assert after.startswith(text[: place.start])
    assert after.endswith(text[place.end :])
    assert jsonc.parse(after)["mcpServers"][name] == ENTRY


@given(strict_texts)
@settings(deadline=None)
@example('{"mcpServers": {"a": 1}}')
def test_strict_json_stays_strict(text: str) -> None:
    json.loads(text.removeprefix("\ufeff"))

    after = put(text, KEYS, ENTRY)
    json.loads(after.removeprefix("\ufeff"))
    json.loads(remove(after, KEYS).removeprefix("\ufeff"))


@pytest.mark.parametrize("text", ["", "\n", "\ufeff", " \r\n"])
def test_an_empty_file_becomes_a_whole_one(text: str) -> None:
    after = put(text, KEYS, ENTRY)

    assert jsonc.parse(after) == {"mcpServers": {"workbench": ENTRY}}
    assert after.startswith("\ufeff") == text.startswith("\ufeff")


def test_what_is_new_looks_like_what_is_there() -> None:
    text = '{\r\n\t"mcpServers": {\r\n\t\t"a": {"command": "x"} // one\r\n\t}\r\n}\r\n'

    assert put(text, KEYS, {"command": "y", "args": ["z"]}) == (
        '{\r\n\t"mcpServers": {\r\n\t\t"a": {"command": "x"}, // one\r\n\t\t"workbench": {\r\n'
        '\t\t\t"command": "y",\r\n\t\t\t"args": ["z"]\r\n\t\t}\r\n\t}\r\n}\r\n'
    )


def test_a_comment_never_swallows_what_follows() -> None:
    text = '{"mcpServers": { // these\n "a": 1, "b": 2 // b\n}}'

    assert jsonc.parse(remove(text, ("mcpServers", "a"))) == {"mcpServers": {"b": 2}}
    assert jsonc.parse(remove(text, ("mcpServers", "b"))) == {"mcpServers": {"a": 1}}
    assert remove(text, ("mcpServers", "b")).count("//") == 2


def test_a_name_that_stands_twice_goes_twice() -> None:
    assert lookup(remove('{"a": {"x": 1, "y": 2, "x": 3}}', ("a", "x")), ("a",)) == {"y": 2}


@pytest.mark.parametrize("text", ['{"mcpServers": null}', '{"mcpServers": []}', "[]", "7"])
def test_what_is_no_object_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(CannotEdit) as refused:
        put(text, KEYS, ENTRY)
    assert refused.value.line == 1
    assert remove(text, KEYS) == text
