"""What a script sees of a result, and what its answer shows of the script's value."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from mcp_workbench.core.script_values import (
    LONGEST_FAILURE,
    MOST_BLOCKS,
    CallValue,
    answer_text,
    call_value,
    parsed_text,
    returned_content,
    shortened,
)
from tests.kit.results import raw

IMAGE = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
LINK = {"type": "resource_link", "uri": "x:y"}


def text(value: object) -> dict[str, object]:
    return {"type": "text", "text": value}


def value_of(result: Any) -> tuple[CallValue, list[bytes]]:
    """The value of a result, and the blocks that were kept."""
    kept: list[bytes] = []

    def keep(block: msgspec.Raw) -> str:
        kept.append(bytes(block))
        return f"handle {len(kept)}"

    return call_value(raw(result), keep), kept


@pytest.mark.parametrize(
    ("result", "value"),
    [
        ({"content": [text("a"), text("b")]}, CallValue(b'"a\\nb"', is_text=True)),
        ({"content": [text("")]}, CallValue(b'""', is_text=True)),
        ({}, CallValue(b'""', is_text=True)),
        ({"isError": False, "content": [text("a")]}, CallValue(b'"a"', is_text=True)),
        ({"content": [text("a")], "structuredContent": {"b": 1}}, CallValue(b'{"b":1}')),
        ({"structuredContent": {"result": [1]}}, CallValue(b"[1]")),
        ({"structuredContent": {"result": 1, "b": 2}}, CallValue(b'{"result":1,"b":2}')),
        ({"structuredContent": [5]}, CallValue(b"[5]")),
        ({"structuredContent": 0}, CallValue(b"0")),
        ({"content": [text("a")], "structuredContent": None}, CallValue(b'"a"', is_text=True)),
        ({"content": [text("a")], "_meta": {"k": 1}}, CallValue(b'"a"', is_text=True, meta=raw({"k": 1}))),
        ({"structuredContent": {}, "_meta": {"k": 1}}, CallValue(b"{}", meta=raw({"k": 1}))),
    ],
)  # fmt: skip
def test_a_script_gets_structured_data_or_else_the_text(
    result: dict[str, Any], value: CallValue
) -> None:
    assert value_of(result) == (value, [])


@pytest.mark.parametrize(
    ("content", "failure"),
    [
        ([text("no"), IMAGE, text(""), text("really")], "no\nreally"),
        ([], "the tool failed, and does not say why"),
        ([IMAGE, 5, text(7)], "the tool failed, and does not say why"),
        ([text("a" * LONGEST_FAILURE)], "a" * LONGEST_FAILURE),
        ([text("a" * (LONGEST_FAILURE + 1))], "a" * LONGEST_FAILURE + "…"),
    ],
    ids=["texts", "nothing", "no text", "long", "too long"],
)
def test_a_tool_that_failed_says_why_in_its_own_words(content: list[Any], failure: str) -> None:
    result = {"isError": True, "content": content, "structuredContent": {"a": 1}, "_meta": {}}

    assert value_of(result) == (CallValue(b"null", failure=failure, meta=raw({})), [])


@pytest.mark.parametrize(
    ("content", "value", "kept"),
    [
        ([IMAGE], {"content": "handle 1", "type": "image", "mimeType": "image/png"}, [IMAGE]),
        (
            [text("a"), IMAGE, LINK],
            [
                "a",
                {"content": "handle 1", "type": "image", "mimeType": "image/png"},
                {"content": "handle 2", "type": "resource_link"},
            ],
            [IMAGE, LINK],
        ),
        ([{"type": "text"}], {"content": "handle 1", "type": "text"}, [{"type": "text"}]),
        ([5, text("a")], [{"content": "handle 1", "type": ""}, "a"], [5]),
    ],
    ids=["one", "mixed", "a text without text", "no block"],
)
def test_content_that_is_no_text_is_kept_and_its_handle_given(
    content: list[Any], value: object, kept: list[Any]
) -> None:
    found, blocks = value_of({"content": content})

    assert json.loads(found.json) == value
    assert not found.is_text
    assert [json.loads(block) for block in blocks] == kept


@pytest.mark.parametrize(
    "result", [[], {"content": 5}, {"content": [text("a")] * (MOST_BLOCKS + 1)}]
)
def test_a_malformed_result_has_no_value(result: object) -> None:
    with pytest.raises(msgspec.DecodeError):
        value_of(result)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("5", 5),
        ("-0.5", -0.5),
        ("true", True),
        ("null", None),
        ('"a"', "a"),
        (' {"a": 1.10}', {"a": 1.1}),
        ("\n[1, 2 ]", [1, 2]),
        ("1.10", "1.10"),
        ("1e3", "1e3"),
        ("0" * 8, "0" * 8),
        (" 5", " 5"),
        ("some words", "some words"),
        ("{", "{"),
        ("", ""),
        ("[" * 5000, "[" * 5000),
    ],
    ids=repr,
)
def test_a_text_that_is_json_is_its_value_unless_it_would_be_written_otherwise(
    written: str, value: object
) -> None:
    found = parsed_text(written)

    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("printed", "value", "answer"),
    [
        ("", b"", ""),
        ("", b"null", ""),
        ("one\n", b"", "one\n"),
        ("one\n", b"null", "one\n"),
        ("one\n", b'"two"', "one\ntwo"),
        ("one\n\n", b'"two"', "one\n\ntwo"),
        ("one", b'{"a":"b"}', 'one\n{"a":"b"}'),
        ("", b'"a\\n\\"b"', 'a\n"b'),
        ("one\n", b'""', "one\n"),
        ("", b"[1]", "[1]"),
    ],
)
def test_an_answer_is_what_was_printed_and_the_value_below_it(
    printed: str, value: bytes, answer: str
) -> None:
    assert answer_text(printed, value) == answer


def test_content_is_returned_if_its_handle_is_in_the_value() -> None:
    kept = {"h1": raw(IMAGE), "h2": raw(LINK), "h": raw(text("a"))}

    assert returned_content(b'[{"content":"h2"},{"content":"h1"}]', kept) == [raw(IMAGE), raw(LINK)]
    assert returned_content(b'"h3"', kept) == []


def test_a_text_is_shortened_to_so_many_characters() -> None:
    assert [shortened("abc", most) for most in (2, 3, 4)] == ["ab…", "abc", "abc"]
