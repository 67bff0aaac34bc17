"""Hashes of definitions: order and white space do not count, everything else does."""

# What is made up has no types.
# pyright: basic

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.core.definition_hash import (
    DEEPEST,
    LARGEST,
    canonical_form,
    definition_hash,
    text_hash,
)

NAMES = st.text(max_size=8)
SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=12)
VALUES: Any = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=20,
)


def shuffled(value: Any, chance: random.Random) -> Any:
    """The same value with the members of every object in another order."""
    if isinstance(value, dict):
        members = list(value.items())
        chance.shuffle(members)
        return {name: shuffled(member, chance) for name, member in members}
    return [shuffled(item, chance) for item in value] if isinstance(value, list) else value


@given(VALUES, st.integers(0, 1 << 30), st.booleans())
def test_order_white_space_and_escapes_do_not_count(value: Any, seed: int, ascii_: bool) -> None:
    written = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    other = json.dumps(shuffled(value, random.Random(seed)), ensure_ascii=ascii_, indent=3)

    assert definition_hash(written.encode()) == definition_hash(other.encode())


@given(VALUES, VALUES)
def test_other_values_have_other_hashes(one: Any, two: Any) -> None:
    def hashed(value: Any) -> str:
        return definition_hash(json.dumps(value).encode())

    same = json.dumps(one, sort_keys=True) == json.dumps(two, sort_keys=True)
    assert (hashed(one) == hashed(two)) == same


@given(VALUES)
def test_the_canonical_form_is_that_of_an_independent_writer(value: Any) -> None:
    expected = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)

    form = canonical_form(json.dumps(value, indent=1).encode())

    assert form is not None
    # Control characters may be escaped in two ways; both mean the same.
    assert json.loads(form) == json.loads(expected)
    if expected.isprintable() and "\x7f" not in expected:
        assert form == expected.encode()


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (b'{"a":1}', b'{"a":1.0}'),
        (b'{"a":100}', b'{"a":1e2}'),
        (b'{"a":1E2}', b'{"a":1e2}'),
        (b'{"a":"\xc3\xa9"}', '{"a":"e\u0301"}'.encode()),
        (b'{"a":[1,2]}', b'{"a":[2,1]}'),
        (b'{"a":1,"a":2}', b'{"a":2,"a":1}'),
        (b'{"a":1,"a":2}', b'{"a":2}'),
        (b'{"a":1,"\\u0061":2}', b'{"a":2}'),
        (b'{"a":null}', b"{}"),
        (b'{"a":"1"}', b'{"a":1}'),
        (b'{"a":"x "}', b'{"a":"x"}'),
        (b'{"a":"\\n"}', b'{"a":" "}'),
    ],
)
def test_what_differs_in_anything_else_has_another_hash(one: bytes, two: bytes) -> None:
    assert definition_hash(one) != definition_hash(two)


def test_duplicate_members_are_hashed_byte_by_byte() -> None:
    assert canonical_form(b'{"b":{"a":1,"a":2}}') is None
    assert definition_hash(b'{"a":1,"a":2}') != definition_hash(b'{"a":1, "a":2}')


def test_a_text_is_not_a_definition_with_the_same_bytes_elsewhere() -> None:
    assert text_hash("x") == definition_hash(b'"x"')
    assert text_hash("x") != text_hash("x ")


def nested(depth: int) -> bytes:
    return b'{"b":1,"a":' * depth + b"1" + b"}" * depth


def test_what_is_huge_or_deep_is_hashed_as_it_is() -> None:
    form = canonical_form(nested(DEEPEST))

    assert form is not None
    assert form.startswith(b'{"a":')
    assert canonical_form(nested(DEEPEST + 1)) is None
    assert definition_hash(nested(20_000)) != definition_hash(nested(20_001))
    assert canonical_form(b'"' + b"x" * LARGEST + b'"') is None
