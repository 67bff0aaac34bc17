"""Tests may shorten what the program waits, and nobody else may."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from mcp_workbench.timing import scale

NAME = "MCP_WORKBENCH_TEST_PAUSES"
SHOW = "from mcp_workbench.config import load; print(load.POLL)"


@pytest.mark.parametrize(
    ("value", "factor"),
    [("0.1", 0.1), ("1", 1.0), ("", 1.0), ("soon", 1.0), ("0", 1.0), ("-1", 1.0), ("2", 1.0), ("nan", 1.0)],
)  # fmt: skip
def test_a_factor_shortens_and_never_lengthens_or_stops_the_clock(
    value: str, factor: float
) -> None:
    assert scale(NAME, {"PYTEST_VERSION": "9", NAME: value}) == factor


def test_without_a_factor_times_are_as_they_are() -> None:
    assert scale(NAME, {"PYTEST_VERSION": "9"}) == 1.0


def test_outside_of_pytest_it_is_ignored() -> None:
    assert scale(NAME, {NAME: "0.1"}) == 1.0


def test_a_program_that_a_test_starts_waits_less_and_any_other_does_not() -> None:
    environ = {**os.environ, NAME: "0.5"}
    elsewhere = {name: value for name, value in environ.items() if not name.startswith("PYTEST")}

    assert poll(environ) == 0.5
    assert poll(elsewhere) == 1.0


def poll(environ: dict[str, str]) -> float:
    """What a program with these variables waits between two looks at its file."""
    shown = subprocess.run(
        [sys.executable, "-c", SHOW], env=environ, capture_output=True, text=True, check=True
    )
    return float(shown.stdout)
