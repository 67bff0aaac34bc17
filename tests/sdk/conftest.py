"""One event loop for a whole module, so that its scenes can share a workbench."""

from __future__ import annotations

import pytest

from tests.kit.forked import RELAY, server
from tests.kit.sdk_host import PRELOADED
from tests.kit.servers import SDK


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def servers() -> None:
    """The SDK is imported once for all servers of this folder."""
    PRELOADED[:] = [*RELAY, server("sdk", str(SDK / "preloaded.py"))]
