"""Programs whose imports take longer than their work: imported once, and forked for each start.

What answers is the same code in a fresh process, on pipes of its own. Where the process itself is the
subject (its command line, its environment in /proc, its memory, its group), it is started as it is.
`fork_relay.py` is the command that asks for one.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from typing import NoReturn

BYTES = 1 << 18  # of one wish: words and environment


def serve(path: str, programs: Mapping[str, Callable[[], object]]) -> None:
    """Fork one of the programs for whoever connects, until we are killed."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(64)
        print("ready", flush=True)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        gc.freeze()
        while True:
            caller, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                break
            caller.close()
    # From here on, a process for each start.
    words, pipes, _, _ = socket.recv_fds(caller, BYTES, 3)
    folder, name, arguments, environ = (part.split("\0") for part in words.decode().split("\n"))
    pid = os.fork()
    if pid:
        _tell_the_end(caller, pid, pipes)
    caller.close()
    _stand_on(pipes)
    os.chdir(folder[0])
    os.environ.clear()
    for pair in filter(None, environ):
        key, _, value = pair.partition("=")
        os.environ[key] = value
    sys.argv[:] = [name[0], *filter(None, arguments)]
    _end(programs[name[0]])


def _stand_on(pipes: list[int]) -> None:
    for number, pipe in enumerate(pipes):
        os.dup2(pipe, number)
        os.close(pipe)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, errors="backslashreplace", closefd=False)  # noqa: SIM115


def _end(program: Callable[[], object]) -> NoReturn:
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


def _tell_the_end(caller: socket.socket, pid: int, pipes: list[int]) -> NoReturn:
    for pipe in (0, 1, 2, *pipes):
        os.close(pipe)
    caller.sendall(b"%d\n" % pid)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    caller.sendall(b"%d\n" % status)
    os._exit(0)
