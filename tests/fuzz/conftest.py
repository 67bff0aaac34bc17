"""What a long run says at its end."""

import pytest

from tests.fuzz.effort import MINUTES, TRIED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not MINUTES:
        return
    terminalreporter.section(f"{sum(TRIED.values())} examples")
    for name, count in TRIED.items():
        terminalreporter.write_line(f"{count:>9}  {name.replace('_', ' ')}")
