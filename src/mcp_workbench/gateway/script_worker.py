"""The process in which scripts run: started with the first script, ended after a while without any.

It is a child like a server: it ends with us, also if we are killed. If it ends by itself, the scripts in it have failed,
and the next one starts it again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from itertools import count
from typing import Any

import msgspec

from mcp_workbench.config.script_support import INSTALL, can_run_scripts
from mcp_workbench.core.errors import WorkbenchError
from mcp_workbench.core.script_slots import may_start, refusal_text
from mcp_workbench.core.script_values import CallValue
from mcp_workbench.gateway.script_messages import (
    CallsMade,
    EngineLimits,
    EngineStarted,
    EngineState,
    Finished,
    FromEngine,
    ResumeScript,
    RunScript,
    Settled,
    SnapshotScript,
    SnapshotTaken,
    StopScript,
    ToEngine,
)
from mcp_workbench.timing import deadline
from mcp_workbench.transport.json_text import LineFramer
from mcp_workbench.transport.process import ChildProcess, ProcessSpec, running_child

log = logging.getLogger(__name__)

ENGINE = "mcp_workbench.gateway.script_engine"
IDLE = 120.0  # seconds without a script after which the process ends
START = deadline(30.0)  # seconds for it to start
# A line from it: the arguments of calls, or what a script returns and prints, escaped.
LONGEST_LINE = 64 << 20
_PASSED_ON = (
    "PATH",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "SYSTEMROOT",
    "PYTHONPATH",
)  # of our environment: no secrets

_NULL = msgspec.Raw(b"null")

Received = Callable[[CallsMade | SnapshotTaken | Finished], None]
Claim = Callable[[str], Awaitable[None]]  # gets the interpreter's version, and may raise
StartTask = Callable[[Coroutine[Any, Any, None], str], Any]


class ScriptsUnavailable(WorkbenchError):
    """Scripts can't be run here, or not now."""

    code = "scripts_unavailable"


class ScriptStart(msgspec.Struct, frozen=True):
    """What is run, and for whom."""

    code: str
    limits: EngineLimits
    principal: str = ""
    state: EngineState | None = None  # it goes on from here
    claim: Claim | None = None  # called before it does


class ScriptWorker:
    """Runs scripts in another process. `start` starts a task that ends with the gateway."""

    def __init__(self, start: StartTask) -> None:
        self._start = start
        self._process: EngineProcess | None = None
        self._numbers = count(1)

    @property
    def pid(self) -> int:
        """Of the process; 0 while there is none."""
        return 0 if self._process is None else self._process.pid

    async def run(self, start: ScriptStart, received: Received) -> RunningScript:
        """Start a script, whose messages `received` gets. Raises ScriptsUnavailable."""
        if not can_run_scripts():
            raise ScriptsUnavailable("Scripts need the extra 'code'", hint=INSTALL)
        process = self._process
        if process is None or process.is_over:
            process = self._process = EngineProcess()
            self._start(process.live(), "scripts")
        return await process.run(next(self._numbers), start, received)


class RunningScript:
    """A script in its process."""

    def __init__(self, process: EngineProcess, number: int) -> None:
        self._process = process
        self.number = number

    def settle(self, call: int, value: CallValue) -> None:
        """Give it the value of one of its calls."""
        raw = msgspec.Raw(value.json)
        self._process.settle(Settled(self.number, call, raw, is_text=value.is_text))

    def throw(self, call: int, exception: str, message: str) -> None:
        """Raise this exception where it waits for one of its calls."""
        self._process.settle(Settled(self.number, call, _NULL, exception, message))

    def ask_state(self, most: int) -> None:
        """Have it tell its state, with a snapshot of at most that many bytes."""
        self._process.ask_state(SnapshotScript(self.number, most))

    def stop(self) -> None:
        """End it, unless it has ended; nothing more is received from it."""
        self._process.stop(self.number)


