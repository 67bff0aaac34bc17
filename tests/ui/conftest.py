"""What tests of the page may ask for."""

from collections.abc import Generator

import pytest

from tests.ui.browser import Chromium, browser


@pytest.fixture(scope="module")
def chromium() -> Generator[Chromium]:
    with browser() as it:
        yield it
