"""Tests that only root can do, such as one that gives a file to somebody else."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest


def needs_root(reason: str) -> Callable[[Any], Any]:
    """Mark a test that others skip. `make test-root` runs those that are marked."""
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    skipped = pytest.mark.skipif(not is_root, reason=f"needs root: {reason}")
    return lambda test: pytest.mark.root(skipped(test))
