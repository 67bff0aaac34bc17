"""What every test may ask for."""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """The loop that the program runs on. Where the loop is the subject, a folder gives both."""
    return "asyncio", {"use_uvloop": True}
