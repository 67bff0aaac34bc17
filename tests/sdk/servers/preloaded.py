"""The servers of this folder without the second that importing the SDK takes: each is a fork.

    preloaded.py SOCKET                       imports them once, and forks one for whoever asks
    preloaded.py SOCKET SCRIPT [ARGUMENT] …   asks for one, which gets our own pipes; ends as it does

What answers is the same program in a fresh process; only its process number is not the one that was
started. Where the process itself is the subject, the script is started as it is.
"""

import os
import socket
import sys

BYTES = 1 << 16  # the words of one wish


def ask(path: str, *words: str) -> int:
    """Hand our pipes over, and wait for the end; the exit status."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        socket.send_fds(server, ["\0".join(words).encode()], [0, 1, 2])
        os.close(0)
        os.close(1)
        status = server.recv(16)
    return int(status) if status else 1


def serve(path: str) -> None:
    import signal

    import anyio
    import library
    import workshop

    scripts = {"library.py": library.main, "workshop.py": workshop.main}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(64)
        print("ready", flush=True)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while True:
            caller, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                break
            caller.close()
    # From here on, one for each server: it waits for the server, and tells its status.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    words, pipes, _, _ = socket.recv_fds(caller, BYTES, 3)
    pid = os.fork()
    if pid:
        for pipe in (0, 1, 2, *pipes):
            os.close(pipe)
        caller.sendall(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
        os._exit(0)
    caller.close()
    for number, pipe in enumerate(pipes):
        os.dup2(pipe, number)
        os.close(pipe)
    anyio.run(scripts[words.decode().split("\0")[0]])


if __name__ == "__main__":
    sys.exit(ask(*sys.argv[1:])) if sys.argv[2:] else serve(sys.argv[1])
