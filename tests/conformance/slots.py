"""Slots: how many scenarios run at the same time, in whatever processes. The standard library only."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

AT_ONCE = 4  # most of a scenario is waiting, or starting a process
PAUSE = 0.1  # seconds between two looks for a free slot


@contextmanager
def slot(folder: Path) -> Generator[None]:
    """Take one of the slots of this folder, as soon as one is free."""
    with ExitStack() as stack:
        files = [stack.enter_context(file) for file in _files(folder)]
        while not any(map(_take, files)):
            time.sleep(PAUSE)
        yield


@contextmanager
def every_slot(folder: Path) -> Generator[None]:
    """Run alone: for what measures time."""
    with ExitStack() as stack:
        for file in _files(folder):
            fcntl.flock(stack.enter_context(file), fcntl.LOCK_EX)
        yield


def _files(folder: Path) -> list[IO[bytes]]:
    folder.mkdir(parents=True, exist_ok=True)
    return [(folder / str(number)).open("wb") for number in range(AT_ONCE)]


def _take(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
