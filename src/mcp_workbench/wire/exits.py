"""Being told when a child has ended, without reaping it: its number stays its own."""

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import suppress


def watch_exit(pid: int, left: Callable[[], None]) -> Callable[[], None]:
    """Call `left` once when the process ends; returns how to stop watching."""
    loop = asyncio.get_running_loop()
    if not hasattr(os, "pidfd_open"):
        return _watch_in_thread(pid, left, loop)
    fd = os.pidfd_open(pid)

    def stop() -> None:
        nonlocal fd
        if fd >= 0:
            loop.remove_reader(fd)
            os.close(fd)
            fd = -1

    def readable() -> None:
        stop()
        left()

    loop.add_reader(fd, readable)
    return stop


def _watch_in_thread(
    pid: int, left: Callable[[], None], loop: asyncio.AbstractEventLoop
) -> Callable[[], None]:
    """The same for systems without process descriptors."""

    def wait() -> None:
        with suppress(OSError):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        with suppress(RuntimeError):  # the loop has closed meanwhile
            loop.call_soon_threadsafe(left)

    threading.Thread(target=wait, name=f"exit of {pid}", daemon=True).start()
    return lambda: None
