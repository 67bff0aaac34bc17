"""Hosts here talk to forks of a loaded process: what is asked is the subject, not the process."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def _forks(forked_commands: None) -> None:  # pyright: ignore[reportUnusedFunction]
    """For every module of this folder."""
