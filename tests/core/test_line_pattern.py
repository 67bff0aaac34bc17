"""Patterns for lines: they match what Python's would, in linear time, and say what they can't do."""

from __future__ import annotations

import re
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.core.line_pattern import LONGEST_PATTERN, LinePattern, PatternError
from mcp_workbench.core.raw_json import Steps, TooComplex
from tests.kit.turns import done

ATOMS = [
    r"a",
    r"b",
    r"_",
    r".",
    r"\w",
    r"\W",
    r"\d",
    r"\s",
    r"\b",
    r"\B",
    r"^",
    r"$",
    r"[ab]",
    r"[^a]",
    r"[\d-]",
    r"[]a]",
    r"\.",
    r"\x41",
    r"\u00e9",
    r"\t",
    r"{",
    r"a{",
    r"}",
    r"]",
    r"(?:)",
    r"\-",
]


def repeated(part: str, suffix: str) -> str:
    return f"(?:{part}){suffix}"


REPEATS = st.sampled_from(["*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{,2}", "{0}", "{1,}"])
PATTERNS = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.one_of(
        st.builds(repeated, inner, REPEATS),
        st.builds("({})".format, inner),
        st.builds("(?P<n{}>{})".format, st.integers(0, 10**9), inner),
        st.builds("(?i:{})".format, inner),
        st.lists(inner, min_size=2, max_size=4).map("".join),
        st.lists(inner, min_size=2, max_size=3).map("|".join).map("(?:{})".format),
    ),
    max_leaves=12,
)


def found(pattern: str, line: str) -> int | None:
    return done(LinePattern(pattern).find(line, Steps(1_000_000)))


@given(PATTERNS, st.text("abAB_ .-{}]1é\t", max_size=12), st.sampled_from(["", "(?i)", "(?ms)"]))
def test_a_line_matches_where_python_finds_a_match(pattern: str, line: str, flags: str) -> None:
    try:
        theirs = re.compile(flags + pattern)
    except re.error:  # two groups of one name
        return
    if not line and r"\B" in pattern:  # Python has changed its mind about this in 3.14
        return
    ends = [
        end
        for end in range(len(line) + 1)
        if any(_ends(theirs, line, start, end) for start in range(end + 1))
    ]

    assert found(flags + pattern, line) == (ends[0] if ends else None)


def _ends(pattern: re.Pattern[str], line: str, start: int, end: int) -> bool:
    """Whether a match can extend from start to end, whichever Python would prefer."""
    flags, inside = re.fullmatch(r"(\(\?(?:i|ms)\))?(.*)", pattern.pattern, re.DOTALL).groups("")  # type: ignore[union-attr]
    ending = re.compile(f"{flags}(?:{inside})(?<=\\A[\\s\\S]{{{end}}})")
    return ending.match(line, start) is not None


@given(PATTERNS, st.text("ab_ .-{}]1", max_size=12))
def test_every_matching_line_has_the_literal_that_is_looked_for_first(
    pattern: str, line: str
) -> None:
    mine = LinePattern(pattern)

    if done(mine.find(line, Steps(1_000_000))) is not None:
        assert mine.literal in line


def test_the_literal_is_the_longest_text_that_is_certain() -> None:
    literals = {
        pattern: LinePattern(pattern).literal
        for pattern in ("timeout", "def (get_)x\\w+:", "a|b", "(?i)abc", "x?yz+", r"\.py\b", ".*")
    }

    assert literals == {
        "timeout": "timeout",
        "def (get_)x\\w+:": "def get_x",
        "a|b": "",
        "(?i)abc": "",
        "x?yz+": "y",
        r"\.py\b": ".py",
        ".*": "",
    }


