"""Patterns and expressions that nobody would write: refused, or as `re` and `jmespath` understand them."""

# What is made up has no types.
# pyright: basic

from __future__ import annotations

import json
import re
import warnings
from typing import Any

import jmespath
from hypothesis import strategies as st

from mcp_workbench.core.json_select import SelectError, Selection, written
from mcp_workbench.core.line_pattern import LinePattern, PatternError
from mcp_workbench.core.raw_json import Steps, TooComplex
from tests.fuzz.effort import fuzzed
from tests.kit.turns import done

SIGNS = r"a b _ 1 . * + ? ( ) (?: (?i) [ ] ^ - | $ \ \w \d \b \B \s { } {2} {1,2} , [a-b]"
PATTERNS = st.lists(st.sampled_from(SIGNS.split()), max_size=8).map("".join)
LINES = st.text("abA_1 -{},[]\\", max_size=10)
WORDS = "a b c @ * . [ ] [] [*] [0] [?a] [:2] | || && ! == < ( ) { } a: , & `1` 'x' length( keys( "
WORDS += "sort_by( to_string( join( max( not_null( `[` [::0] [::-1] to_number( ceil( contains("
EXPRESSIONS = st.lists(st.sampled_from(WORDS.split()), max_size=9).map("".join)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["x", "", "1e999"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=8,
)


@fuzzed(PATTERNS, LINES)
def test_a_pattern_is_refused_or_matches_as_in_python(pattern: str, line: str) -> None:
    try:
        ours = LinePattern(pattern)
    except PatternError:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = re.compile(pattern)
    if line or r"\B" not in pattern:  # Python has changed its mind about this in 3.14
        assert (done(ours.find(line, Steps(100_000))) is not None) == bool(theirs.search(line))


@fuzzed(EXPRESSIONS, VALUES)
def test_an_expression_is_refused_or_selects_as_jmespath(expression: str, value: Any) -> None:
    try:
        ours = written(Selection(expression).of(value, Steps(100_000)))
    except (SelectError, TooComplex):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            theirs = jmespath.search(expression, value)
        except TypeError:  # it compares a string with a number
            return
    if not isinstance(theirs, str) and theirs not in (float("inf"), float("-inf")):
        assert json.loads(ours) == theirs
