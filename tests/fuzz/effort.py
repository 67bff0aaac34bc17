"""How hard we try: a fixed short run in the suite, a long one with new luck in `make fuzz`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

MINUTES = float(os.environ.get("FUZZ") or 0)  # 0: the short run
AT_ONCE = 200  # examples of a long run between two looks at the clock
LARGER = 4  # times as large as in the suite

TRIED: dict[str, int] = {}  # examples by target, the simplest ones that Hypothesis adds included

_TOLERANT = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def size(usual: int) -> int:
    """How large something may become."""
    return usual * LARGER if MINUTES else usual


def fuzzed(*strategies: st.SearchStrategy[Any], examples: int = 25) -> Callable[..., Any]:
    """A target: a property that must hold for whatever the strategies make up.

    The suite tries the same `examples` every time, so that it fails for everybody or for nobody.
    """

    def target(check: Callable[..., None]) -> Callable[[], None]:
        name = check.__name__.removeprefix("test_")
        TRIED[name] = 0

        @wraps(check)
        def counted(*values: Any, **named: Any) -> None:
            TRIED[name] += 1
            check(*values, **named)

        chosen = settings(
            max_examples=AT_ONCE if MINUTES else examples,
            derandomize=not MINUTES,
            database=None,
            deadline=None,
            suppress_health_check=_TOLERANT,
            print_blob=bool(MINUTES),
        )
        once = chosen(given(*strategies)(counted))

        def test() -> None:
            until = time.monotonic() + MINUTES * 60 / len(TRIED)
            once()
            while time.monotonic() < until:
                once()

        test.__name__ = check.__name__
        test.__doc__ = check.__doc__
        test.__module__ = check.__module__
        return test

    return target
