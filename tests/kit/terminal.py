"""A person at a terminal: a real one, with a keyboard that answers what stands on the screen."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.kit import forked
from tests.kit.command import TIMEOUT, environ
from tests.kit.forked import ForkedProcess

# Makes the terminal of its streams that of its session, and becomes the command. Between `fork` and `exec`
# it would be done in a copy of a process that may have threads, which newer versions of Python warn of.
TAKE = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"


class Terminal:
    """The screen so far, and the keyboard."""

    def __init__(self, fd: int, process: subprocess.Popen[bytes] | ForkedProcess) -> None:
        self._fd = fd
        self._process = process
        self.screen = ""
        self._seen = 0

    def expect(self, text: str) -> None:
        """Wait until this stands behind what was expected before."""
        until = time.monotonic() + TIMEOUT
        while text not in self.screen[self._seen :]:
            left = until - time.monotonic()
            assert left > 0 and self._read(left), f"{text!r} never came: {self.screen!r}"  # noqa: PT018
        self._seen = self.screen.index(text, self._seen) + len(text)

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def resize(self, columns: int, lines: int) -> None:
        """Give the window another size; the system notifies the program."""
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    @property
    def pid(self) -> int:
        return self._process.pid

    def hang_up(self) -> None:
        """Close the terminal; the system notifies the program."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def ended(self) -> int:
        """The exit status, once it has ended."""
        return self._process.wait(TIMEOUT)

    def rest(self) -> int:
        """Read to the end; the exit status."""
        until = time.monotonic() + TIMEOUT
        while self._read(until - time.monotonic()):
            assert time.monotonic() < until
        return self.ended()

    def _read(self, seconds: float) -> bool:
        if not select.select([self._fd], [], [], max(seconds, 0))[0]:
            return False
        data = b""
        with suppress(OSError):  # Linux says so when the last writer has gone
            data = os.read(self._fd, 65536)
        self.screen += data.decode(errors="replace").replace("\r\n", "\n")
        return bool(data)


@contextmanager
def terminal(
    *argv: str,
    cwd: Path,
    columns: int = 80,
    variables: dict[str, str] | None = None,
    env: dict[str, str] | None = None,
    command: Sequence[str] | None = None,
) -> Generator[Terminal, None, None]:
    """The command with all streams on a terminal that is its own, so that Ctrl-C reaches it.

    Its environment is ours with these `variables`, or `env` as it is. It is a fork where those are wanted,
    unless it is another `command`.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    if env is None:
        env = environ(TERM="xterm", **(variables or {}))
    process: subprocess.Popen[bytes] | ForkedProcess
    if command is None and forked.wanted(env):
        process = ForkedProcess(argv, cwd, env, [theirs, os.dup(theirs), os.dup(theirs)])
    else:
        process = subprocess.Popen(
            [sys.executable, "-E", "-S", "-c", TAKE, *(command or forked.COMMAND), *argv],
            cwd=cwd,
            env=env,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
    person = Terminal(ours, process)
    try:
        yield person
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(TIMEOUT)
        person.hang_up()
