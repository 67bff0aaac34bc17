"""The command in a process of its own, without the cost of starting Python anew.

A process that has loaded everything waits here and forks for each run. The child has the streams,
the folder and the environment that it is given, runs `python -m mcp_workbench`, and ends as any
other. What starting itself is like, other tests look at.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Lock
from typing import NamedTuple

COMMAND = [sys.executable, "-m", "mcp_workbench"]
MOST_BYTES = 1 << 20  # of a request: its arguments and its environment


class Streams(NamedTuple):
    """What the command reads, and where it writes: to us, or to a file that is open."""

    stdin: str = ""
    out: int = subprocess.PIPE
    err: int = subprocess.PIPE


def run(
    argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], streams: Streams, timeout: float
) -> subprocess.CompletedProcess[str]:
    """What `subprocess.run` makes of the command."""
    if not hasattr(os, "fork") or any(name.startswith("COV") for name in env):
        return subprocess.run(  # where forks are not known, or not measured
            [*COMMAND, *argv],
            cwd=cwd,
            env=env,
            input=streams.stdin,
            stdout=streams.out,
            stderr=streams.err,
            encoding="utf-8",
            timeout=timeout,
        )
    read_at_start = ("PYTHON", "PYTEST_VERSION", "MCP_WORKBENCH_TEST_", "LC_", "LANG")
    loaded = _loaded(
        tuple(sorted((k, v) for k, v in env.items() if k.startswith(read_at_start))), os.getpid()
    )
    request = {"argv": [*argv], "cwd": str(cwd), "env": dict(env)}
    status, out, err = loaded.run(json.dumps(request).encode(), streams, timeout)
    return subprocess.CompletedProcess([*COMMAND, *argv], status, out, err)


@cache
def _loaded(environ: tuple[tuple[str, str], ...], process: int) -> Loaded:
    """The process for an environment, of this process: what was forked from it has its own."""
    return Loaded(dict(environ))


class Loaded:
    """Our end of the process that forks."""

    def __init__(self, environ: dict[str, str]) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MOST_BYTES)
        self._turn = Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.kit.quick_command", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=environ,
                cwd=Path(__file__).parents[2],
                stdin=subprocess.PIPE,  # Python looks at its streams once: they are pipes in a child, too
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        atexit.register(self._end)

    def _end(self) -> None:
        self._ours.close()
        self._process.communicate(timeout=10)

    def run(self, request: bytes, streams: Streams, timeout: float) -> tuple[int, str, str]:
        """The status, and what came on the streams that are ours."""
        with self._turn, ThreadPoolExecutor(3) as threads:
            stdin, write = os.pipe()
            read_out, out = _pipe_or(streams.out)
            read_err, err = _pipe_or(streams.err)
            socket.send_fds(self._ours, [request], [stdin, out, err])
            for end in (stdin, out, err):
                os.close(end)
            threads.submit(_write, write, streams.stdin.encode())
            printed = threads.submit(_read, read_out)
            complained = threads.submit(_read, read_err)
            status = self._status(timeout)
            return status, printed.result(timeout), complained.result(timeout)

    def _status(self, timeout: float) -> int:
        self._ours.settimeout(timeout)
        pid = int(self._ours.recv(64) or 0)
        assert pid, self._process.communicate(timeout=10)
        try:
            return int(self._ours.recv(64))
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            self._ours.recv(64)
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


# The other process.


def load_everything() -> None:
    """Import all that any command could need."""
    import mcp_workbench

    for module in pkgutil.walk_packages(mcp_workbench.__path__, "mcp_workbench."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    importlib.import_module("uvloop")
    gc.collect()
    gc.freeze()


def serve(requests: socket.socket) -> None:
    """Fork for each request, and tell the child's number and, later, its status. Returns in a child."""
    while True:
        request, fds, _, _ = socket.recv_fds(requests, MOST_BYTES, 3)
        if not request:
            os._exit(0)
        pid = os.fork()
        if not pid:
            requests.close()
            become(json.loads(request), fds)
            return
        for fd in fds:
            os.close(fd)
        requests.send(b"%d" % pid)
        _, status = os.waitpid(pid, 0)
        requests.send(b"%d" % os.waitstatus_to_exitcode(status))


def become(request: dict[str, object], fds: list[int]) -> None:
    """The process that was asked for."""
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    os.environ.clear()
    os.environ.update(request["env"])  # pyright: ignore[reportArgumentType, reportCallIssue]
    os.chdir(str(request["cwd"]))
    sys.argv[1:] = request["argv"]  # pyright: ignore[reportArgumentType, reportCallIssue]
    sys.path[0] = str(request["cwd"])


if __name__ == "__main__":
    load_everything()
    serve(socket.socket(fileno=int(sys.argv[1])))
    runpy.run_module("mcp_workbench", run_name="__main__", alter_sys=True)
