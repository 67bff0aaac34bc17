"""What a person reads: nothing in it can hide, forge a line, or grow without bound."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.gateway.approval_text import (
    LONGEST_STRING,
    LONGEST_TEXT,
    MOST_READ,
    arguments_text,
)

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=5), values, max_size=4), st.booleans())
def test_short_arguments_are_shown_as_they_are(arguments: dict[str, object], ascii: bool) -> None:
    text = arguments_text(json.dumps(arguments, ensure_ascii=ascii).encode())

    assert json.loads(text) == arguments
    assert text.isprintable()


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ('{ "a" :\n\n 1 }', '{"a":1}'),
        ('{"a":1,"a":2}', '{"a":1,"a":2}'),  # both: a server may take either
        ('{"a":1.0}', '{"a":1.0}'),
        (r'{"p\u0061th":"\u0072m -rf"}', '{"path":"rm -rf"}'),  # no letter hides behind an escape
        ('{"a":"x\u202ey\u200b"}', r'{"a":"x\u202ey\u200b"}'),
        ('{"a":"\u3164\ufe0f\u2800"}', r'{"a":"\u3164\ufe0f\u2800"}'),
        ('{"a":"\U000e0101"}', r'{"a":"\udb40\udd01"}'),
        (r'{"a":"\n\u001b[2J"}', r'{"a":"\n\u001b[2J"}'),
        ('{"a":"Grüße 🙂"}', '{"a":"Grüße 🙂"}'),
        (r'{"a":"\ud800"}', r'{"a":"\ud800"}'),
    ],
)
def test_what_is_shown(written: str, shown: str) -> None:
    assert arguments_text(written.encode()) == shown


def test_a_long_string_is_cut_and_what_follows_is_seen() -> None:
    text = arguments_text(json.dumps({"padding": "x" * 9000, "path": "/"}).encode())

    assert text == '{"padding":"%s… (8,700 more characters)","path":"/"}' % ("x" * LONGEST_STRING)


@pytest.mark.parametrize("size", [MOST_READ // 2, MOST_READ * 20])
def test_long_arguments_are_cut_and_it_says_so(size: int) -> None:
    text = arguments_text(json.dumps(["ab"] * (size // 6)).encode())

    assert len(text) < LONGEST_TEXT + 100
    assert "… (not shown: " in text
    assert text.endswith("more characters)" if size < MOST_READ else "more bytes)")
