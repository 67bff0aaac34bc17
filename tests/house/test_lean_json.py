"""The fixture servers' own way into JSON reads and writes what `json` does."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.servers import lean_json

TEXTS = st.text(st.characters(codec=None))
NUMBERS = st.integers() | st.floats(allow_nan=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=30)
@given(VALUES, st.sampled_from(["", " ", "\r\n\t"]))
def test_a_value_is_written_and_read_as_ever(value: Any, space: str) -> None:
    for ascii_only in (True, False):
        assert lean_json.dumps(value, ensure_ascii=ascii_only) == json.dumps(
            value, ensure_ascii=ascii_only
        )
    assert lean_json.loads(space + json.dumps(value) + space) == value
    assert lean_json.loads(json.dumps(value).encode()) == value


@pytest.mark.parametrize("text", ["", " ", "{", "[1,]", "1 2", '{"a":1}x', "nul", "\xa01"])
def test_what_is_not_json_is_refused(text: str) -> None:
    for loads in (json.loads, lean_json.loads):
        with pytest.raises(ValueError, match=r"line 1 column|no value at|more after"):
            loads(text)


def test_what_json_does_not_have_is_not_written() -> None:
    with pytest.raises(TypeError, match="set is not JSON serializable"):
        lean_json.dumps([{1}])
