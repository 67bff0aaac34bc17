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

import gc
import importlib
import os
import pkgutil
import runpy
import select
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import NoReturn

WORKBENCH = "workbench"  # the name of our own program
BYTES = 1 << 16  # read at once


def serve(path: str, programs: Mapping[str, Callable[[], object]]) -> Callable[[], object]:
    """Fork for each request until stdin ends; return, in the fork, the program that was asked for."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(64)
        print("ready", flush=True)
        gc.collect()
        gc.freeze()
        while listener in select.select([listener, 0], [], [])[0]:
            caller, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                return programs[_fork(caller)]
            caller.close()
            _reap()
    os._exit(0)


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
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _fork(caller: socket.socket) -> str:
    """Become the process that was asked for; the one that is left behind tells how it ended."""
    request, streams, _, _ = socket.recv_fds(caller, BYTES, 3)
    while len(request) < 4 or len(request) < 4 + int.from_bytes(request[:4]):
        request += caller.recv(BYTES)
    pid = os.fork()
    if pid:
        _tell_the_end(caller, pid, streams)
    caller.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    folder, program, count, *words = request[4:].split(b"\0")
    os.chdir(folder)
    os.environb.clear()
    for pair in words[int(count) :]:
        key, _, value = pair.partition(b"=")
        os.environb[key] = value
    sys.argv[:] = map(os.fsdecode, [program, *words[: int(count)]])
    return program.decode()


def _tell_the_end(caller: socket.socket, pid: int, streams: list[int]) -> NoReturn:
    for stream in (0, 1, 2, *streams):
        os.close(stream)
    Thread(target=_kill_without_caller, args=(caller, pid), daemon=True).start()
    with suppress(BrokenPipeError):  # nobody waits for it any more
        caller.sendall(b"%d\n" % pid)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        caller.sendall(b"%d\n" % status)
    os._exit(0)


def _kill_without_caller(caller: socket.socket, pid: int) -> None:
    with suppress(ConnectionError):
        caller.recv(1)
    os.kill(pid, signal.SIGKILL)


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def load_everything() -> None:
    """Import all that any command could need."""
    import mcp_workbench

    for module in pkgutil.walk_packages(mcp_workbench.__path__, "mcp_workbench."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    importlib.import_module("uvloop")


def workbench() -> None:
    """What `python -m mcp_workbench` does."""
    sys.path[0] = str(Path.cwd())
    runpy.run_module("mcp_workbench", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    load_everything()
    serve(sys.argv[1], {WORKBENCH: workbench})()
