"""Projections of results: lines with their numbers, and what an expression selects, in bounded work."""

from __future__ import annotations

import json
import re
import warnings
from contextlib import suppress
from typing import Any

import jmespath  # pyright: ignore[reportMissingTypeStubs]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.core.json_select import LONGEST_EXPRESSION, SelectError, Selection
from mcp_workbench.core.projection import (
    LINE_STEPS,
    LONGEST_LINE,
    MOST_SELECTED,
    SELECT_STEPS,
    SHOWN_STEPS,
    InvalidProjection,
    Projected,
    ProjectionFailed,
    read_projection,
)
from mcp_workbench.core.raw_json import TURN, Steps, TooComplex
from tests.kit.turns import done

PEOPLE = [{"name": f"n{n}", "age": n, "tags": ["x", "y"][: n % 3]} for n in range(40)]
DATA: dict[str, Any] = {"people": PEOPLE, "total": 40, "text": "one\ntwo\nthree", "pi": 3.5}


def projected(text: str, *, select: str = "", lines: str = "", context: int = 0) -> Projected:
    projection = read_projection(select, lines, context)
    assert projection is not None
    return done(projection.of(text, text))


# Lines


@given(
    st.lists(st.sampled_from(["a", "b", "ab", "", "xa\r", "x" * 20]), min_size=1, max_size=25),
    st.sampled_from(["a", "^a", "b$", "x+", "q", "^$", "a$"]),
    st.integers(0, 4),
)
def test_lines_are_shown_as_grep_shows_them(lines: list[str], pattern: str, context: int) -> None:
    hits = [n for n, line in enumerate(lines) if re.search(pattern, line.removesuffix("\r"))]
    near = sorted({n for hit in hits for n in range(hit - context, hit + context + 1)})
    expected: list[str] = []
    last = None
    for n in (n for n in near if 0 <= n < len(lines)):
        if context and last is not None and n > last + 1:
            expected.append("--")
        sign = ":" if n in hits else "-"
        expected.append(f"{n + 1}{sign}{lines[n].removesuffix(chr(13))}")
        last = n

    shown = projected("\n".join(lines), lines=pattern, context=context)

    assert shown.text == "\n".join(expected)
    assert shown.note == f"{len(hits)} of {len(lines)} lines match"


def test_groups_of_lines_are_separated() -> None:
    text = "\n".join("abcdefgh")

    assert projected(text, lines="[bh]", context=1).text == "1-a\n2:b\n3-c\n--\n7-g\n8:h"


def test_a_long_line_is_shown_around_its_match() -> None:
    line = "x" * 5000 + "needle" + "y" * 5000

    shown = projected(f"short\n{line}", lines="needle").text

    assert shown.startswith("2:…x")
    assert shown.endswith("y…")
    assert "needle" in shown
    assert len(shown) == LONGEST_LINE + 4


def test_lines_that_are_too_much_work_are_named() -> None:
    many = "\n".join(["ab"] * 400_000)
    one = "first c\n" + "ab" * 5_000_000

    shown = projected(many, lines="c|ab$")
    long = projected(one, lines="c|d")
    literal = projected(one, lines="abc")

    stopped = re.search(r"lines from (\d+) on were not searched", shown.note)
    assert stopped is not None
    assert shown.text.count("\n") + 1 == int(stopped[1]) - 1 > 10_000
    assert long.text == "1:first c"
    assert "lines from 2 on were not searched" in long.note
    assert literal.note == "0 of 2 lines match"


def turns(text: str, *, select: str = "", lines: str = "", context: int = 0) -> list[int]:
    """The steps of each turn."""
    taken: list[int] = []
    budgets: list[tuple[Steps, int]] = []

    def noted(most: int) -> Steps:
        budgets.append((Steps(most), most))
        return budgets[-1][0]

    def end_turn() -> None:
        taken.append(sum(most - steps.left for steps, most in budgets) - sum(taken))

    projection = read_projection(select, lines, context)
    assert projection is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mcp_workbench.core.projection.Steps", noted)
        with suppress(ProjectionFailed):
            for _ in projection.of(text, text):
                end_turn()
    end_turn()
    return taken


LONGEST_STEP = 3000  # of a turn's last step, such as the nodes that one character reaches


