"""The workbench as a fork of a process that has imported it already: a tenth of a second less.

For tests that care for what the command reads and writes, not for its process. Python and the program
read some variables when they start: there is a process that forks for each of their values. All who share
the work of a run share these processes, which end with the run: the first process of it keeps a pipe open.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from tests.kit.fork_server import DAEMON, WITHOUT_SELF_TEST, WORKBENCH

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "mcp_workbench")
RELAY = (sys.executable, "-E", "-S", str(Path(__file__).with_name("fork_relay.py")))
RUN = "MCP_WORKBENCH_TESTS_RUN"  # the variable with the folder of a run
PIPE = "lasts"  # in it
TIMEOUT = 60  # seconds, on a busy machine
READ_AT_START = ("PYTHON", "PYTEST_VERSION", "MCP_WORKBENCH_TEST_", "LC_", "LANG")
READ_LATER = "PYTHON_KEYRING_BACKEND"


class Streams(NamedTuple):
    """What the command reads, and where it writes: to us, or to a file that is open."""

    stdin: str = ""
    out: int = subprocess.PIPE
    err: int = subprocess.PIPE


def run(
    argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], streams: Streams, timeout: float
) -> subprocess.CompletedProcess[str]:
    """What `subprocess.run` makes of the command."""
    if not _forks(env):
        done = subprocess.run(
            [*COMMAND, *argv],
            cwd=cwd,
            env=env,
            input=streams.stdin,
            stdout=streams.out,
            stderr=streams.err,
            encoding="utf-8",
            timeout=timeout,
        )
        done.stdout, done.stderr = done.stdout or "", done.stderr or ""  # of a file that is open
        return done
    status, out, err = _ran(argv, cwd, env, streams, timeout)
    return subprocess.CompletedProcess([*COMMAND, *argv], status, out, err)


class Use:
    """Whether commands that stay are forks, too: `everywhere` says so; and what commands that end are forks of."""

    forks = False
    program = WORKBENCH


@contextmanager
def everywhere() -> Generator[None]:
    """Inside, hosts on a pipe, those of the SDK and `serve --http` are forks."""
    with _using(forks=True):
        yield


@contextmanager
def nowhere() -> Generator[None]:
    """Inside, none is; for a test whose subject is the process, in a module where that is not so."""
    with _using(forks=False):
        yield


@contextmanager
def _using(*, forks: bool) -> Generator[None]:
    before, Use.forks = Use.forks, forks
    try:
        yield
    finally:
        Use.forks = before


@contextmanager
def no_self_test() -> Generator[None]:
    """Inside, `doctor` leaves its self-test out where it is a fork."""
    before, Use.program = Use.program, WITHOUT_SELF_TEST
    try:
        yield
    finally:
        Use.program = before


def wanted(env: Mapping[str, str]) -> bool:
    """Is a command that stays to be a fork?"""
    return Use.forks and _forks(env)


def start(
    argv: Sequence[str], *, cwd: Path | None, env: Mapping[str, str]
) -> Fork | subprocess.Popen[bytes]:
    """The command with its three streams: a fork where they are wanted, otherwise a process of its own."""
    if wanted(env):
        return Fork(argv, cwd, env)
    return popen([*COMMAND, *argv], cwd=cwd, env=env)


def popen(
    argv: Sequence[str], *, cwd: Path | None, env: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Any program with its three streams, without buffers."""
    pipe = subprocess.PIPE
    return subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, env=env, cwd=cwd, bufsize=0)


def command(env: Mapping[str, str]) -> tuple[str, ...]:
    """What starts the command in this environment: itself, or what asks for a fork and stands for it."""
    return (*RELAY, _socket_of(env), WORKBENCH) if wanted(env) else COMMAND


def daemon(config: str, env: Mapping[str, str]) -> int:
    """The shared workbench of this file as a fork, where these are wanted: its number, or 0."""
    if not wanted(env):
        return 0
    fork = Fork([config, "0", ""], None, env, DAEMON)
    try:
        assert fork.wait(TIMEOUT) == 0  # of the process that has forked once more
        word, pid, *_ = fork.stdout.readline().split()
        assert word == b"ready"
    finally:
        for stream in (fork.stdin, fork.stdout, fork.stderr):
            stream.close()
    return int(pid)


