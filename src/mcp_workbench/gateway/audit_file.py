"""The file of the audit: whole lines, appended by any number of processes, rotated by one of them.

Nothing here waits for another process. A line goes into the file with one append. A file that is full is
renamed; a process that has it open still appends to it, until it notices, so that no line is lost. A line
that a full disk has cut is overwritten with blanks: no reader ever gets a part of one.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from contextlib import suppress

from mcp_workbench.config.audit_settings import LogUnusable
from mcp_workbench.core.spec import AUDIT_BYTES, AUDIT_FILES

log = logging.getLogger(__name__)

KEPT_BYTES = 1 << 16  # of lines that can't be written now, and are tried again
ROOM = 1 << 16  # bytes that must be free on the disk where every call has to be recorded
STEP = 1 << 16
BETWEEN = 1.0  # seconds between two looks whether somebody has moved the file away
_APPEND = os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)


class AuditFile:
    """Appends lines. What goes wrong is logged once, and counted: `append` never raises."""

    def __init__(self, path: str, most_bytes: int = AUDIT_BYTES, files: int = AUDIT_FILES) -> None:
        self.path = path
        self.lost = 0  # lines that could not be written
        self.trouble = ""  # why lines can't be written now
        self._most_bytes = most_bytes
        self.files = files  # with those that were renamed
        self._fd = -1
        self._unwritten = b""  # whole lines
        self._next_look = 0.0
        # Bytes between two looks at the file's size; of a small one, several may be full in a moment.
        self._step = STEP if most_bytes >= AUDIT_BYTES else 0
        self._unchecked = 0
        self._is_stuck = False  # it can't be rotated, which was logged

    def open(self) -> None:
        """Open the file now. Raises LogUnusable."""
        try:
            self._open()
        except OSError as error:
            raise LogUnusable(f"calls can't be logged in {self.path}: {_reason(error)}") from None

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def append(self, lines: bytes, now: float) -> None:
        """Write these lines, and those that could not be written before; `now` is a monotonic time."""
        if self._unwritten:
            lines, self._unwritten = self._unwritten + lines, b""
        reason = ""
        try:
            if now >= self._next_look or self._fd < 0:
                self._look(now)
            if lines := self._write(lines):
                reason = os.strerror(errno.ENOSPC)
        except OSError as error:
            reason = _reason(error)
        if reason:
            self._keep(lines, reason)
        else:
            self.trouble = ""

    def _write(self, lines: bytes) -> bytes:
        """Append the lines; returns those that are not in the file. Raises OSError if none is."""
        written = os.write(self._fd, lines)
        if written < len(lines):
            return self._repaired(lines, written)
        self._unchecked += written
        if self._unchecked < self._step:
            return b""
        self._unchecked = 0
        status = os.fstat(self._fd)
        if not status.st_nlink:  # removed before this process has noticed that it was renamed
            self._open()
            written = os.write(self._fd, lines)
            return b"" if written == len(lines) else self._repaired(lines, written)
        if status.st_size >= self._most_bytes:
            self._rotate()
        return b""

    def problem(self, now: float) -> str:
        """Why a line could not be written now; empty if it could."""
        if self.trouble or self._fd < 0:
            self.append(b"", now)
        if self.trouble or not hasattr(os, "fstatvfs"):
            return self.trouble
        disk = os.fstatvfs(self._fd)
        free = disk.f_bavail if os.geteuid() else disk.f_bfree
        return os.strerror(errno.ENOSPC) if disk.f_blocks and free * disk.f_frsize < ROOM else ""

    # Opening

    def _open(self) -> None:
        fd = os.open(self.path, os.O_RDWR | _APPEND, 0o600)
        try:
            _require_own(os.fstat(fd), os.lstat(self.path))
            if os.name == "posix":
                os.fchmod(fd, 0o600)
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":  # its writer was killed
                os.write(fd, b"\n")
        except OSError:
            os.close(fd)
            raise
        self.close()
        self._fd = fd

    def _look(self, now: float) -> None:
        """Open the file if that was not done yet, or if another one has its name by now."""
        if self._fd < 0 or not self._is_current():
            self._open()
        self._next_look = now + BETWEEN
        self._unchecked = self._step

    def _is_current(self) -> bool:
        try:
            named = os.stat(self.path)  # noqa: PTH116 - text in
        except FileNotFoundError:
            return False
        return os.path.samestat(named, os.fstat(self._fd))

    # Trouble

    def _repaired(self, lines: bytes, written: int) -> bytes:
        """Overwrite the part of a line with blanks; returns the lines that are not in the file."""
        whole = lines.rfind(b"\n", 0, written) + 1
        if part := written - whole:
            end = os.lseek(self._fd, 0, os.SEEK_CUR)  # of what this process has appended
            with suppress(OSError):
                self._overwrite(b" " * (part - 1) + b"\n", end - part)
        return lines[whole:]

    def _overwrite(self, data: bytes, at: int) -> None:
        from fcntl import F_GETFL, F_SETFL, fcntl  # not on Windows

        flags = fcntl(self._fd, F_GETFL)
        fcntl(self._fd, F_SETFL, flags & ~os.O_APPEND)  # with it, Linux appends wherever we write
        try:
            os.pwrite(self._fd, data, at)
        finally:
            fcntl(self._fd, F_SETFL, flags)

    def _keep(self, lines: bytes, reason: str) -> None:
        """Keep what can't be written for the next time, as far as there is room; count the rest."""
        if not self.trouble:  # warn once, until it works again
            log.warning("calls can't be logged in %s: %s", self.path, reason)
        self.trouble = reason
        whole = len(lines)
        if whole > KEPT_BYTES:
            whole = lines.rfind(b"\n", 0, KEPT_BYTES) + 1
        self.lost += lines.count(b"\n", whole)
        self._unwritten = lines[:whole]

    # Rotation

    def _rotate(self) -> None:
        """Begin a new file, unless another process does so, or has done so: then use its file."""
        try:
            from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock  # not on Windows

            flock(self._fd, LOCK_EX | LOCK_NB)
        except (ImportError, BlockingIOError):
            return  # another process does it; this one looks again after its next line
        try:
            if self._is_current():
                self._shift()
            self._open()  # closes the old one, and so unlocks it
        except OSError as error:
            if not self._is_stuck:
                log.warning("%s can't be rotated: %s", self.path, _reason(error))
            self._is_stuck = True
            flock(self._fd, LOCK_UN)

    def _shift(self) -> None:
        """Rename the file and its predecessors; the oldest is overwritten."""
        last = self.files - 1
        if not last:
            os.unlink(self.path)  # noqa: PTH108
            return
        free = next((n for n in range(1, last) if not os.path.lexists(f"{self.path}.{n}")), last)
        for number in range(free, 1, -1):
            with suppress(FileNotFoundError):
                os.replace(f"{self.path}.{number - 1}", f"{self.path}.{number}")  # noqa: PTH105
        os.replace(self.path, f"{self.path}.1")  # noqa: PTH105


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def _require_own(status: os.stat_result, name: os.stat_result) -> None:
    """Raise OSError if this is no file that we write to. `name` may be that of a link to it."""
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    if hasattr(os, "geteuid") and status.st_uid != os.geteuid():
        raise OSError(errno.EPERM, "it belongs to another user, who could change it")
    if stat.S_ISLNK(name.st_mode) and name.st_uid not in (0, status.st_uid):
        # It may lead to any other file of this user, to which calls would be appended.
        raise OSError(errno.EPERM, "it is a link of another user")


def rotated(path: str, files: int) -> list[str]:
    """Return the paths of the file and its predecessors, newest first."""
    return [path, *(f"{path}.{number}" for number in range(1, files))]
