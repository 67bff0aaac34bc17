"""Finds one call in the audit, for those who show its arguments: the newest lines first."""

from __future__ import annotations

import io
import os
import stat
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from mcp_workbench.gateway.audit_arguments import LONGEST_LINE
from mcp_workbench.gateway.audit_file import rotated

if TYPE_CHECKING:
    from mcp_workbench.gateway.audit_file import AuditFile

MOST_SEARCHED = 32 << 20  # bytes, of all files together
BLOCK = 1 << 20
HEAD = 128  # bytes, within which a line has its numbers
NEAR = 60.0  # seconds between the clocks of the line and of the call
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


class RecordedCall(msgspec.Struct, frozen=True):
    """What the audit has of a call, as far as it is shown."""

    ts: str
    args_bytes: int = 0
    arguments: str | None = None  # masked and cut when they were written; None: they were not


_decode = msgspec.json.Decoder(RecordedCall).decode


def recorded_call(file: AuditFile, number: int, size: int, ended: float) -> RecordedCall | None:
    """Return the line of a call of this process. Blocks.

    `number` is that of its line, `size` that of its arguments, `ended` the time of day: an older process can
    have had the same id.
    """
    mark = b'"seq":%d,"pid":%d,' % (
        number,
        os.getpid(),
    )  # no name can contain it: quotes are escaped
    left = MOST_SEARCHED
    for path in rotated(file.path, file.files):
        try:
            with io.FileIO(os.open(path, _FLAGS)) as source:
                status = os.fstat(source.fileno())
                if not _is_own(status):
                    continue
                line = _last_with(mark, source, status.st_size, left)
                left -= status.st_size
        except OSError:  # it was never there, or can't be read
            continue
        if line:
            return _fitting(line, size, ended)
        if left <= 0:
            break
    return None


def _is_own(status: os.stat_result) -> bool:
    is_mine = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
    return is_mine and stat.S_ISREG(status.st_mode)


def _last_with(mark: bytes, source: io.FileIO, end: int, most: int) -> bytes:
    """Return the last whole line that has the mark in its head; empty if none has."""
    lowest = max(end - most, 0)
    while end > lowest:
        start = max(end - BLOCK, 0)
        source.seek(max(start - HEAD, 0))
        block = source.read(end + LONGEST_LINE - source.tell())
        if (at := block.rfind(mark)) >= 0:
            first, last = block.rfind(b"\n", 0, at) + 1, block.find(b"\n", at)
            if (first or start <= HEAD) and last > 0:
                return block[first:last]
        end = start
    return b""


def _fitting(line: bytes, size: int, ended: float) -> RecordedCall | None:
    try:
        found = _decode(line)
        moment = datetime.fromisoformat(found.ts).timestamp()
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return found if found.args_bytes == size and abs(moment - ended) < NEAR else None
