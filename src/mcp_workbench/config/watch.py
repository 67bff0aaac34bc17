"""A file that is looked at once a second, and read when it has changed and rests."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from mcp_workbench.config.load import load_config
from mcp_workbench.core.errors import ConfigError
from mcp_workbench.core.spec import Snapshot
from mcp_workbench.timing import pause

POLL = pause(1.0)  # seconds between two looks; one costs some microseconds
SETTLE = pause(0.15)  # seconds without a change until a file that was written counts as whole
DOUBT = pause(0.5)  # seconds more for one that can't be used: a slow writer may not be done
ROUNDS = 20  # looks at a file that never rests, before it is read all the same

Found = Snapshot | ConfigError
Stamp = tuple[int, ...]

UNKNOWN: Stamp = (-1,)
ABSENT: Stamp = ()


def stamp_of(path: str) -> Stamp:
    """What is another whenever the file is, however it was written: in place, by a rename, by a link."""
    try:
        found = os.stat(path)  # noqa: PTH116 - what a symbolic link leads to
    except (OSError, ValueError):
        return ABSENT
    # The time of change sees what keeps the time of writing: cp -p, chmod, a rename of an old file.
    return (
        found.st_dev,
        found.st_ino,
        found.st_size,
        found.st_mtime_ns,
        found.st_ctime_ns,
    )


class FileWatch:
    """Looks, waits and reads in a thread of its own: a drive that hangs holds up nobody else.

    `found` is called there with each configuration, or with why there is none. The first is the
    file as it is now. A file that was never there (`optional`) is not missed. One that another user
    could have written is refused, unless the user was told so when it was first read (`accepted`).
    """

    def __init__(
        self,
        path: str,
        found: Callable[[Found], None],
        *,
        optional: bool,
        accepted: bool = False,
    ) -> None:
        self._path = path
        self._found = found
        self._optional = optional
        self._accepted = accepted
        self._wake = threading.Event()
        self._over = False

    def start(self) -> None:
        threading.Thread(target=self._run, name="configuration", daemon=True).start()

    def look(self) -> None:
        """Read the file now, whether it has changed or not."""
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
        """Read the file when it rests; returns what it was then."""
        stamp = stamp_of(self._path) if asked else self._rested(SETTLE)
        if stamp == ABSENT and self._optional:
            return stamp
        found = self._loaded()
        for _ in range(ROUNDS):
            if isinstance(found, Snapshot):
                self._optional = False
            elif (now := self._rested(DOUBT)) != stamp:
                stamp, found = now, self._loaded()
                continue
            break
        if not self._over:
            self._found(found)
        return stamp

    def _rested(self, seconds: float) -> Stamp:
        """The file's stamp once it has been the same for so long."""
        stamp = stamp_of(self._path)
        for _ in range(ROUNDS):
            if self._pause(seconds) or (now := stamp_of(self._path)) == stamp:
                break
            stamp = now
        return stamp

    def _pause(self, seconds: float) -> bool:
        """Wait, unless we are to end."""
        self._wake.wait(seconds)
        return self._over

    def _loaded(self) -> Found:
        try:
            return load_config(self._path, named=self._accepted)
        except ConfigError as error:
            return error
