"""Hosts and commands here are forks of a loaded process: what they show is the subject, not the process."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def _forks(forked_commands: None) -> None:  # pyright: ignore[reportUnusedFunction]
    """For every module of this folder."""
