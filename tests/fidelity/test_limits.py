"""Where a result can't travel, its host is told so at once; nothing is cut, and nothing waits."""

from __future__ import annotations

import pytest

from tests.fidelity.changes import expected
from tests.fidelity.corpus import DEPTH, levels
from tests.fidelity.scenes import ROUTES, Bench, Route, ways
from tests.fidelity.test_results import using


@pytest.mark.parametrize("route", ROUTES, ids=str)
def test_nesting_passes_whole_or_is_named(proxy: Bench, route: Route) -> None:
    ask = using(proxy.host(route), route)
    refused: list[int] = []
    depths = [900, *range(DEPTH - 2, DEPTH + 4), 1500, 5000, 100_000]
    for depth in depths:
        case = levels(depth)
        [way] = ways(route, "call", case, 0)
        told = ask(case, way)
        if told != ("result", expected(case, way)):
            assert told[0] == "result"
            assert b"nested too deeply" in told[1]
            assert b'"isError":true' in told[1]
            refused.append(depth)

    assert refused == [depth for depth in depths if depth > DEPTH]
