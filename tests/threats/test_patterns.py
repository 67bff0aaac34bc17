"""Every regular expression of the program takes time in proportion to the text, whatever is in it.

`python -m tests.threats.pattern_attacks` shows the texts that it takes more for.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mcp_workbench.hosts.files import Machine
from mcp_workbench.hosts.read import Syntax, translate
from mcp_workbench.hosts.secrets import has_reference, is_secret, replace_references
from tests.threats.growth import assert_linear
from tests.threats.pattern_attacks import UsedPattern, places, used_patterns, worst

pytestmark = pytest.mark.cost

# Those that take more are given no such texts.
VALID = "valid JSON alone is read with it: every string ends"
LAST_BRACE = "searched up to the last brace only, so that every search ends at the next one"
BOUNDED = {
    ("config/expand.py", r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}"): LAST_BRACE,
    ("hosts/secrets.py", r"\$\{[A-Za-z_][A-Za-z0-9_]*(?::-[^}]*)?\}"): LAST_BRACE,
    ("config/jsonc.py", r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"'): "matched at one place; a failure ends it",
    (
        "core/definition_hash.py",
        rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+',
    ): VALID,
    ("gateway/approval_text.py", r'"(?:[^"\\]|\\.)*"'): VALID,
    (
        "core/line_pattern.py",
        r"\{(?!\})([0-9]*)(,?)([0-9]*)\}",
    ): "in a pattern of at most 1000 characters",
}


@pytest.mark.parametrize("place", places())
def test_a_pattern_is_applied_in_proportion(place: str) -> None:
    used = list(used_patterns(place))
    attacks = {one: worst(one) for one in used if (place, one.pattern.pattern) not in BOUNDED}

    assert {one: found for one, found in attacks.items() if found} == {}
    patterns = {one.pattern.pattern for one in used}
    assert {pattern for file, pattern in BOUNDED if file == place} <= patterns


def test_a_pattern_that_looks_through_the_rest_each_time_is_noticed() -> None:
    assert worst(UsedPattern("", re.compile(r"\$\{([^}]*)\}"), "search"))
    assert not worst(UsedPattern("", re.compile(r"\$\{([^{}]*)\}"), "search"))
    assert worst(UsedPattern("", re.compile(r"(a|a)*b"), "match"))
    assert worst(UsedPattern("", re.compile(r" \(at .*\)$"), "search"))  # in long texts


SYNTAXES: list[tuple[Syntax, ...]] = [
    ("braces", "env", "input"),
    ("dollar",),
    ("curly", "folders"),
    ("none",),
]


@pytest.mark.parametrize("part", ["${A:-", "${input:", "{file:", "${env:A", "$A", "%A", "${", "{"])
def test_texts_of_other_hosts_are_translated_in_proportion(part: str) -> None:
    machine = Machine(Path("/home/a"), Path("/home/a/work"), {})

    def work(text: str) -> None:
        for syntaxes in SYNTAXES:
            translate(text, syntaxes, machine)
        has_reference(text)
        replace_references(text, "*")
        is_secret("TOKEN", text)

    assert_linear(work, lambda size: part * (size // len(part)), 200_000)
