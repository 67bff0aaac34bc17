"""Waiting times of the program, which its own test suite may shorten.

A test of a program that waits a second waits with it. Under pytest, and nowhere else, two variables
shorten what the program waits: `MCP_WORKBENCH_TEST_PAUSES` its pauses, `MCP_WORKBENCH_TEST_DEADLINES`
its deadlines, each a factor from 0 (excluded) to 1. Both are internal: not settings, and no promise.
"""

import os
from collections.abc import Mapping


def pause(seconds: float) -> float:
    """A time that always passes whole: between two looks at a file, or before another try."""
    return seconds * _PAUSES


def deadline(seconds: float) -> float:
    """A time after which we stop waiting for somebody else.

    The suite shortens it only where the other side never answers: a healthy one may need all of it
    on a busy machine.
    """
    return seconds * _DEADLINES


def scale(name: str, environ: Mapping[str, str]) -> float:
    """The factor in this variable. Pytest gives its own variable to all that it starts."""
    if "PYTEST_VERSION" not in environ:
        return 1.0
    try:
        factor = float(environ.get(name, "1"))
    except ValueError:
        return 1.0
    return factor if 0 < factor <= 1 else 1.0


_PAUSES = scale("MCP_WORKBENCH_TEST_PAUSES", os.environ)
_DEADLINES = scale("MCP_WORKBENCH_TEST_DEADLINES", os.environ)
