"""Of the long runs (`make soak`) the one whose short form shows what no other test does.

How long the loop works between two of its turns is measured nowhere else: here under a line beyond
the cap, and under a flood of small messages. Everything else has its test by name, and is only longer
in the long run: kills in `faults/test_processes.py` and `contract/test_killed.py`, cancels in
`faults/test_cancelling.py`, overload in `contract/test_limits.py`, reloads in `reload/`, the plateau in
`faults/test_leaks.py`, mix-ups in `faults/test_hosts.py`, shared workbenches in `daemon/test_death.py`.
"""

import pytest

from tests.soak.run import SHORT

pytestmark = pytest.mark.cost


def test_a_flood_holds_the_loop_for_less_than_a_tenth_of_a_second() -> None:
    found = SHORT["floods"]()

    assert isinstance(found, list)
    missed = [str(figure) for figure in found if not figure.holds]
    assert not missed, "\n".join(missed)
