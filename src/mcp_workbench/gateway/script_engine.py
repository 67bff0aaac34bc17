"""The program that runs scripts, in a process of its own: `python -m …script_engine`.

Each script has a thread here and a worker process of pydantic-monty, which is used once. The interpreter stops at every
call of a tool (a snapshot); the call is written to stdout, its outcome arrives on stdin, and the script goes on. Calls
are dispatched when the script waits for them, so a call without `await` never runs, and is reported.

Messages are lines of JSON (`script_messages`). If the process that started it ends, it is killed with its workers, which
are in its process group.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import msgspec
from pydantic_monty import (
    FunctionSnapshot,
    FutureSnapshot,
    Monty,
    MontyComplete,
    MontyCrashedError,
    MontyError,
    MontyRuntimeError,
    MontySession,
    MontySyntaxError,
    NameLookupSnapshot,
    __version__,
)

from mcp_workbench.core.raw_json import read_any
from mcp_workbench.core.script_values import parsed_text
from mcp_workbench.gateway import script_messages as messages

MOST_WORKERS = 64  # scripts that run at once
NICE = 5  # scripts yield to those who serve hosts
LONGEST_SLEEP = (
    60.0  # seconds of one sleep of a script; the limit on its whole time applies as well
)
SUSPENSIONS = 4000  # stops of one script that are no calls, such as names that are looked up
PRELUDE = "import asyncio, json, re"  # what scripts need most, and forget to import
MOST_ARGUMENTS = 4 << 20  # bytes of a call's arguments as JSON
LONGEST_NAME = 1000  # characters of a tool's name
LONGEST_TEXT = 50_000  # characters of an exception's text, and of each end of a traceback
MOST_IDLE = 10  # lines that do nothing, and are named
LONGEST_LINE = 1000  # characters of a line of a traceback
FILE = "<python-input-1>"  # what the interpreter calls the script, which follows that
CALL = "call"
SLEEPS = ("system.sleep", "system.async_sleep")
_write = threading.Lock()
_snapshot = threading.Lock()  # one at a time: each may be as large as a script's memory


class ScriptStopped(Exception):
    """The script was cancelled, or must not go on."""


class LimitReached(Exception):
    """The script wants more than a limit allows."""

    def __init__(self, limit: str, message: str) -> None:
        super().__init__(message)
        self.limit = limit


class PendingCall(msgspec.Struct, frozen=True):
    """A call that the script has made, and perhaps not awaited."""

    tool: str
    arguments: bytes
    start: int  # where it stands in the source, in bytes
    end: int

    def is_last_in(self, start: int, end: int) -> bool:
        """Whether an `await` with this place ends with this call."""
        return start < self.start and self.end == end


class Printed:
    """What a script prints, up to a number of bytes; one that prints more is ended at once.

    The interpreter's own collector counts as well, and lets the script run on until its time is over.
    """

    def __init__(self, room: int, end: Callable[[], None]) -> None:
        self.is_too_long = False
        self._parts: list[str] = []
        self._room = room
        self._end = end

    @property
    def text(self) -> str:
        return "".join(self._parts)

    def __call__(self, _stream: str, text: str) -> None:
        data = text.encode()
        self._parts.append(data[: max(self._room, 0)].decode(errors="ignore"))
        self._room -= len(data)
        if self._room < 0 and not self.is_too_long:
            self.is_too_long = True
            self._end()


class Run(threading.Thread):
    """One script."""

    def __init__(self, pool: Monty, request: messages.RunScript | messages.ResumeScript) -> None:
        super().__init__(name=f"script {request.id}", daemon=True)
        self._pool = pool
        self._request = request
        self._limits = request.limits
        self._source = request.code.encode()
        self._inbox: queue.SimpleQueue[messages.Settled | messages.SnapshotScript | None] = (
            queue.SimpleQueue()
        )
        self._calls: dict[int, PendingCall] = {}  # that were not dispatched so far
        self._count = 0
        self._in_flight: set[int] = set()
        self._before = ""  # what it has printed in another process
        self._wanted: messages.SnapshotScript | None = None
        self._state = request.state if isinstance(request, messages.ResumeScript) else None
        if self._state is not None:
            self._restore(self._state)
        room = self._limits.output - len(self._before.encode())
        self._printed = Printed(room, self._kill)
        self._asleep: dict[int, float] = {}  # when these wake up
        self._settled: dict[int, Any] = {}  # that the script was not told so far
        self._worker = 0
        self._is_stopped = False

    def _restore(self, state: messages.EngineState) -> None:
        self._before, self._count = state.printed, state.count
        self._in_flight.update(state.in_flight)
        for one in state.unsent:
            self._calls[one.call] = PendingCall(one.tool, one.arguments, one.start, one.end)

    # From the main thread

    def settle(self, settled: messages.Settled | messages.SnapshotScript) -> None:
        self._inbox.put(settled)

    def stop(self) -> None:
        """End the script, whatever it does."""
        self._is_stopped = True
        self._inbox.put(None)
        self._kill()

    def _kill(self) -> None:
        if self._worker:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(self._worker, signal.SIGKILL)

    # The script

    def run(self) -> None:
        finished = messages.Finished(self._request.id, crash="the process for scripts has a bug")
        try:
            finished = self._finished()
        finally:
            if not self._is_stopped:
                send(finished)

    def _finished(self) -> messages.Finished:
        try:
            value = self._value()
        except ScriptStopped:
            return self._ended(crash="stopped")
        except LimitReached as error:
            return self._ended(limit=error.limit, message=str(error))
        except (MontySyntaxError, MontyRuntimeError) as error:
            return self._failed(error)
        except MontyError as error:
            if self._printed.is_too_long:
                return self._ended(limit="output")
            is_late = isinstance(error, MontyCrashedError) and error.timed_out
            return self._ended(limit="execution") if is_late else self._ended(crash=str(error))
        if self._printed.is_too_long:
            return self._ended(limit="output")
        unawaited = self._unawaited()
        return self._ended(unawaited=unawaited) if unawaited else self._completed(value)

    def _completed(self, value: Any) -> messages.Finished:
        try:
            encoded = encoded_value(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            return self._ended(message=str(error), kind="TypeError")
        if len(encoded) > self._limits.output:
            return self._ended(limit="output")
        return self._ended(value=msgspec.Raw(encoded), idle=self._idle())

    def _ended(self, **fields: Any) -> messages.Finished:
        printed = self._before + self._printed.text
        return messages.Finished(self._request.id, printed=printed, **fields)

    def _failed(self, error: MontySyntaxError | MontyRuntimeError) -> messages.Finished:
        exception, shown = error.exception(), cut(error.display())
        kind, message = type(exception).__name__, str(exception)[:LONGEST_TEXT]
        limit = "output" if self._printed.is_too_long else limit_of(kind, message)
        if limit:
            return self._ended(limit=limit, message=message)
        frames = [frame for frame in error.traceback() if frame.filename in (FILE, "main.py")]
        line, unawaited = frames[-1].line if frames else 0, self._unawaited()
        return self._ended(kind=kind, message=message, shown=shown, line=line, unawaited=unawaited)

    def _idle(self) -> list[tuple[str, int]]:
        """The lines that call an async function of the script, and do not await it."""
        if "async def" not in self._request.code:
            return []
        from mcp_workbench.core.script_source import unawaited_functions  # loads a tokenizer

        return unawaited_functions(self._request.code)[:MOST_IDLE]

    def _unawaited(self) -> list[int]:
        """The lines of calls that the script made and never waited for."""
        return [self._source.count(b"\n", 0, call.start) + 1 for call in self._calls.values()]

    def _value(self) -> Any:
        limits: Any = {
            "max_feed_duration_secs": self._limits.execution,
            "max_memory": self._limits.memory,
            "max_suspensions": SUSPENSIONS + 4 * self._limits.calls,
        }
        with self._pool.checkout(limits=limits) as session:
            self._worker = session.worker_pid or 0
            try:
                snapshot = self._begin(session)
                while not isinstance(snapshot, MontyComplete):
                    if self._is_stopped:
                        raise ScriptStopped
                    snapshot = self._step(snapshot)
                return snapshot.output
            finally:
                self._worker = 0

    def _begin(self, session: MontySession) -> Any:
        lookup = {CALL: _nothing}
        if self._state is None:
            session.feed_run(PRELUDE)
            return session.feed_start(
                self._request.code, external_lookup=lookup, print_callback=self._printed
            )
        state, self._state = self._state, None
        snapshot: Any = session.load_snapshot(
            state.snapshot, external_lookup=lookup, print_callback=self._printed
        )
        return snapshot.resume(self._some_settled(snapshot))  # all is dispatched that it waits for

    def _step(self, snapshot: FunctionSnapshot | NameLookupSnapshot | FutureSnapshot) -> Any:
        if isinstance(snapshot, NameLookupSnapshot):
            return snapshot.resume_auto()
        if isinstance(snapshot, FutureSnapshot):
            position = snapshot.position
            self._dispatch(self._awaited(snapshot.pending_call_ids, position.start, position.end))
            return snapshot.resume(self._some_settled(snapshot))
        if snapshot.is_os_function:
            if snapshot.function_name in SLEEPS:
                return self._sleep(snapshot)
            return snapshot.resume_auto()
        if snapshot.function_name != CALL:
            return snapshot.resume_auto()
        return self._call(snapshot)

    # Calls

    def _call(self, snapshot: FunctionSnapshot) -> Any:
        try:
            tool, arguments = call_of(snapshot.args, snapshot.kwargs)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            return snapshot.resume({"exc_type": "TypeError", "message": str(error)[:LONGEST_TEXT]})
        self._count += 1
        if self._count > self._limits.calls:
            raise LimitReached("calls", f"line {self._line(snapshot)}")
        position, id = snapshot.position, snapshot.call_id
        self._calls[id] = PendingCall(tool, arguments, position.start, position.end)
        return snapshot.resume({"future": ...})

    def _line(self, snapshot: FunctionSnapshot) -> int:
        return self._source.count(b"\n", 0, snapshot.position.start) + 1

    def _awaited(self, pending: list[int], start: int, end: int) -> list[int]:
        """Those to dispatch now: of `await call(...)` that call, of any other `await` all."""
        waiting = sorted(id for id in pending if id in self._calls)
        direct = [id for id in waiting if self._calls[id].is_last_in(start, end)]
        return direct if len(direct) == 1 else waiting

    def _dispatch(self, ids: list[int]) -> None:
        calls: list[messages.MadeCall] = []
        size = 0
        for id in ids:
            call = self._calls.pop(id)
            size += len(call.arguments)
            if size > MOST_ARGUMENTS and calls:
                send(messages.CallsMade(self._request.id, calls))
                calls, size = [], len(call.arguments)
            self._in_flight.add(id)
            line = self._source.count(b"\n", 0, call.start) + 1
            calls.append(messages.MadeCall(id, call.tool, msgspec.Raw(call.arguments), line))
        if calls:
            send(messages.CallsMade(self._request.id, calls))

    def _some_settled(self, snapshot: FutureSnapshot) -> dict[int, Any]:
        """Wait until at least one of the calls that the script waits for has an outcome."""
        pending = snapshot.pending_call_ids
        while True:
            self._receive(wait=False)
            self._wake()
            done = {id: self._settled.pop(id) for id in pending if id in self._settled}
            if done:
                return done
            if not (self._in_flight or self._asleep):  # what is awaited waits for none of them
                self._dispatch([id for id in pending if id in self._calls])
            if self._wanted is not None:
                self._tell_state(snapshot)
            self._receive(wait=True)

    def _receive(self, *, wait: bool, until: float | None = None) -> None:
        """Take the outcomes that are there; with `wait`, the next one, or the end of a sleep."""
        wake = min(self._asleep.values(), default=None) if until is None else until
        timeout = None if wake is None else max(wake - time.monotonic(), 0.0)
        with suppress(queue.Empty):
            while True:
                settled = self._inbox.get(block=wait, timeout=timeout if wait else None)
                if settled is None:
                    raise ScriptStopped
                if isinstance(settled, messages.SnapshotScript):
                    self._wanted, wait = settled, False
                    continue
                self._in_flight.discard(settled.call)
                self._settled[settled.call] = answer_of(settled)
                wait = False

    def _sleep(self, snapshot: FunctionSnapshot) -> Any:
        seconds = cast("float", snapshot.args[0] if snapshot.args else 0.0)
        wake = time.monotonic() + min(max(float(seconds), 0.0), LONGEST_SLEEP)
        if snapshot.function_name == SLEEPS[1]:
            self._asleep[snapshot.call_id] = wake
            return snapshot.resume({"future": ...})
        while time.monotonic() < wake:
            self._tell_state(None)
            self._receive(wait=True, until=wake)
        return snapshot.resume({"return_value": None})

    def _tell_state(self, snapshot: FutureSnapshot | None) -> None:
        """Tell the state of the script, which waits in this snapshot, if it was asked for."""
        wanted, self._wanted = self._wanted, None
        if wanted is None:
            return
        if snapshot is None or self._asleep or self._settled:
            send(messages.SnapshotTaken(wanted.id, why="it waits for more than calls"))
            return
        try:
            with _snapshot:
                dumped = snapshot.dump()
        except MontyError as error:  # if its worker has ended, it fails with the next outcome
            send(messages.SnapshotTaken(wanted.id, why=str(error)[:200]))
            return
        if len(dumped) > wanted.most:
            why = f"its variables need more than {wanted.most >> 10} KiB"
            send(messages.SnapshotTaken(wanted.id, why=why))
            return
        unsent = [
            messages.UnsentCall(id, call.tool, call.arguments, call.start, call.end)
            for id, call in self._calls.items()
        ]
        printed = self._before + self._printed.text
        in_flight = sorted(self._in_flight)
        state = messages.EngineState(__version__, dumped, printed, self._count, unsent, in_flight)
        send(messages.SnapshotTaken(wanted.id, state))

    def _wake(self) -> None:
        now = time.monotonic()
        for id in [id for id, wake in self._asleep.items() if wake <= now]:
            del self._asleep[id]
            self._settled[id] = {"return_value": None}


def _nothing(*_args: Any, **_arguments: Any) -> None:
    """Stands for `call`, so that the interpreter knows the name. It is never run."""


# Values


def call_of(args: tuple[Any, ...], named: dict[str, Any]) -> tuple[str, bytes]:
    """The tool and its arguments. Raises TypeError."""
    wanted = 'write await call("toolbox/server/tool", name=value)'
    tool = args[0] if args else None
    if not isinstance(tool, str):
        raise TypeError(f"call() takes the tool as its first argument: {wanted}")
    arguments: dict[str, Any] = named
    if len(args) == 2 and isinstance(args[1], dict):
        given = cast("dict[Any, Any]", args[1])
        if not all(isinstance(name, str) for name in given):
            raise TypeError("the names of arguments must be text")
        arguments = {**given, **named}
    elif len(args) > 1:
        raise TypeError(f"arguments of a tool are given by name: {wanted}")
    encoded = encoded_value(arguments)
    if len(tool) > LONGEST_NAME or len(encoded) > MOST_ARGUMENTS:
        raise ValueError(f"arguments of a call can have {MOST_ARGUMENTS >> 20} MB")
    return tool, encoded


def encoded_value(value: Any) -> bytes:
    """The value as JSON. Raises TypeError, ValueError or OverflowError if there is none."""
    return msgspec.json.encode(value, enc_hook=_unknown)


def _unknown(value: Any) -> Any:
    if isinstance(value, range):
        return list(value)
    kind = getattr(value, "name", None) or type(value).__name__
    raise TypeError(f"a value of type {kind} is no JSON; use text, numbers, lists and dicts")


def answer_of(settled: messages.Settled) -> Any:
    """The outcome of a call as the interpreter takes it."""
    if settled.exception:
        return {"exc_type": settled.exception, "message": settled.message}
    try:
        value = read_any(settled.value)
        return {"return_value": parsed_text(value) if settled.is_text else value}
    except (msgspec.DecodeError, RecursionError) as error:
        return {"exc_type": "ValueError", "message": f"the result can't be read: {error}"}


def cut(text: str) -> str:
    """A traceback with its beginning and its end, of any length and with lines of any length."""
    if len(text) > 2 * LONGEST_TEXT:
        text = f"{text[:LONGEST_TEXT]}\n…\n{text[-LONGEST_TEXT:]}"
    return "\n".join(line[:LONGEST_LINE] for line in text.splitlines())


def limit_of(kind: str, message: str) -> str:
    """The limit that the interpreter itself has enforced; empty for other errors."""
    if kind == "TimeoutError" and "time limit exceeded" in message:
        return "execution"
    if kind == "MemoryError":
        return "memory"
    if kind == "RuntimeError" and "suspension" in message:
        return "calls"
    return ""


# Messages


def send(message: messages.FromEngine) -> None:
    line = msgspec.json.encode(message) + b"\n"
    with _write:
        while line:
            line = line[os.write(1, line) :]


def main() -> None:
    """Run scripts until stdin ends."""
    with suppress(OSError, AttributeError):
        os.nice(NICE)
    runs: dict[int, Run] = {}
    decode = msgspec.json.Decoder(messages.ToEngine).decode
    with Monty(min_processes=1, max_processes=MOST_WORKERS, max_checkouts_per_worker=1) as pool:
        send(messages.EngineStarted(__version__))
        for line in sys.stdin.buffer:
            message = decode(line)
            if isinstance(message, messages.RunScript | messages.ResumeScript):
                for id in [id for id, run in runs.items() if not run.is_alive()]:
                    del runs[id]
                runs[message.id] = run = Run(pool, message)
                run.start()
            elif (known := runs.get(message.id)) is not None:
                if isinstance(message, messages.Settled | messages.SnapshotScript):
                    known.settle(message)
                else:
                    known.stop()
        os._exit(0)  # threads that wait for their workers would keep us


if __name__ == "__main__":
    main()