BOMBS = {
    "(a+)+$": "a" * 50_000 + "!a",
    "(a|aa)+$": "a" * 50_000 + "!a",
    "(a*)*b": "a" * 50_000,
    "(.*)*x": "a" * 50_000,
    "(.*.*)*=x": "a" * 50_000,
    "(x+x+)+y": "x" * 50_000,
    r"^(\w+\s?)*$": "words " * 8_000 + "!",
    r"(\d+)*\1?x".replace(r"\1?", ""): "1" * 50_000,
    "(?:a?){40}a{40}": "b" + "a" * 39,
    "(([a-z])+.)+[A-Z]([a-z])+$": "a" * 50_000,
    "^(([a-z])+.)+[A-Z]([a-z])+$": "a" * 50_000,
    r"^([a-zA-Z0-9])(([\-.]|[_]+)?([a-zA-Z0-9]+))*(@){1}[a-z0-9]+[.]{1}(([a-z]{2,3}))$": "a"
    * 50_000,
    r"\s+$": " " * 50_000 + "x",
    ".*.*.*.*.*.*.*.*x": "a" * 50_000,
}


@pytest.mark.parametrize("pattern", BOMBS)
def test_no_pattern_needs_more_than_a_few_steps_for_each_character(pattern: str) -> None:
    line = BOMBS[pattern]
    steps = Steps(1_000_000)

    done(LinePattern(pattern).find(line, steps))

    assert 1_000_000 - steps.left < 5_000 + len(line) // 4


def test_what_has_too_many_states_is_stopped_and_memory_stays_bounded() -> None:
    pattern = LinePattern("(a|b)*a(a|b){200}c")
    line = "".join(Random(1).choices("ab", k=20_000))
    steps = Steps(300_000)

    with pytest.raises(TooComplex):
        done(pattern.find(line, steps))

    assert pattern.remembered < 200_000
    assert done(pattern.find("x" + "a" * 201 + "c", Steps(300_000))) == 203


def test_a_match_is_found_after_states_were_forgotten() -> None:
    line = "".join(Random(2).choices("ab", k=6_000)) + "c"
    pattern = "a(a|b){60}c"
    mine = LinePattern(pattern)

    assert (done(mine.find(line, Steps(10_000_000))) is not None) == bool(re.search(pattern, line))
    assert done(mine.find("a" * 61 + "c", Steps(10_000_000))) == 62
    assert done(mine.find("b" * 61 + "c", Steps(10_000_000))) is None


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(?=a)", "lookahead is not supported, at character 1"),
        ("x(?!a)", "lookahead is not supported, at character 2"),
        ("(?<=a)b", "lookbehind is not supported"),
        ("(?<!a)b", "lookbehind is not supported"),
        ("(?>a)", "an atomic group is not supported"),
        ("(a)(?(1)b)", "a condition is not supported"),
        (r"(?P<n>a)(?P=n)", "a reference to a group is not supported"),
        (r"(a)\1", "a reference to a group is not supported"),
        ("\\", "nor is a lone backslash"),
        ("a*+", "a possessive repeat is not supported"),
        ("a**", "a repeat of a repeat"),
        ("a{2}{3}", "a repeat of a repeat"),
        ("*a", "nothing to repeat"),
        ("^*", "nothing to repeat"),
        ("{2}a", "nothing to repeat"),
        ("(?i)+a", "nothing to repeat"),
        ("(a", "a parenthesis is not closed"),
        ("a)", "unbalanced parenthesis"),
        ("[a", "a bracket is not closed"),
        ("[]", "a bracket is not closed|unterminated"),
        ("[z-a]", "bad character range z-a"),
        ("[[:alpha:]]", "names of classes"),
        (r"\q", r"bad escape \\q"),
        (r"a\nb", "lines are matched one at a time"),
        ("a\nb", "lines are matched one at a time"),
        ("a{3,2}", "fewer repeats at most than at least"),
        ("a{99999}", "too many repeats"),
        ("a{1999}b{1999}", "too large"),
        ("((a{99}){99}){99}", "too large"),
        ("((((){999}){999}){999}){999}", "too large"),
        ("(" * 60 + ")" * 60, "more than 50 groups in groups"),
        ("a(?i)b", "flags belong at the beginning"),
        ("(?x)a", "this kind of group is not supported"),
        ("(?-i:a)", "this kind of group is not supported"),
        ("a" * (LONGEST_PATTERN + 1), "longer than 1000 characters"),
    ],
)
def test_what_is_not_supported_is_said(pattern: str, reason: str) -> None:
    with pytest.raises(PatternError, match=reason):
        LinePattern(pattern)
