"""JSON as people write it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.config import jsonc
from mcp_workbench.config.jsonc import (
    Place,
    SyntaxProblem,
    duplicates,
    find,
    locate,
    parse,
    place,
    read,
)

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=5)
    ),
)
GAPS = st.sampled_from(["", " ", "\n", "\t", "\r\n", '// x, ] } " \n', '/* , ] " \n */', "/**/"])


@given(VALUES)
def test_any_json_value_reads_as_itself(value: Any) -> None:
    assert parse(msgspec.json.encode(value).decode()) == value


@given(VALUES, st.data())
def test_comments_and_trailing_commas_change_nothing(value: Any, data: st.DataObject) -> None:
    assert parse(untidy(value, data)) == value


def untidy(value: Any, data: st.DataObject) -> str:
    def gap() -> str:
        return data.draw(GAPS)

    def written(item: Any) -> str:
        if isinstance(item, dict):
            parts = [f"{written(k)}{gap()}:{written(v)}" for k, v in item.items()]  # pyright: ignore[reportUnknownVariableType]
            return f"{gap()}{{{','.join(parts)}{tail(parts)}}}{gap()}"
        if isinstance(item, list):
            parts = [written(inner) for inner in item]  # pyright: ignore[reportUnknownVariableType]
            return f"{gap()}[{','.join(parts)}{tail(parts)}]{gap()}"
        return f"{gap()}{msgspec.json.encode(item).decode()}{gap()}"

    def tail(parts: list[str]) -> str:
        return data.draw(st.sampled_from(["", ","])) + gap() if parts else gap()

    return written(value)


@given(st.text())
def test_any_text_is_a_value_or_a_problem_with_a_place(text: str) -> None:
    problem = problem_of(text)

    assert problem is None or 1 <= problem.line <= text.count("\n") + 1
    assert problem is None or problem.column >= 1


def problem_of(text: str) -> SyntaxProblem | None:
    try:
        parse(text)
    except SyntaxProblem as problem:
        return problem
    return None


@given(VALUES)
def test_every_span_reads_as_its_own_value(value: Any) -> None:
    text = msgspec.json.format(msgspec.json.encode(value)).decode()

    def check(node: jsonc.Node) -> None:
        assert parse(text[node.start : node.end]) == node.value
        for child in node.children:
            check(child.node)

    check(read(text))


def test_a_byte_order_mark_is_no_part_of_the_text() -> None:
    assert parse('\ufeff{"a": 1}') == {"a": 1}
    assert locate('\ufeff{"a": 1}', ("a",)) == Place(1, 2)


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("", 1, 1, "the text ends too early: something is not closed"),
        ("{", 1, 2, "expected a name in double quotes"),
        ("[1", 1, 3, "expected ',' or ']'"),
        ('{"a": 1\n "b": 2}', 2, 2, "expected ',' or '}'"),
        ('{"a" 1}', 1, 6, "expected ':'"),
        ("{a: 1}", 1, 2, "expected a name in double quotes"),
        ("['x']", 1, 2, "use double quotes"),
        ('["x', 1, 2, "this string is not closed on its line"),
        ('["\\q"]', 1, 2, "this string has a wrong escape or an unprintable character"),
        ("[1,,2]", 1, 4, "expected a value, not ','"),
        ("[,]", 1, 2, "expected a value, not ','"),
        ("[1] /* on and on", 1, 5, "there is more text after the end of the JSON value"),
        ("/* on and on", 1, 1, "this comment is not closed"),
        ("// a\n/* b */ /* on * and / on", 2, 9, "this comment is not closed"),
        ("[] []", 1, 4, "there is more text after the end of the JSON value"),
        ("[" * 100_000, 1, jsonc.DEPTH + 1, "this is nested more than 128 levels deep"),
    ],
)
def test_what_is_not_json_is_told_with_its_place(
    text: str, line: int, column: int, message: str
) -> None:
    with pytest.raises(SyntaxProblem) as caught:
        parse(text)

    assert (caught.value.line, caught.value.column, caught.value.message) == (line, column, message)


@pytest.mark.parametrize("word", ["True", "NaN", "01", "1.", "+1", ".5", "1e999x", "nul", "0x10"])
def test_only_the_numbers_and_words_of_json_are_taken(word: str) -> None:
    with pytest.raises(SyntaxProblem, match="no number and none of true, false, null"):
        parse(f"[{word}]")


@pytest.mark.parametrize(
    ("number", "told"),
    [
        ("1e400", "this number is too large; the largest is about 1.8e308"),
        ("-1.5E+999", "this number is too large; the largest is about 1.8e308"),
        ("9" * 4301, "this number is too long; a whole one has at most 4300 digits"),
        ("-" + "9" * 4301, "this number is too long; a whole one has at most 4300 digits"),
    ],
)
def test_a_number_beyond_all_bounds_is_told_its_bound(number: str, told: str) -> None:
    assert parse("[1.7e308, -1.7e308, " + "9" * 4300 + "]")
    with pytest.raises(SyntaxProblem) as caught:
        parse(f"[1,\n {number}]")

    assert (caught.value.line, caught.value.column, caught.value.message) == (2, 2, told)


def test_a_problem_never_quotes_the_text_which_may_be_a_secret() -> None:
    for text in (
        '{"TOKEN": hunter2hunter2}',
        '{"TOKEN": "hunter2hunter2\\q"}',
        "['hunter2hunter2']",
    ):
        with pytest.raises(SyntaxProblem) as caught:
            parse(text)
        assert "hunter2" not in str(caught.value)


TEXT = """{
  // where things are
  "a": [10, {"b": null}],
  "c": {"d": "x", "d": "y"}
}"""


@pytest.mark.parametrize(
    ("path", "line", "column"),
    [
        ((), 1, 1),
        (("a",), 3, 3),
        (("a", 0), 3, 9),
        (("a", 1, "b"), 3, 14),
        (("c", "d"), 4, 19),
        (("c", "nothing", "here"), 4, 3),
        (("a", "no index"), 3, 3),
    ],
)
def test_a_path_leads_to_its_key_or_to_what_surrounds_it(
    path: jsonc.Path, line: int, column: int
) -> None:
    assert locate(TEXT, path) == (line, column)


def test_the_span_of_a_value_is_how_the_file_writes_it() -> None:
    child = find(read(TEXT), ("a", 1))

    assert TEXT[child.node.start : child.node.end] == '{"b": null}'


def test_a_key_that_stands_twice_is_found_with_both_places() -> None:
    [twice] = duplicates(read(TEXT))

    assert twice.path == ("c", "d")
    assert place(TEXT, twice.first) == (4, 9)
    assert place(TEXT, twice.second) == (4, 19)
    assert parse(TEXT)["c"] == {"d": "y"}
