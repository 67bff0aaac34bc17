"""Under coverage, what is run is recorded with the test file that ran it, in started programs as well.

`make mutants` reads from it which tests could notice a change of a line.
"""

from __future__ import annotations

import os

from coverage import Coverage
from coverage.config import CoverageConfig

CONFIG = "COVERAGE_PROCESS_CONFIG"  # what coverage hands to the programs that are started


class FileContexts:
    """Names the file of the current test."""

    def __init__(self) -> None:
        self._current = ""

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        file = nodeid.partition("::")[0]
        coverage = Coverage.current()
        if coverage is None or file == self._current:
            return
        self._current = file
        coverage.switch_context(file)
        config = CoverageConfig.deserialize(os.environ[CONFIG])
        config.context = file
        os.environ[CONFIG] = config.serialize()
