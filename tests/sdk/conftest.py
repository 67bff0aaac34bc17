"""One event loop for a whole module, so that its scenes can share a workbench."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
