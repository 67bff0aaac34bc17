"""What a person sees of a changed definition: each field, and nothing that moves the cursor."""

from __future__ import annotations

import msgspec
import pytest

from mcp_workbench.core.lock_report import MOST_FIELDS, is_meant, text_diff, text_warnings

HASH = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        (None, b'{"a":1,"b":{"c":[true,"x"]}}', ["+ a: 1", "+ b.c[0]: True", '+ b.c[1]: "x"']),
        (b'{"a":1,"b":2}', b'{"b":3,"c":4}', ["- a: 1", "- b: 2", "+ b: 3", "+ c: 4"]),
        (b'"old"', b'"new"', ['- text: "old"', '+ text: "new"']),
        (b'{"a":{},"b":[]}', b'{"a":[],"b":[]}', ["- a: {}", "+ a: []"]),
        (
            b'{"a":"b"}',
            rb'{"a":"b\n\u202e"}',
            ['- a: "b"', r'+ a: "b\n[U+202E RIGHT-TO-LEFT OVERRIDE]"'],
        ),
        (b'{"a":1}', b'{"a":1,"a":1}', ['- {"a":1}', '+ {"a":1,"a":1}']),
        (b'{"a":1}', b"{", ["- a: 1", "+ definition: {"]),
        (b'{"a":1}', b"[" * 5000, ["- a: 1", f"+ definition: {'[' * 5000}"]),
    ],
)
def test_a_difference_has_the_fields_that_differ(
    old: bytes | None, new: bytes, lines: list[str]
) -> None:
    assert text_diff(old, new) == lines


def test_a_definition_of_very_many_fields_is_shown_as_it_is() -> None:
    many = msgspec.json.encode({"d": ["\u202e", *range(MOST_FIELDS)]})
    few = msgspec.json.encode({"d": ["\u202e", *range(MOST_FIELDS - 1)]})

    [line] = text_diff(None, many)
    assert line.startswith('+ definition: {"d":["[U+202E RIGHT-TO-LEFT OVERRIDE]",0,1,')
    assert len(text_diff(None, few)) == MOST_FIELDS


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        (HASH, True),
        (HASH.removeprefix("sha256:"), True),
        (f" {HASH[:23].upper()} ", True),
        (HASH[:22], False),  # fewer digits than are shown
        (HASH[:23] + "f", False),
        ("", False),
    ],
)
def test_a_hash_is_meant_by_as_many_digits_as_are_shown(text: str, is_one: bool) -> None:
    assert is_meant(text, HASH) is is_one


@pytest.mark.parametrize(
    ("raw", "lines"),
    [
        (b'{"name":"x"}', []),
        (b"{", ["it can't be read whole"]),
        (b"[" * 5000, ["it can't be read whole"]),
    ],
)
def test_what_can_not_be_read_is_a_warning(raw: bytes, lines: list[str]) -> None:
    assert text_warnings(raw) == lines
