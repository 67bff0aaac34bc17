"""A small host: it starts the workbench as its child and talks to it, one request at a time."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import IO, Any, cast

import msgspec

from mcp_workbench import __version__

Json = dict[str, Any]

REVISION = "2025-11-25"
PATIENCE = 30.0  # seconds for the whole conversation; it takes two or three
LAST_WORDS = 10  # lines of what it wrote on stderr, for the one who has to find the reason
POLITE = 5.0  # seconds for the workbench to leave after its input has closed


class HostFailed(Exception):
    """The conversation broke off, and this is why."""


class Host:
    """The host's end of a conversation over two pipes."""

    def __init__(self, sending: IO[bytes], receiving: IO[bytes]) -> None:
        self._sending = sending
        self._receiving = receiving
        self._last = 0

    def request(
        self, method: str, params: Json, progress: Callable[[Json], None] | None = None
    ) -> Json:
        """The result of a request; what is told on the way goes to `progress`."""
        self._last += 1
        if progress:
            params = params | {"_meta": {"progressToken": self._last}}
        self._send({"id": self._last, "method": method, "params": params})
        while True:
            message = self._receive()
            if message.get("method") == "notifications/progress" and progress:
                progress(message["params"])
            elif message.get("id") == self._last and "error" in message:
                raise HostFailed(f"{method} was refused: {message['error'].get('message')}")
            elif message.get("id") == self._last:
                return message["result"]

    def hello(self) -> Json:
        about = {"name": "mcp-workbench-tour", "version": __version__}
        params = {"protocolVersion": REVISION, "capabilities": {}, "clientInfo": about}
        answer = self.request("initialize", params)
        self._send({"method": "notifications/initialized"})
        return answer

    def _send(self, message: Json) -> None:
        try:
            self._sending.write(msgspec.json.encode({"jsonrpc": "2.0"} | message) + b"\n")
            self._sending.flush()
        except OSError:
            raise HostFailed("the workbench has ended") from None

    def _receive(self) -> Json:
        line = self._receiving.readline()
        if not line:
            raise HostFailed("the workbench has ended, or did not answer in time")
        try:
            return msgspec.json.decode(line, type=Json)
        except ValueError:
            raise HostFailed("the workbench said something that is not JSON-RPC") from None


@contextmanager
def started_workbench() -> Generator[Host, None, None]:
    """The workbench as any host starts it, but in an empty folder and without a configuration."""
    environ = {k: v for k, v in os.environ.items() if k != "WORKBENCH_CONFIG"}
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as errors:
        try:
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", "mcp_workbench", "serve"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=folder,
                env=environ,
            )
        except OSError as error:
            raise HostFailed(str(error)) from None
        watchdog = threading.Timer(PATIENCE, child.kill)
        watchdog.start()
        try:
            yield Host(cast("IO[bytes]", child.stdin), cast("IO[bytes]", child.stdout))
        except HostFailed as failure:
            errors.seek(0)
            last_words = errors.read().decode(errors="replace").splitlines()[-LAST_WORDS:]
            raise HostFailed("\n".join((str(failure), *last_words))) from None
        finally:
            _end(child)
            watchdog.cancel()


def _end(child: subprocess.Popen[bytes]) -> None:
    for pipe in (child.stdin, child.stdout):
        with suppress(OSError):
            if pipe:
                pipe.close()
    try:
        child.wait(POLITE)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
