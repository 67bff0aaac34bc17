"""The command itself, with a probe in its loop: SIGUSR1 asks how many tasks there are and how late it runs.

python -m tests.soak.probed ARGUMENTS…      the answers are appended to the file $PROBE
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from mcp_workbench import app, http_app
from mcp_workbench.cli.main import main as command

BEAT = 0.005  # seconds between two looks at the clock
run_plainly = app.run


class Probe:
    """How much later than it should the loop comes round: by the clock, and by its own doing."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._loop = asyncio.get_running_loop()
        self._due = self._loop.time() + BEAT
        self._spent = time.thread_time()
        self._worst = self._busiest = 0.0
        self._timer = self._loop.call_at(self._due, self._beat)
        self._loop.add_signal_handler(signal.SIGUSR1, self._answer)

    def _beat(self) -> None:
        now = self._loop.time()
        spent = time.thread_time()
        self._worst = max(self._worst, now - self._due)
        self._busiest = max(self._busiest, spent - self._spent)
        self._due, self._spent = now + BEAT, spent
        self._timer = self._loop.call_at(self._due, self._beat)

    def _answer(self) -> None:
        gc.collect()
        tasks = sorted(task.get_name() for task in asyncio.all_tasks())
        told = {
            "tasks": tasks,
            "descriptors": len(list(Path("/proc/self/fd").iterdir())),
            "lag": self._worst,
            "busy": self._busiest,
        }
        with self._file.open("a") as file:
            file.write(json.dumps(told) + "\n")
        self._due = self._loop.time() + BEAT  # the answer itself is not the loop's fault
        self._spent = time.thread_time()
        self._worst = self._busiest = 0.0


def run(main: Coroutine[Any, Any, Any]) -> Any:
    async def watched() -> Any:
        Probe(Path(os.environ["PROBE"]))
        return await main

    return run_plainly(watched())


if __name__ == "__main__":
    app.run = http_app.run = run
    sys.exit(command())
