"""The host on a pipe: it starts the real command and speaks bytes to it."""

from __future__ import annotations

import fcntl
import json
import os
import queue
import select
import signal
import struct
import termios
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.kit import forked
from tests.kit.clock import PATIENCE, eventually
from tests.kit.results import (
    INITIALIZE,
    LEGACY,
    Message,
    enveloped,
    exact_outcome,
    json_text,
    open_toolbox,
    use_tool,
)


class PipeHost:
    """One conversation. Leaving the block closes our end and sees the command out."""

    def __init__(
        self,
        config: Path,
        *options: str,
        modern: bool = False,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        command: Sequence[str] | None = None,
    ) -> None:
        self.modern = modern
        self.statuses: tuple[int, ...] = (0, 130)  # with which the command may end
        self.lines: list[bytes] = []  # every line that came, in order
        self.others: list[Message] = []  # what was read while waiting for something else
        self._incoming: queue.Queue[bytes | None] = queue.Queue()
        self._id = 0
        env = {**os.environ, **(env or {})}
        argv = ["serve", "--config", str(config), *options]
        if command:
            self.process = forked.popen([*command, *argv], cwd=cwd, env=env)
        else:
            self.process = forked.start(argv, cwd=cwd, env=env)
        self._stderr = bytearray()
        self._stderr_lock = threading.Lock()
        self._reading = threading.Event()
        self._reading.set()
        self._threads = [
            threading.Thread(target=self._read_lines, daemon=True),
            threading.Thread(target=self._read_stderr, daemon=True),
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.go_on_reading()
            self.close()
            status = self.ended()
        finally:
            self.process.kill()
            self.process.wait()
            for thread in self._threads:
                thread.join(PATIENCE)
            for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
                if pipe is not None:
                    pipe.close()
        if error is None:
            assert status in self.statuses, f"exit status {status}: {self.stderr}"
            assert "Traceback" not in self.stderr, self.stderr

    @property
    def stderr(self) -> str:
        """All that the command has written: what came before an answer is in it when the answer was read."""
        if self.process.stderr is not None and not self.process.stderr.closed:
            self._take_stderr()
        return self._stderr.decode("utf-8", "replace")

    # Opening

    def initialize(self, revision: str = LEGACY) -> Message:
        """Open in the legacy way; the result of `initialize`."""
        result = self.result("initialize", {**INITIALIZE, "protocolVersion": revision})
        self.notify("notifications/initialized")
        return result

    def handshake(self) -> Self:
        """Open in the way of the host's era: a modern one has nothing to say."""
        if not self.modern:
            self.initialize()
        return self

    # Asking

    def ask(self, method: str, params: Message | None = None, id: Any = None) -> Any:
        """Send a request; returns its id."""
        if id is None:
            self._id += 1
            id = self._id
        self.send({"id": id, "method": method, "params": self._stamped(params or {})})
        return id

    def request(self, method: str, params: Message | None = None, id: Any = None) -> Message:
        """The whole answer to a request."""
        return self.answer(self.ask(method, params, id))

    def result(self, method: str, params: Message | None = None) -> Message:
        answer = self.request(method, params)
        assert "result" in answer, answer
        return answer["result"]

    def error(self, method: str, params: Message | None = None) -> Message:
        answer = self.request(method, params)
        assert "error" in answer, answer
        return answer["error"]

    def call(self, name: str, arguments: Any = None, **more: Any) -> Message:
        """The result of `tools/call`."""
        return self.result("tools/call", _call(name, arguments, more))

    def begin(self, name: str, arguments: Any = None, **more: Any) -> Any:
        """Send a `tools/call`; returns its id."""
        return self.ask("tools/call", _call(name, arguments, more))

    def use(self, server: str, tool: str, arguments: Message | None = None, **more: Any) -> Message:
        """The result of a tool behind `use_tool`; in the toolbox `dev` unless `toolbox` says another."""
        return self.result("tools/call", use_tool(server, tool, arguments, **more))

    def begin_use(
        self, server: str, tool: str, arguments: Message | None = None, **more: Any
    ) -> Any:
        """Send such a call; returns its id."""
        return self.ask("tools/call", use_tool(server, tool, arguments, **more))

    def open(self, toolbox: str = "dev") -> Message:
        """The value that `open_toolbox` answers with."""
        result = self.result("tools/call", open_toolbox(toolbox))
        assert "isError" not in result, result
        return json_text(result)

    def exact(self, method: str, params: Message) -> tuple[str, bytes]:
        """`result` or `error` and its bytes as they came; notices on the way are passed over."""
        id = self.ask(method, params)
        while True:
            line = self.line()
            if not line.startswith(b'{"jsonrpc":"2.0","method":"notifications/'):
                return exact_outcome(line, id)

    def _stamped(self, params: Message) -> Message:
        return enveloped(params) if self.modern else params

    # Bytes

    def send(self, message: Message) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def notify(self, method: str, params: Message | None = None) -> None:
        self.send({"method": method, "params": params or {}})

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        view = memoryview(data)
        while view:
            view = view[self.process.stdin.write(view) or 0 :]

    def wait_until_read(self) -> None:
        """Until the command has taken all that was written, so that what follows is another chunk."""
        assert self.process.stdin is not None
        pipe = self.process.stdin.fileno()

        def empty() -> bool:
            return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0] == 0

        eventually(empty, "the command reads its input")

    def answer(self, id: Any) -> Message:
        """The answer to this request, or one that was passed over; the rest goes to `others`."""
        return self._next(lambda message: "method" not in message and message.get("id") == id)

    def notice(self, method: str) -> Message:
        """The next notification of this kind, or one that was passed over."""
        return self._next(lambda message: message.get("method") == method)

    def _next(self, wanted: Callable[[Message], bool]) -> Message:
        for message in self.others:
            if wanted(message):
                self.others.remove(message)
                return message
        return self.until(wanted)

    def until(self, wanted: Callable[[Message], bool]) -> Message:
        while True:
            message = self.receive()
            assert message is not None, f"the command has ended: {self.stderr}"
            if wanted(message):
                return message
            self.others.append(message)

    def receive(self) -> Message | None:
        """The next message, or None at the end. Everything on stdout must be one."""
        line = self._incoming.get(timeout=PATIENCE)
        return None if line is None else parsed(line)

    def line(self) -> bytes:
        """The next line as it came."""
        line = self._incoming.get(timeout=PATIENCE)
        assert line is not None, f"the command has ended: {self.stderr}"
        return line

    def rest(self) -> list[Message]:
        """Everything until the end of the command's output."""
        return [parsed(line) for line in iter(lambda: self._incoming.get(timeout=PATIENCE), None)]

    def close(self) -> None:
        """End the command's input."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def ended(self) -> int:
        return self.process.wait(PATIENCE)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def _read_lines(self) -> None:
        held: list[bytes] = []
        while data := self._patiently_read():
            first, *more = data.split(b"\n")
            held.append(first)
            for part in more:
                self._take(b"".join(held))
                held = [part]
        if any(held):
            self._take(b"".join(held))
        self._incoming.put(None)

    def _patiently_read(self) -> bytes:
        assert self.process.stdout is not None
        self._reading.wait()
        return self.process.stdout.read(1 << 20)

    def stop_reading(self) -> None:
        """Leave what the command says in its pipe; a read that has begun still ends."""
        self._reading.clear()

    def go_on_reading(self) -> None:
        self._reading.set()

    def _take(self, line: bytes) -> None:
        self.lines.append(line)
        self._incoming.put(line)

    def _read_stderr(self) -> None:
        while True:
            self._has_stderr(None)
            if self._take_stderr():
                return

    def _take_stderr(self) -> bool:
        """Take what is in its pipe, without waiting for more; is this the end?"""
        assert self.process.stderr is not None
        with self._stderr_lock:  # else the thread could have read it, and we would not see it yet
            while self._has_stderr(0):
                data = self.process.stderr.read(1 << 16)
                if not data:
                    return True
                self._stderr += data
        return False

    def _has_stderr(self, timeout: int | None) -> bool:
        assert self.process.stderr is not None
        ready = select.poll()
        ready.register(self.process.stderr, select.POLLIN)
        return bool(ready.poll(timeout))


def parsed(line: bytes) -> Message:
    """A line that must be one JSON-RPC message and nothing else."""
    message: Message = json.loads(line.decode())
    assert message["jsonrpc"] == "2.0"
    if "method" not in message:
        assert len(message.keys() & {"result", "error"}) == 1
        assert "id" in message
    return message


def _call(name: str, arguments: Any, more: Message) -> Message:
    params: Message = {"name": name}
    if arguments is not None:
        params["arguments"] = arguments
    return {**params, **more}
