"""One workbench of each mode for the whole folder."""

from collections.abc import Generator

import pytest

from tests.fidelity.scenes import Bench, bench


@pytest.fixture(scope="package")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Generator[Bench]:
    with bench(tmp_path_factory.mktemp("proxy")) as opened:
        yield opened


@pytest.fixture(scope="package")
def dynamic(tmp_path_factory: pytest.TempPathFactory) -> Generator[Bench]:
    with bench(tmp_path_factory.mktemp("dynamic"), toolMode="dynamic") as opened:
        yield opened
