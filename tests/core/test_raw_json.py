"""JSON with a few members changed: the others keep their bytes, whatever they are."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.core.raw_json import (
    LARGE,
    LONGEST_NAME,
    MOST_ELEMENTS,
    MOST_MEMBERS,
    TURN,
    Inside,
    Steps,
    TooComplex,
    TooLong,
    TooManyParts,
    changed,
    checked,
    each,
    has_few_members,
    read_elements,
    read_members,
    read_name,
    read_names,
    read_short,
)

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


# Reading within bounds


def test_a_budget_gives_others_a_turn_after_each_turn_of_work_and_ends() -> None:
    steps = Steps(3 * TURN)
    turns: list[bool] = []
    for _ in range(6):
        steps.take(TURN // 2)
        turns += [steps.turn_is_over(), steps.turn_is_over()]

    assert turns == [False, False, True, False] * 3
    assert steps.left == 0
    with pytest.raises(TooComplex):
        steps.take()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"", None),
        (b'"a"', "a"),
        (b"[1.5]", [1.5]),
        (b"{", None),
        (b"1e400", None),
        (b"[" * 5000, None),
        (b'"%b"' % (b"a" * (LONGEST_NAME - 2)), "a" * (LONGEST_NAME - 2)),
        (b'"%b"' % (b"a" * (LONGEST_NAME - 1)), None),
    ],
    ids=["absent", "text", "list", "broken", "infinite", "deep", "as long as a name", "longer"],
)
def test_a_short_value_is_read_and_any_other_is_none(text: bytes, value: object) -> None:
    assert read_short(text) == value


def test_a_name_is_read_unless_it_is_too_long() -> None:
    longest = b'"%b"' % (b"a" * (LONGEST_NAME - 2))

    assert read_name(longest) == "a" * (LONGEST_NAME - 2)
    with pytest.raises(TooLong, match=r"^longer than 64 KiB$"):
        read_name(longest + b" ")


# No quote that is not escaped, at its end or where it is looked at: it may be a long key.
LONG_VALUE = '"é%s\\""' % ("a" * LARGE)


@pytest.mark.parametrize("space", ["", " ", "\r\n\t "])
def test_of_a_large_object_that_may_have_a_long_key_each_member_is_read(space: str) -> None:
    members = [("a", LONG_VALUE), ("é", '{"a":[1,"}"]}'), ("b", "[ ]"), ("a", "-0.0"), ("", "null")]
    written = [f'{space}"{name}"{space}:{space}{value}{space}' for name, value in members]
    whole = f"{space}{{{','.join(written)}}}{space}".encode()

    assert [(name.text, bytes(value)) for name, value in read_names(whole).items()] == [
        (name, value.encode()) for name, value in members
    ]
    assert {name: bytes(value) for name, value in read_members(whole).items()} == {
        name: value.encode() for name, value in dict(members).items()
    }


@pytest.mark.parametrize("end", ["", ",}", "}}", ',"b"}', ',"b" 1}', ',"b":}', ',"b":1', ',b":1}'])
def test_a_large_object_that_is_broken_is_not_read(end: str) -> None:
    whole = f'{{"a":{LONG_VALUE}{end}'.encode()

    with pytest.raises(msgspec.DecodeError):
        read_names(whole)


@pytest.mark.parametrize("place", [0, 1])
def test_a_key_that_is_too_long_is_refused_before_it_is_decoded(place: int) -> None:
    members = [f'"b":{LONG_VALUE}', f'"é{"a" * LONGEST_NAME}":1']
    whole = f"{{{members[place]},{members[1 - place]}}}".encode()

    with pytest.raises(TooLong, match=r"^a member whose name is longer than 64 KiB$"):
        read_names(whole)


def test_a_list_of_a_large_object_is_no_object() -> None:
    with pytest.raises(msgspec.ValidationError):
        read_names(f"[{LONG_VALUE}]".encode())


MANY = msgspec.json.encode({f"{number:05}": 0 for number in range(MOST_MEMBERS + 1)})
MOST = msgspec.json.encode({f"{number:05}": 0 for number in range(MOST_MEMBERS)})


@pytest.mark.parametrize(
    ("definition", "is_one"),
    [
        (b"5", True),  # a short one is read in any case
        (MOST, True),
        (MANY, False),
        (b'{"_meta":%b}' % MOST, True),
        (b'{"_meta":%b}' % MANY, False),
        (b'{"other":%b}' % MANY, True),
        (b'{"_meta":[%b]}' % MANY, True),
    ],
    ids=["short", "most", "many", "most of meta", "many of meta", "many inside", "odd meta"],
)
def test_a_definition_of_too_many_members_can_not_be_changed(
    definition: bytes, is_one: bool
) -> None:
    assert has_few_members(definition) is is_one


def test_a_list_of_too_many_elements_is_refused() -> None:
    large = b"[%b]" % b",".join([b"{}"] * (LARGE // 2))

    assert read_elements(b"[1, {} ]", 2) == [msgspec.Raw(b"1"), msgspec.Raw(b"{}")]
    assert len(read_elements(large)) == LARGE // 2 <= MOST_ELEMENTS
    for text, most in ((b"[1,2,3]", 2), (large, LARGE // 2 - 1)):
        for checked_before in (False, True):
            with pytest.raises(
                TooManyParts, match=r"^a list with more elements than anybody would"
            ):
                read_elements(text, most, checked=checked_before)


def test_what_is_inside_an_object_is_found_by_its_path() -> None:
    inside = Inside(msgspec.Raw(b' {"a": {"b": [1] , "c": {"a": 2 }}, "d": 5} '))

    assert [inside.at(path) for path in [(), ("d",), ("a", "b"), ("a", "c", "a")]] == [
        b'{"a": {"b": [1] , "c": {"a": 2 }}, "d": 5}', b"5", b"[1]", b"2",
    ]  # fmt: skip
    assert {inside.at(path) for path in [("x",), ("d", "a"), ("a", "x", "y"), ("a", "b", "0")]} == {
        b""
    }


@pytest.mark.parametrize("spliced", [b'{"a":1,}', b"[]", b"", b'{"a":%b}' % (b"[" * 5000)])
def test_what_is_no_object_after_a_change_stays_as_it_was(spliced: bytes) -> None:
    assert checked(spliced, msgspec.Raw(b'{"a":1}')) == b'{"a":1}'
    assert checked(b'{"b":2}', msgspec.Raw(b'{"a":1}')) == b'{"b":2}'
