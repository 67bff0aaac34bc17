"""Asks for a fork of a program (`fork_server.py`), hands it our pipes and signals, and ends as it does.

    fork_relay.py SOCKET PROGRAM [ARGUMENT] …

We keep the pipes as well: they end when we do, and whoever watches them finds our exit status then.
It is started many times, and nothing is loaded for it that the interpreter has not loaded already.
"""

# pyright: basic
# ruff: noqa: PTH109
import _signal  # pyright: ignore[reportMissingImports]
import _socket
import os
import sys

HANDED_ON = (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP)
STREAMS = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))


def main(path: str, program: str, *arguments: str) -> int:
    """The exit status of the fork."""
    words = [os.getcwdb(), *map(os.fsencode, (program, str(len(arguments)), *arguments))]
    request = b"\0".join([*words, *(key + b"=" + value for key, value in os.environb.items())])
    _signal.pthread_sigmask(_signal.SIG_BLOCK, HANDED_ON)
    server = _socket.socket(_socket.AF_UNIX)
    server.connect(path)
    rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, STREAMS)
    request = len(request).to_bytes(4) + request
    sent = server.sendmsg([request], [rights])
    if rest := request[sent:]:  # otherwise all may be over by now
        server.sendall(rest)
    pid = number(server)

    def hand_on(number: int, _: object) -> None:
        try:  # noqa: SIM105
            os.kill(pid, number)
        except ProcessLookupError:
            pass

    for one in HANDED_ON:
        _signal.signal(one, hand_on)
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, HANDED_ON)
    status = number(server)
    if status < 0:
        _signal.signal(-status, _signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


def number(server: _socket.socket) -> int:
    """The next line."""
    line = b""
    while not line.endswith(b"\n"):
        try:
            line += server.recv(1) or b"1\n"
        except InterruptedError:
            continue
    return int(line)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
