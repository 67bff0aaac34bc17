"""The short form of the run under load; `python -m tests.soak.reloads` is the long one."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.soak.reloads import Figures, over_http, over_stdio


@pytest.mark.parametrize("over", [over_stdio, over_http])
def test_reloads_under_load_lose_no_call_and_reconnect_nothing_for_nothing(
    tmp_path: Path, over: Callable[[Path, int, Callable[[str], None]], Figures]
) -> None:
    figures = over(tmp_path, 6, lambda line: None)

    assert figures.lost == []
    assert figures.needless == 0
    assert (figures.reloads, figures.bad, figures.moves) == (6, 1, 3)
    assert figures.starts["moving"] == 4
    assert figures.calls > 50
