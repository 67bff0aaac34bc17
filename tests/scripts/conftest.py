"""Hosts here talk to forks of a loaded process: what scripts do is the subject, not the process."""

import pytest

pytest.importorskip("pydantic_monty", reason="the extra 'code' is not installed")


@pytest.fixture(scope="module", autouse=True)
def _forks(forked_commands: None) -> None:  # pyright: ignore[reportUnusedFunction]
    """For every module of this folder."""
