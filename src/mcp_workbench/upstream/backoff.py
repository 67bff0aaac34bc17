"""When a server that keeps failing may be tried again."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable

import msgspec

from mcp_workbench.core.spec import ServerSpec
from mcp_workbench.timing import pause

# A server that lived so long, or did so much, worked: its end is no failure to start.
STEADY = 10.0  # seconds
WORKED = 10  # answers
FIRST_PAUSE = pause(0.5)  # seconds after the second failure in a row; doubled by each further one
LONGEST_PAUSE = 60.0
OPEN_AFTER = 5  # failures in a row: from here on it is said that the server keeps failing
SPREAD = 0.2  # of a pause, drawn: many that wait for one server do not come at once
PATIENCE = pause(2.0)  # seconds that a caller waits for the next try rather than being refused


class Trial(msgspec.Struct, frozen=True):
    """How often a server has failed in a row, and when it may be tried again."""

    failures: int = 0
    not_before: float = 0.0
    reason: str = ""  # of the last failure
    is_wanted: bool = False  # by the server: it said how long it wants to be left alone

    @property
    def code(self) -> str:
        return "rate_limited" if self.is_wanted else "connect_failed"

    def left(self, now: float) -> float | None:
        """Seconds until the next try; None where that may be now, or will be waited for."""
        left = self.not_before - now
        return left if left > (0 if self.is_wanted else PATIENCE) else None

    @property
    def is_open(self) -> bool:
        """Is the breaker open: one try at a time, long pauses between?"""
        return self.failures >= OPEN_AFTER

    def change(self, reason: str) -> str:
        """What is written to the log; nothing while it only goes on failing."""
        if self.failures == OPEN_AFTER:
            pause = f"it is tried again after {LONGEST_PAUSE:g} s at most"
            return f"it keeps failing, {OPEN_AFTER} times in a row: {reason}; {pause}"
        return reason if self.failures < 2 else ""

    def told(self, now: float) -> str:
        """What a user reads beside the reason, where the next try has to wait."""
        left = self.left(now)
        if left is None:
            return ""
        if self.is_wanted:
            return f"; try again in {math.ceil(left)} s"
        return f"; it failed {self.failures} times in a row, next try in {math.ceil(left)} s"


def _draw() -> float:
    return os.urandom(1)[0] / 255


def pause_after(failures: int, drawn: float) -> float:
    """Seconds until the next try. The first is free: a server that was killed comes back at once."""
    if failures < 2:
        return 0.0
    pause = min(FIRST_PAUSE * 2.0 ** min(failures - 2, 30), LONGEST_PAUSE)
    return pause * (1 - SPREAD * drawn)


class Trials:
    """The servers that have failed lately. One that was changed in the configuration begins anew."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, draw: Callable[[], float] = _draw
    ) -> None:
        self._clock = clock
        self._draw = draw
        self._trials: dict[tuple[object, object], Trial] = {}

    def of(self, spec: ServerSpec) -> Trial:
        return self._trials.get((spec.address, spec.target), Trial())

    def ended(
        self,
        spec: ServerSpec,
        lived: float,
        answered: int,
        reason: str = "",
        closed_until: float = 0.0,
    ) -> Trial:
        """A server that nobody stopped has ended, so many seconds and answers after it was ready."""
        steady = lived >= STEADY or answered >= WORKED
        failures = 0 if steady else self.of(spec).failures + 1
        due = self._clock() + pause_after(failures, self._draw())
        trial = Trial(failures, max(due, closed_until), reason, closed_until > due)
        if failures:
            self._trials[spec.address, spec.target] = trial
        else:
            self._trials.pop((spec.address, spec.target), None)
        return trial
