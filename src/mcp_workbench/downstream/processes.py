"""How many processes of servers run: one for each that is used, or one for each host of it."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager

from mcp_workbench.core.names import ServerAddress

log = logging.getLogger(__name__)


class Processes:
    """Counts them from their start until nothing of them is left; a server behind a URL has none."""

    def __init__(self) -> None:
        self._running: dict[ServerAddress, int] = {}

    def of(self, address: ServerAddress) -> int:
        return self._running.get(address, 0)

    @property
    def count(self) -> int:
        return sum(self._running.values())

    @contextmanager
    def running(self, address: ServerAddress, pid: int) -> Generator[None]:
        """One more, for as long as the block lasts."""
        self._running[address] = self.of(address) + 1
        log.info("%s: process %d started, %s", address, pid, self._told())
        try:
            yield
        finally:
            left = self._running.pop(address) - 1
            if left:
                self._running[address] = left
            log.info("%s: process %d has ended, %s", address, pid, self._told())

    def _told(self) -> str:
        return "1 runs now" if self.count == 1 else f"{self.count} run now"
