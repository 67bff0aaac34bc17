"""Polls the configuration file, and loads it when it has changed and settled."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from mcp_workbench.config.load import load_config
from mcp_workbench.core.errors import ConfigError
from mcp_workbench.core.spec import Snapshot
from mcp_workbench.timing import pause

POLL = pause(1.0)  # seconds between two polls; one costs some microseconds
SETTLE = pause(0.15)  # seconds without a change until a written file counts as complete
DOUBT = pause(0.5)  # more seconds for a file with errors: a slow writer may not be done
ROUNDS = 20  # polls of a file that never settles before it is read anyway

LoadResult = Snapshot | ConfigError
Stamp = tuple[int, ...]

UNKNOWN: Stamp = (-1,)
ABSENT: Stamp = ()


def stamp_of(path: str) -> Stamp:
    """Returns a stamp that changes with the file, however it is written: in place, by rename, by link."""
    try:
        status = os.stat(path)  # noqa: PTH116 - follows symbolic links
    except (OSError, ValueError):
        return ABSENT
    # ctime changes where mtime is kept: cp -p, chmod, a rename of an old file.
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


class FileWatch:
    """Polls, waits and reads in a thread of its own: a drive that hangs blocks nothing else.

    `report` is called in that thread with each configuration or error, first with the file as it is
    now. A file that never existed (`optional`) is not reported as missing. One that another user could
    have written is refused, unless the user was warned when it was first read (`accepted`).
    """

    def __init__(
        self,
        path: str,
        report: Callable[[LoadResult], None],
        *,
        optional: bool,
        accepted: bool = False,
    ) -> None:
        self._path = path
        self._report = report
        self._optional = optional
        self._accepted = accepted
        self._wake = threading.Event()
        self._over = False

    def start(self) -> None:
        threading.Thread(target=self._run, name="configuration", daemon=True).start()

    def look(self) -> None:
        """Reads the file now, even if it has not changed."""
        self._wake.set()

    def end(self) -> None:
        self._over = True
        self._wake.set()

    def _run(self) -> None:
        seen = UNKNOWN
        while True:
            asked = self._wake.wait(POLL)
            self._wake.clear()
            if self._over:
                return
            if asked or stamp_of(self._path) != seen:
                seen = self._read(asked=asked)

    def _read(self, *, asked: bool) -> Stamp:
        """Reads the file when it has settled; returns its stamp."""
        stamp = stamp_of(self._path) if asked else self._settled(SETTLE)
        if stamp == ABSENT and self._optional:
            return stamp
        result = self._loaded()
        for _ in range(ROUNDS):
            if isinstance(result, Snapshot):
                self._optional = False
            elif (now := self._settled(DOUBT)) != stamp:
                stamp, result = now, self._loaded()
                continue
            break
        if not self._over:
            self._report(result)
        return stamp

    def _settled(self, seconds: float) -> Stamp:
        """Returns the stamp once it has stayed the same for so long."""
        stamp = stamp_of(self._path)
        for _ in range(ROUNDS):
            if self._pause(seconds) or (now := stamp_of(self._path)) == stamp:
                break
            stamp = now
        return stamp

    def _pause(self, seconds: float) -> bool:
        """Waits; returns whether the watch has ended."""
        self._wake.wait(seconds)
        return self._over

    def _loaded(self) -> LoadResult:
        try:
            return load_config(self._path, named=self._accepted)
        except ConfigError as error:
            return error
