"""A suite leaves nothing behind in the system's folder for temporary files.

Each process of the suite has such a folder of its own, which the programs that tests start inherit, and
which is empty at the end. What pytest keeps there itself (`tmp_path`, of its last three runs) is elsewhere.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

LASTING = ("certificate-", "fuzz-")  # for one run: they go when the process ends
FOUND: set[str] = set()


def use(folder: Path) -> None:
    """Let temporary files be made here from now on."""
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    folder.mkdir()
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)


def left() -> list[str]:
    """What is there that nobody uses any more."""
    names = (path.name for path in Path(tempfile.gettempdir()).iterdir())
    return sorted(name for name in names if not name.startswith(LASTING))


class LookForLeftovers:
    """The session fails if something was left by it or, where it is shared out, by one of its workers.

    These add what they have left to `FOUND` (`workers.py`).
    """

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        FOUND.update(left())
        if FOUND and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if FOUND:
            terminalreporter.section("left among the temporary files")
            for name in sorted(FOUND):
                terminalreporter.write_line(name)
