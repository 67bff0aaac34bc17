"""Our stdout and stderr where nobody takes them: a reader that has left, a full disk."""

from __future__ import annotations

import io
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from mcp_workbench.cli.settings import DONE

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def unwritten(error: OSError, argv: list[str]) -> int:
    """The status where stdout failed: a reader that has left ends it quietly, a full disk is told."""
    abandon(1)
    if isinstance(error, BrokenPipeError):  # the reader has what it wanted
        return DONE
    lenient_stderr()
    return import_module("mcp_workbench.cli.report").report_system(error, argv)


def abandon(number: int) -> None:
    """Let what nobody takes go nowhere, so that Python does not complain about it at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


def lenient_stderr() -> None:
    """Where stderr can't be written, what it would have shown is all that is lost."""
    if sys.stderr is not sys.__stderr__ or sys.platform == "win32":  # no file, or a console's own
        return
    encoding = sys.stderr.encoding
    writer = io.BufferedWriter(_Lenient(2, "wb", closefd=False))
    sys.stderr = io.TextIOWrapper(writer, encoding, "backslashreplace", line_buffering=True)


class _Lenient(io.FileIO):
    """A file that swallows what it can't write: the status still tells how it went."""

    def write(self, data: ReadableBuffer, /) -> int | None:
        try:
            return super().write(data)
        except OSError:
            abandon(self.fileno())
            return memoryview(data).nbytes
