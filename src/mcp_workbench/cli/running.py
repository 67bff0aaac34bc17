"""A command that starts servers sees them out, whichever signal ends it."""

from __future__ import annotations

import signal
from collections.abc import Coroutine
from types import FrameType
from typing import Any, TypeVar

from mcp_workbench import app

T = TypeVar("T")

_LIKE_CTRL_C = ("SIGTERM", "SIGHUP")  # a closed terminal window is the second one


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run to the end. Being told to end is Ctrl-C: without that, servers would be left behind."""
    for name in _LIKE_CTRL_C:
        number = getattr(signal, name, None)  # Windows has fewer
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:  # `nohup` ignores one
            signal.signal(number, _interrupt)
    return app.run(main)


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.raise_signal(signal.SIGINT)