class EngineProcess:
    """One process, from its start to its end."""

    def __init__(self) -> None:
        self._child: ChildProcess | None = None
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()
        self._scripts: dict[int, Received] = {}
        self._principals: dict[int, str] = {}  # whose they are
        self._version = ""
        self._idle: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int:
        return 0 if self._child is None else self._child.pid

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    async def run(self, number: int, start: ScriptStart, received: Received) -> RunningScript:
        running = Counter(self._principals.values())
        if not may_start(running, start.principal):
            busy = refusal_text(running, start.principal)
            raise ScriptsUnavailable(busy, hint="Nothing was done; try again in a moment.")
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        self._scripts[number] = received
        self._principals[number] = start.principal
        is_started = False
        try:
            await self._started()
            if start.claim is not None:
                await start.claim(self._version)
            is_started = True
        finally:
            if not is_started:
                self._drop(number)
                self._check_idle()
        if start.state is None:
            self._send(RunScript(number, start.code, start.limits))
        else:
            self._send(ResumeScript(number, start.code, start.limits, start.state))
        return RunningScript(self, number)

    def _drop(self, number: int) -> Received | None:
        self._principals.pop(number, None)
        return self._scripts.pop(number, None)

    async def _started(self) -> None:
        if self._ready.done():
            return
        try:
            async with asyncio.timeout(START):
                await asyncio.wait((self._ready,))
        except TimeoutError:
            self._over.set()
            raise ScriptsUnavailable("The process for scripts does not start") from None
        if error := self._ready.exception():
            raise error

    def settle(self, settled: Settled) -> None:
        if settled.id in self._scripts:
            self._send(settled)

    def ask_state(self, asked: SnapshotScript) -> None:
        if asked.id in self._scripts:
            self._send(asked)

    def stop(self, number: int) -> None:
        if self._drop(number) is not None:
            self._send(StopScript(number))
            self._check_idle()

    # The process

    async def live(self) -> None:
        """Start it, and stay until it has ended."""
        framer = LineFramer(LONGEST_LINE)
        environ = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        launch = ProcessSpec((sys.executable, "-P", "-m", ENGINE), environ)

        def received(data: bytes) -> None:
            for line in framer.feed(data):
                self._received(msgspec.json.decode(line, type=FromEngine))
            if framer.overflow is not None:  # none of ours is as long
                self._over.set()

        reason = "it was stopped"
        try:
            async with running_child(launch, received, self._over.set) as child:
                self._child = child
                await self._over.wait()
                reason = _reason(child.exit_status(), child.complaints)
        except OSError as error:
            reason = str(error)
        finally:
            self._ended(reason)

    def _ended(self, reason: str) -> None:
        self._over.set()
        self._child = None
        if self._idle is not None:
            self._idle.cancel()
        if not self._ready.done():
            error = ScriptsUnavailable(f"The process for scripts can't be used: {reason}")
            self._ready.set_exception(error)
            self._ready.exception()  # perhaps nobody waits for it any more
        scripts, self._scripts, self._principals = self._scripts, {}, {}
        for number, received in scripts.items():
            received(Finished(number, crash=reason))

    def _received(self, message: FromEngine) -> None:
        if isinstance(message, EngineStarted):
            self._version = message.version
            self._ready.set_result(None)
            return
        received = self._scripts.get(message.id)
        if received is None:
            return
        if isinstance(message, Finished):
            self._drop(message.id)
            self._check_idle()
        received(message)

    def _send(self, message: ToEngine) -> None:
        if self._child is not None:
            self._child.channel.send(msgspec.json.encode(message) + b"\n")

    def _check_idle(self) -> None:
        if not self._scripts and self._idle is None:
            loop = asyncio.get_running_loop()
            self._idle = loop.call_later(IDLE, self._over.set)


def _reason(status: int | None, complaints: str) -> str:
    last = complaints.strip().rpartition("\n")[2][:300]
    ended = "it has ended" if status is None else f"it has ended with status {status}"
    return f"{ended}: {last}" if last else ended
