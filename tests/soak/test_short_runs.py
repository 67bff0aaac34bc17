"""The long runs in their short form: every guarantee, every time."""

import pytest

from tests.soak.run import SHORT


@pytest.mark.parametrize("name", SHORT)
def test_a_guarantee_holds_in_a_short_run(name: str) -> None:
    found = SHORT[name]()

    missed = [
        str(figure)
        for figure in (found if isinstance(found, list) else [found])
        if not figure.holds
    ]
    assert not missed, "\n".join(missed)
