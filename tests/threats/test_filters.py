"""Filters of the operator over very long lists of a server: neither is multiplied with the other."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from mcp_workbench.core.filter_edits import switched
from mcp_workbench.core.name_patterns import LONGEST_KEPT, MOST_KEPT
from mcp_workbench.core.spec import ToolFilter, tool_filter
from mcp_workbench.gateway.workbench import Gateway
from mcp_workbench.upstream.tool_list import filter_in_steps
from tests.kit.config import snapshot
from tests.threats.growth import assert_linear, peak, steps_of
from tests.threats.test_page_floods import listing

pytestmark = pytest.mark.cost

TOOLS = 10_000  # that are shown of one server
STEP = 0.1  # seconds of CPU


def names(count: int) -> tuple[str, ...]:
    return tuple(f"some_tool_{n}" for n in range(count))


PATTERNS: list[Callable[[int], tuple[str, ...]]] = [
    lambda count: tuple(f"some_tol_{n}" for n in range(count)),
    lambda count: tuple(f"!some_tol_{n}" for n in range(count)),
]


@pytest.mark.parametrize("patterns", PATTERNS)
def test_names_in_a_filter_cost_nothing_for_each_tool(
    patterns: Callable[[int], tuple[str, ...]],
) -> None:
    def work(count: int) -> None:
        chosen = tool_filter(patterns(count))
        tools = names(count)
        shown = [chosen.shows(name) for name in tools]
        assert shown == [not chosen.include[0].startswith("some")] * count
        assert len(chosen.idle(tools)) == count

    assert_linear(work, int, 2 * TOOLS)


def test_patterns_without_a_match_are_looked_for_with_a_bound() -> None:
    def work(count: int) -> None:
        unused = tuple(f"!*_tol_{n}*" for n in range(count))
        tool_filter(unused).idle(names(count))

    assert_linear(work, int, 4000)
    assert tool_filter(("*_tol_*", "some_*", "other")).idle(names(100)) == ["*_tol_*", "other"]


def test_tools_are_switched_in_proportion_to_them() -> None:
    def work(tools: tuple[str, ...]) -> None:
        every_other = switched(None, tools, set(tools[::2]), set())
        assert every_other is not None
        fewer = switched(every_other, tools, set(tools[1::4]), set())
        assert fewer is not None
        assert len(fewer) < len(tools)

    assert_linear(work, names, TOOLS)


def test_what_a_filter_remembers_has_a_bound() -> None:
    chosen = ToolFilter(("*a*",))
    long = ["b" * (LONGEST_KEPT + 1) + str(n) for n in range(100)]

    def work() -> None:
        for count in range(3 * MOST_KEPT):
            chosen.shows(f"b{count}")
        for name in long:
            chosen.shows(name)

    assert peak(work) <= 8 << 20


async def test_a_long_list_is_filtered_in_steps() -> None:
    globs = tool_filter(tuple(f"!*_{n}_x*" for n in range(200)))

    _, longest = await steps_of(filter_in_steps(globs, names(TOOLS)))

    assert longest <= STEP


async def test_a_server_that_lists_very_many_tools_holds_up_nobody_who_filters_them() -> None:
    globs = tool_filter(tuple(f"!*_{n}_x*" for n in range(100)))
    spec = msgspec.structs.replace(listing(more_tools=TOOLS), tools=globs)
    async with Gateway(snapshot(spec)) as gateway:
        _, longest = await steps_of(gateway.view.open("dev"))

    assert longest <= STEP
