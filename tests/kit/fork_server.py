"""Programs whose imports take longer than their work: imported once, and forked for each start.

    python -m tests.kit.fork_server SOCKET    (the workbench)

What answers is the same code in a fresh process, on streams of its own. Where the process itself is
the subject (its command line, its environment in /proc, its memory, its group), it is started as it
is. `forked.py` starts such a server and asks it for forks; `fork_relay.py` is a command that does.

A request is its length in four bytes, then the folder, the program, the number of its arguments, these,
and the environment, with a zero byte between them; the three streams come with its first byte. The
answer is a line with the number of the process, and one with its exit status. Who hangs up before
that has the process killed.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import os
import pkgutil
import runpy
import select
import signal
import socket
import sys
import termios
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, Self

from tests.kit.fork_children import READS_SECRETS, fork_children, read_secrets

WORKBENCH = "workbench"  # the name of our own program
DAEMON = "daemon"  # and of the one that stays in the background
WITHOUT_SELF_TEST = "workbench-without-self-test"
BYTES = 1 << 16  # read at once


def serve(path: str, programs: Mapping[str, Callable[[], object]]) -> Callable[[], object]:
    """Fork for each request until stdin ends; return, in the fork, the program that was asked for."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(64)
        gc.collect()
        gc.freeze()
        if os.fork():  # whoever started us need not wait for our end
            print("ready", flush=True)
            os._exit(0)
        with _Forks() as forks:  # not before: in a fork, uvloop lets go of what signals wake up
            while 0 not in (ready := select.select([0, listener, *forks.sources()], [], [])[0]):
                forks.look_at(ready)
                if listener in ready:
                    caller, _ = listener.accept()
                    request, streams = _read(caller)
                    if forks.fork(caller):
                        break
                    for stream in streams:
                        os.close(stream)
            else:
                forks.kill()
                os._exit(0)
    return programs[_become(request, streams)]


def leave_after(program: Callable[[], object]) -> NoReturn:
    """Run it, and leave without taking everything down again, which would copy every page."""
    status = 0
    try:
        program()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:  # noqa: BLE001 - as the interpreter does
        sys.excepthook(type(error), error, error.__traceback__)
        status = 1
    try:
        sys.stdout.flush()
    except OSError as error:  # what the interpreter says then, and its status
        print(f"Exception ignored in: {sys.stdout!r}\n{error!r}", file=sys.stderr)
        status = 120
    with suppress(OSError):
        sys.stderr.flush()
    os._exit(status)


class _Forks:
    """Those that run, and who asked for each."""

    def __init__(self) -> None:
        self._callers: dict[int, socket.socket] = {}
        self._ended, self._waker = socket.socketpair()  # a byte for each child that ends

    def __enter__(self) -> Self:
        for end in (self._ended, self._waker):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, _nothing)  # the byte is enough
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: object) -> None:
        """In a fork: nothing of this is its own."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for one in self.sources():
            one.close()
        self._waker.close()

    def sources(self) -> list[socket.socket]:
        """What is to be read: those who hang up, and that a child has ended."""
        return [self._ended, *self._callers.values()]

    def fork(self, caller: socket.socket) -> bool:
        """Are we the fork?"""
        pid = os.fork()
        self._callers[pid] = caller
        if pid:
            _tell(caller, pid)
        return not pid

    def look_at(self, ready: list[Any]) -> None:
        """Kill those whose callers have hung up; tell the others' how theirs have ended."""
        for pid, caller in list(self._callers.items()):
            if caller in ready:
                os.kill(pid, signal.SIGKILL)
                self._callers.pop(pid).close()
        if self._ended in ready:
            self._ended.recv(BYTES)
            with suppress(ChildProcessError):
                self._reap()

    def kill(self) -> None:
        for pid in self._callers:
            os.kill(pid, signal.SIGKILL)

    def _reap(self) -> None:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            pid, status = ended
            if caller := self._callers.pop(pid, None):
                _tell(caller, os.waitstatus_to_exitcode(status))
                caller.close()


def _nothing(_signal: int, _frame: object) -> None:
    pass


def _tell(caller: socket.socket, number: int) -> None:
    with suppress(ConnectionError):  # nobody waits for it any more
        caller.sendall(b"%d\n" % number)


def _read(caller: socket.socket) -> tuple[bytes, list[int]]:
    request, streams, _, _ = socket.recv_fds(caller, BYTES, 3)
    while len(request) < 4 or len(request) < 4 + int.from_bytes(request[:4]):
        request += caller.recv(BYTES)
    return request[4:], streams


def _become(request: bytes, streams: list[int]) -> str:
    """Take the streams, the folder, the arguments and the environment that were asked for."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if os.isatty(0):
        _take_terminal()
    folder, program, count, *words = request.split(b"\0")
    os.chdir(folder)
    os.environb.clear()
    for pair in words[int(count) :]:
        key, _, value = pair.partition(b"=")
        os.environb[key] = value
    sys.argv[:] = map(os.fsdecode, [program, *words[: int(count)]])
    return program.decode()


def _take_terminal() -> None:
    """Be its session, so that Ctrl-C reaches us, and write each line at once as Python does there."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    stdout: Any = sys.stdout
    stdout.reconfigure(line_buffering=True)  # stderr always does


def load_everything() -> None:
    """Import all that any command could need."""
    import mcp_workbench

    for module in pkgutil.walk_packages(mcp_workbench.__path__, "mcp_workbench."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    importlib.import_module("uvloop")


def workbench() -> None:
    """What `python -m mcp_workbench` does."""
    fork_children(leave_after, sys.orig_argv[-1])
    sys.path[0] = str(Path.cwd())
    runpy.run_module("mcp_workbench", run_name="__main__", alter_sys=True)


def without_self_test() -> None:
    """The same, but `doctor` does not start the demo twice: that is most of its time."""
    doctor: Any = importlib.import_module("mcp_workbench.cli.doctor")
    doctor.self_test = lambda: ()
    workbench()


def daemon() -> None:
    """What `python -m mcp_workbench.daemon` does, in a session of its own as whoever starts it gives it."""
    os.setsid()
    fork_children(leave_after, sys.orig_argv[-1])
    runpy.run_module("mcp_workbench.daemon", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    load_everything()
    programs = {
        WORKBENCH: workbench,
        WITHOUT_SELF_TEST: without_self_test,
        DAEMON: daemon,
        READS_SECRETS: read_secrets,
    }
    leave_after(serve(sys.argv[1], programs))
