"""The daemon's log: a file of bounded size, rotated once."""

from __future__ import annotations

import logging
import os
import time

MOST_BYTES = 1 << 20  # of a file; there are two, the current and the rotated one
ROTATED = ".1"  # suffix
OWN_SOURCE = "workbench"  # the source of lines that are no server's


class BoundedLog(logging.Handler):
    """Writes lines with their time and source. A line that can't be written is dropped, without blocking."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self._fd = -1
        self._size = 0
        self.trouble = ""  # why the last line could not be written
        self._open()

    def emit(self, record: logging.LogRecord) -> None:
        source = getattr(record, "server", OWN_SOURCE)
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + logging.Formatter().formatException(record.exc_info)
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))
        lines = [f"{moment} {source}: {line}\n" for line in text.splitlines() or [""]]
        self._write("".join(lines).encode("utf-8", "backslashreplace"))

    def _write(self, data: bytes) -> None:
        try:
            if self._size + len(data) > MOST_BYTES or self._fd < 0:
                self._rotate()
            self._size += os.write(self._fd, data)
            self.trouble = ""
        except OSError as error:  # a full disk, a folder that was made read-only
            self.trouble = error.strerror or str(error)

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        try:
            self._fd = os.open(self._path, flags, 0o600)
            self._size = os.fstat(self._fd).st_size
        except OSError as error:
            self.trouble = error.strerror or str(error)

    def _rotate(self) -> None:
        """Start a new file; if that fails, truncate the old one."""
        if self._fd >= 0:
            try:
                os.replace(self._path, self._path + ROTATED)  # noqa: PTH105
            except OSError:
                os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = -1
        self._open()
        if self._fd < 0:
            raise OSError(self.trouble)