@pytest.mark.parametrize("size", [1, 4, 16, 64])
@pytest.mark.parametrize(
    ("lines", "context", "part"),
    [
        ("c|d", 0, "ab"),  # one line, each character of which is looked up
        ("x?", 0, "\n"),
        ("x?", 100, "\n"),
        ("ab", 100, "ab\n" + "c\n" * 200),
        ("a", 0, "a\n"),
        ("(a|b)*a(a|b){200}c", 0, "abbaab" * 40 + "\n"),
        (".{1000}b", 0, "ab\u00e9\u20ac"),
        (r"(\b.\b.)*\d\d\d", 0, "ab - "),
        (".", 100, "b" * 100_000 + "\n"),
    ],
)
def test_lines_are_found_and_shown_in_turns_of_so_many_steps(
    lines: str, context: int, part: str, size: int
) -> None:
    text = part * (size * 20_000 // len(part))

    taken = turns(text, lines=lines, context=context)

    assert max(taken) <= TURN + LONGEST_STEP
    assert sum(taken) <= LINE_STEPS + SHOWN_STEPS + LONGEST_STEP


def test_what_is_shown_is_bounded_whatever_surrounds_the_matches() -> None:
    shown = projected(("ab\n" + "c\n" * 200) * 2000, lines="ab", context=100)

    assert shown.text.count("\n") < 100_000
    count = shown.text.count("\n") + 1
    assert shown.note == f"2000 of 402001 lines match; only the first {count} lines are shown"


@pytest.mark.parametrize(
    "value",
    ["[" + "[]," * 150_000 + "[]]", "{" + ",".join(f'"{n:x}":0' for n in range(250_000)) + "}"],
)
def test_json_of_very_many_values_is_not_read(value: str) -> None:
    with pytest.raises(ProjectionFailed, match="more than 100000 values; lines can be searched"):
        projected(value, select="length(@)")


def test_an_expression_is_evaluated_in_one_turn_of_bounded_steps() -> None:
    rows = json.dumps([{"a": n, "b": [n, n]} for n in range(20_000)])

    for expression in ("[?a > `5`].b[]", "[*].{a: a, b: b}", "sort_by(@, &a)[*].b[]"):
        taken = turns(rows, select=expression)
        assert max(taken) <= SELECT_STEPS + len(rows)
        assert len(taken) > 1


# Selecting


@pytest.mark.parametrize(
    "expression",
    [
        "total",
        "people[?age > `37`].name",
        "people[0]",
        "people[-1].{n: name, a: age}",
        "people[:3].tags[]",
        "people[*].tags | [?length(@) == `2`] | length(@)",
        "sort_by(people, &name)[2].name",
        "max_by(people, &age).name",
        "people[?contains(tags, 'x')] | [0].age",
        "[total, pi, text]",
        "join(', ', people[:3].name)",
        "sum(people[*].age)",
        "avg(people[*].age)",
        "keys(@)",
        "values({a: total, b: `null`})",
        "map(&age, people[:2])",
        "missing.value || total",
        "people[?!(age < `38`)].age && total",
        "people[::-13].age",
        "to_string(people[0])",
        "to_number('12.5')",
        "type(people)",
        "merge(people[0], {z: total})",
        "not_null(missing, text)",
        "people[0] == people[1]",
        "people[0].tags != `[]`",
        "*.name",
        "'a' == 'a'",
        "starts_with(text, 'one')",
        "reverse(text)",
        "total[]",
        "total[0:1]",
        '"total"',
        "people[?name == `n3`].age",
    ],
)
def test_an_expression_selects_what_jmespath_selects(expression: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs: Any = jmespath.search(expression, DATA)  # pyright: ignore[reportUnknownMemberType]

    shown = projected(json.dumps(DATA), select=expression)

    assert shown.text == theirs if isinstance(theirs, str) else json.loads(shown.text) == theirs
    assert shown.note == ("" if theirs is not None else "select finds nothing")


def test_an_order_of_a_string_and_a_number_is_nothing() -> None:
    assert projected(json.dumps(DATA), select="text < total").text == "null"


def test_lines_of_what_is_selected() -> None:
    text = json.dumps(DATA)

    assert projected(text, select="text", lines="^t").text == "2:two\n3:three"
    assert projected(text, select="people", lines='"age":39').text == (
        '40:{"name":"n39","age":39,"tags":[]}'
    )
    assert projected(text, select="total", lines="4").text == "1:40"
    assert projected(text, select="missing", lines="4") == Projected("null", "select finds nothing")


@pytest.mark.parametrize(
    ("text", "expression", "reason"),
    [
        ("no JSON", "a", "select: the result has no structured content, and its text is not JSON"),
        ("[" * 100_000, "a", "its text is not JSON"),
        (" " * (MOST_SELECTED + 1), "a", "select: the JSON has more than 4 MiB"),
        ("{}", "keys(`1`)", r"select: keys\(\) takes object, not number"),
        ("{}", "length()", "select: Expected 1 argument"),
        ("{}", "not_null()", "select: Expected at least 1 argument"),
        ("{}", "ceil(to_number('1e999'))", "select: cannot convert float infinity"),
        ("{}", "contains('a', `1`)", "select: 'in <string>' requires string"),
        ("{}", "&a", "select: the expression gives no JSON value"),
        ("[1]", "[::0]", "select: slice step cannot be zero"),
        ("[1]", "@" + " | [@, @]" * 90, "select: too much work for one expression"),
    ],
)
def test_what_does_not_fit_says_why(text: str, expression: str, reason: str) -> None:
    with pytest.raises(ProjectionFailed, match=reason):
        projected(text, select=expression)


def test_a_sum_of_too_many_digits_says_so() -> None:
    nines = json.dumps({"a": "9" * 4300})

    with pytest.raises(ProjectionFailed, match="select: Exceeds the limit"):
        projected(nines, select="sum([to_number(a), to_number(a)])")


TWICE = " | [@, @]" * 60


@pytest.mark.parametrize(
    "expression",
    [
        "@" + TWICE,
        "@" + " | [@, @][]" * 40,
        "@" + TWICE + " | [0] == [1]",
        f"@{TWICE} | to_string(@)",
        f"@{TWICE} | contains(@, `1`)",
        f"people[*].name | join('', @) {'| join(``, [@, @])' * 60}".replace("``", "''"),
        "to_string(@)" + " | to_string([@, @])" * 40,
        "to_string(@)" + " | join(@, [@, @, @, @])" * 40,
        "[people, people, people, people][].{a: @, b: @} | [@, @, @, @][] | [@, @, @, @][] | [@, @][][:]",
        "people" + " | map(&[@, @], [@, @][])" * 30,
    ],
)
def test_an_expression_that_makes_much_of_little_is_stopped(expression: str) -> None:
    assert len(expression) <= LONGEST_EXPRESSION

    with pytest.raises(TooComplex):
        Selection(expression).of(DATA, Steps(20_000))


def test_a_value_that_is_large_and_of_the_wrong_type_is_not_quoted() -> None:
    with pytest.raises(SelectError, match=r"^keys\(\) takes object, not array$"):
        Selection("@" + TWICE + " | keys(@)").of(DATA, Steps(20_000))


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("a b", "Unexpected token"),
        ("people[", "Incomplete expression"),
        ("people[?a = `1`]", "Bad jmespath expression|Unknown token"),
        ('`"`', "Bad jmespath expression"),
        ("nosuch(@)", r"there is no function nosuch\(\); there are abs, avg, "),
        ("people[*].{a: nosuch(@)}", r"there is no function nosuch"),
        ("a" + " | a" * 200, "nested too deeply"),
        ("(" * 900 + "a" + ")" * 900, "nested too deeply"),
        ("a" * (LONGEST_EXPRESSION + 1), "longer than 2000 characters"),
    ],
)
def test_what_is_no_expression_is_said_before_there_is_a_result(
    expression: str, reason: str
) -> None:
    with pytest.raises(InvalidProjection, match=f"^select: .*({reason})"):
        read_projection(expression, "", 0)


def test_every_problem_is_said() -> None:
    with pytest.raises(InvalidProjection) as caught:
        read_projection("a[", "(a", 0)

    assert [problem.split(":")[0] for problem in caught.value.problems] == ["lines", "select"]


def test_nothing_asked_for_is_no_projection() -> None:
    assert read_projection("", "", 5) is None
