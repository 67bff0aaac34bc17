"""One event loop for a whole module, so that its scenes can share a workbench."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from tests.kit.forked import RELAY, forking
from tests.kit.sdk_host import PRELOADED
from tests.kit.servers import SDK


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def servers() -> Generator[None]:
    """The SDK is imported once for all servers of this folder."""
    with forking(str(SDK / "preloaded.py")) as socket:
        PRELOADED[:] = [*RELAY, socket]
        yield