class ForkedProcess:
    """A fork that has these streams, which are closed here: the process of `subprocess.Popen`."""

    def __init__(
        self,
        argv: Sequence[str],
        cwd: Path | None,
        env: Mapping[str, str],
        streams: Sequence[int],
        program: str = WORKBENCH,
    ) -> None:
        self._server = socket.socket(socket.AF_UNIX)
        self._server.connect(_socket_of(env))
        _ask(self._server, argv, cwd or Path.cwd(), env, streams, program)
        self._answer = self._server.makefile("rb")
        self.pid = int(self._answer.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit status; none while it runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit status, once it has ended."""
        if self.returncode is None:
            ready = select.poll()  # not select(), which knows no number above 1,023
            ready.register(self._server, select.POLLIN)
            if not ready.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired(WORKBENCH, timeout or 0)
            self.returncode = int(self._answer.readline())
            self._answer.close()
            self._server.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """As long as it runs: later the number may be another process."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Fork(ForkedProcess):
    """A fork whose three streams are ours: as much of `subprocess.Popen` as hosts on a pipe need."""

    def __init__(
        self,
        argv: Sequence[str],
        cwd: Path | None,
        env: Mapping[str, str],
        program: str = WORKBENCH,
    ) -> None:
        ends = [os.pipe() for _ in range(3)]
        super().__init__(argv, cwd, env, [ends[0][0], ends[1][1], ends[2][1]], program)
        self.stdin = FileIO(ends[0][1], "wb")
        self.stdout, self.stderr = FileIO(ends[1][0]), FileIO(ends[2][0])

    def communicate(self, timeout: float | None = None) -> tuple[bytes, bytes]:
        """End its input, and read what it still writes, to its end."""
        self.stdin.close()
        with self.stdout, self.stderr, ThreadPoolExecutor(2) as threads:
            out, err = (threads.submit(stream.readall) for stream in (self.stdout, self.stderr))
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
            return out.result(timeout), err.result(timeout)


def begin_run(folder: Path) -> None:
    """Of those who share the work, the first; what it starts ends when this process does."""
    if RUN not in os.environ and hasattr(os, "fork"):
        folder.mkdir()
        os.mkfifo(folder / PIPE)
        os.open(folder / PIPE, os.O_RDWR)  # never closed
        os.environ[RUN] = str(folder)


def server(name: str, *argv: str, env: Mapping[str, str] | None = None) -> str:
    """The socket of a Python program that calls `serve`: started by the first who asks, until the run ends."""
    folder = Path(os.environ[RUN])
    path = folder / name
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            _start_server([*argv, str(path)], env, folder / PIPE)
    return str(path)


def _start_server(argv: Sequence[str], env: Mapping[str, str] | None, lasts: Path) -> None:
    # Python looks at its streams once: they are pipes in a fork, too.
    with (
        lasts.open("rb", buffering=0) as stdin,
        subprocess.Popen(
            [sys.executable, *argv],
            cwd=ROOT,
            env=env,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n", process.communicate()


def _forks(env: Mapping[str, str]) -> bool:
    """Under coverage, forks would not be measured. Outside of a run, nothing would end what forks."""
    return RUN in os.environ and not any(name.startswith("COV") for name in env)


def _socket_of(env: Mapping[str, str]) -> str:
    at_start = {k: v for k, v in env.items() if k.startswith(READ_AT_START) and k != READ_LATER}
    return _server(tuple(sorted(at_start.items())))


@cache
def _server(at_start: tuple[tuple[str, str], ...]) -> str:
    """The socket of the process for these variables."""
    name = hashlib.sha256(repr(at_start).encode()).hexdigest()[:16]
    return server(name, "-m", "tests.kit.fork_server", env=dict(at_start))


def _ran(
    argv: Sequence[str], cwd: Path, env: Mapping[str, str], streams: Streams, timeout: float
) -> tuple[int, str, str]:
    """The status, and what came on the streams that are ours."""
    with socket.socket(socket.AF_UNIX) as server, ThreadPoolExecutor(3) as threads:
        server.settimeout(timeout)
        server.connect(_socket_of(env))
        stdin, write = os.pipe()
        read_out, out = _pipe_or(streams.out)
        read_err, err = _pipe_or(streams.err)
        _ask(server, argv, cwd, env, [stdin, out, err], Use.program)
        threads.submit(_write, write, streams.stdin.encode())
        printed = threads.submit(_read, read_out)
        complained = threads.submit(_read, read_err)
        status = _status(server)
        return status, printed.result(timeout), complained.result(timeout)


def _ask(
    server: socket.socket,
    argv: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    streams: Sequence[int],
    program: str = WORKBENCH,
) -> None:
    """Ask for a fork, and give it these streams, which are closed here."""
    words = [str(cwd), program, str(len(argv)), *argv, *(f"{k}={v}" for k, v in env.items())]
    request = b"\0".join(map(os.fsencode, words))
    request = len(request).to_bytes(4) + request
    sent = socket.send_fds(server, [request], streams)
    if rest := request[sent:]:  # otherwise all may be over by now
        server.sendall(rest)
    for end in streams:
        os.close(end)


def _status(server: socket.socket) -> int:
    with server.makefile("rb") as answer:
        pid = int(answer.readline())
        try:
            return int(answer.readline())
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            raise


def _pipe_or(file: int) -> tuple[int | None, int]:
    """The end that we read, if it is a pipe of ours, and the one that the command writes to."""
    return os.pipe() if file == subprocess.PIPE else (None, os.dup(file))


def _write(pipe: int, data: bytes) -> None:
    with suppress(BrokenPipeError), os.fdopen(pipe, "wb") as stream:
        stream.write(data)


def _read(pipe: int | None) -> str:
    if pipe is None:
        return ""
    with os.fdopen(pipe, "rb") as stream:
        return stream.read().decode()
