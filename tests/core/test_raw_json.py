"""JSON with a few members changed: the others keep their bytes, whatever they are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.core.raw_json import changed, each

NAMES = st.sampled_from(["a", "b", "é", "", 'q"', "\\", "🙂"])
VALUES = st.sampled_from(
    [b"1", b"1.0", b"1e400", b"null", b'""', b'"a\\"b,{}[]:"', b"[ ]", b'[[1],"]"]', b"{}",
     b'{ "a" : {"b":2} }', b'"\\\\"', b"-0", b'{"a":1,"a":2}']
)  # fmt: skip
SPACE = st.sampled_from([b"", b" ", b"\t\n ", b"\r"])
Pairs = list[tuple[str, bytes]]


def spelled(name: str, *, escaped: bool) -> bytes:
    if escaped:
        return b'"' + b"".join(b"\\u%04x" % unit for unit in _units(name)) + b'"'
    return json.dumps(name, ensure_ascii=False).encode()


def _units(text: str) -> list[int]:
    data = text.encode("utf-16-be")
    return [int.from_bytes(data[place : place + 2], "big") for place in range(0, len(data), 2)]


@st.composite
def objects(draw: st.DrawFn) -> tuple[Pairs, bytes]:
    """Members in their order, names twice and all, and one way to write them."""
    pairs = draw(st.lists(st.tuples(NAMES, VALUES), max_size=5))
    parts = [
        draw(SPACE) + spelled(name, escaped=draw(st.booleans())) + draw(SPACE) + b":" + draw(SPACE) + value + draw(SPACE)
        for name, value in pairs
    ]  # fmt: skip
    return pairs, b"{" + (b",".join(parts) or draw(SPACE)) + b"}"


def read(whole: bytes) -> list[tuple[str, Any]]:
    return json.loads(whole, object_pairs_hook=lambda pairs: pairs, parse_float=str, parse_int=str)


@given(objects(), st.dictionaries(NAMES, VALUES | st.none()))
def test_the_members_are_those_that_were_wanted(
    given_object: tuple[Pairs, bytes], wanted: dict[str, bytes | None]
) -> None:
    pairs, whole = given_object

    found = read(changed(whole, wanted))

    names = {name for name, _ in pairs}
    new = [(name, value) for name, value in wanted.items() if name not in names and value]
    kept = [(name, wanted.get(name, value)) for name, value in pairs]
    assert found == [(name, read(value)) for name, value in [*new, *kept] if value is not None]


@given(objects(), st.dictionaries(NAMES, VALUES))
def test_what_was_put_in_can_be_taken_out_again(
    given_object: tuple[Pairs, bytes], new: dict[str, bytes]
) -> None:
    pairs, whole = given_object
    put_in = {name: value for name, value in new.items() if name not in dict(pairs)}

    assert changed(changed(whole, put_in), dict.fromkeys(put_in)) == whole
    assert changed(whole, {}) == whole


@pytest.mark.parametrize(
    ("whole", "wanted", "told"),
    [
        (b"{}", {"a": b"1", "b": b"2"}, b'{"a":1,"b":2}'),
        (b"{ }", {"a": None}, b"{ }"),
        (b'{"a":1}', {"a": None}, b"{}"),
        (b'{"a":1}', {"a": None, "b": b"2"}, b'{"b":2}'),
        (b'{ "a" : 1 , "b" : 2 }', {"a": None}, b'{   "b" : 2 }'),
        (b'{ "a" : 1 , "b" : 2 }', {"b": None}, b'{ "a" : 1   }'),
        (b'{"a":1,"b":2,"c":3,"d":4}', {"a": None, "c": None}, b'{"b":2,"d":4}'),
        (b'{"a":1,"b":2,"c":3,"d":4}', {"c": None, "d": None}, b'{"a":1,"b":2}'),
        (b'{"a":1,"x":0,"a":"}"}', {"a": b"[]"}, b'{"a":[],"x":0,"a":[]}'),
    ],
)
def test_with_a_member_goes_one_comma(
    whole: bytes, wanted: dict[str, bytes | None], told: bytes
) -> None:
    assert changed(whole, wanted) == told


@given(st.lists(VALUES), SPACE, SPACE)
def test_each_element_is_handed_over_as_it_stands(
    values: list[bytes], before: bytes, after: bytes
) -> None:
    whole = b"[" + b",".join(before + value + after for value in values) + b"]"
    seen: list[bytes] = []

    def act(element: bytes) -> bytes:
        seen.append(element)
        return b"0"

    told = each(whole, act)

    assert seen == values
    assert told == b"[" + b",".join(before + b"0" + after for _ in values) + b"]"
