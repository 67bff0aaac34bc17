"""Reading definitions for concealed text takes time in proportion to them, within a budget, whatever they hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mcp_workbench.core import phrases
from mcp_workbench.core.definition_warnings import STEPS, UNREAD, definition_warnings
from mcp_workbench.core.hidden_text import spelled_out
from mcp_workbench.core.raw_json import Steps
from tests.threats.growth import NOISE, SLACK, assert_linear, cost

pytestmark = pytest.mark.cost

LARGEST = 40_000  # characters
PLENTY = STEPS * 1000
BUDGET = 40_000  # steps
FIRST_WORDS = " ".join(sorted(phrases.FIRST_WORDS))

WORST: dict[str, Callable[[int], Any]] = {
    "one word of a phrase": lambda size: "never " * (size // 6),
    "half a phrase": lambda size: "before you must " * (size // 16),
    "all but the last word": lambda size: "ignore all previous previous " * (size // 29),
    "every first word": lambda size: (FIRST_WORDS + " ") * (size // len(FIRST_WORDS) + 1),
    "one letter": lambda size: "a" * size,
    "apostrophes": lambda size: "a'" * (size // 2),
    "colons": lambda size: ":" * size,
    "ends": lambda size: ". " * (size // 2),
    "half a mark": lambda size: "~/.ss" * (size // 5),
    "marks on one letter": lambda size: "a" + "\u0301\u0323" * (size // 2),
    "letters that expand": lambda size: "\ufdfa" * size,
    "flags": lambda size: "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f" * (size // 7),
    "tags": lambda size: "\U000e0041" * size,
    "joiners": lambda size: "\u0645\u200c" * (size // 2),
    "selectors": lambda size: "\u263a\ufe0f" * (size // 2),
    "words of two scripts": lambda size: "ABC\u0430 " * (size // 5),
    "one word of two scripts": lambda size: "AB" * (size // 2) + "\u0430",
    "members": lambda size: {f"m{n}": n for n in range(size // 8)},
    "short texts": lambda size: ["never"] * (size // 8),
    "long paths": lambda size: [{"n" * 400: ["x"] * 20}] * (size // 500),
}  # fmt: skip


@pytest.mark.parametrize("case", WORST)
def test_reading_takes_time_in_proportion(case: str) -> None:
    assert_linear(lambda value: definition_warnings(value, Steps(PLENTY)), WORST[case], LARGEST)


def test_spelling_out_takes_time_in_proportion() -> None:
    assert_linear(spelled_out, lambda size: "\u200b\U000e0041\x1b" * (size // 3), LARGEST // 4)


@pytest.mark.parametrize("case", WORST)
def test_what_is_beyond_the_budget_is_not_read(case: str) -> None:
    some, more = WORST[case](LARGEST * 4), WORST[case](LARGEST * 16)
    warnings = definition_warnings(more, Steps(BUDGET))
    most = SLACK * max(cost(lambda: definition_warnings(some, Steps(BUDGET))), NOISE)

    assert UNREAD in {warning.kind for warning in warnings}
    assert cost(lambda: definition_warnings(more, Steps(BUDGET)), enough=most) <= most
