"""Runs one demo server over stdio until its input ends."""

from __future__ import annotations

import json  # noqa: TID251 - stands alone: the standard library only
import os
import sys
import threading

from mcp_workbench.demo.builtin import SERVERS, Json, Server

_writing = threading.Lock()


def _send(message: Json) -> None:
    data = json.dumps({"jsonrpc": "2.0"} | message, separators=(",", ":")).encode() + b"\n"
    try:
        with _writing:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
    except OSError:
        os._exit(0)  # the host has closed the pipe; there is nothing to flush


def main(argv: list[str]) -> int:
    if len(argv) != 1 or argv[0] not in SERVERS:
        sys.stderr.write(f"usage: python -m mcp_workbench.demo {'|'.join(SERVERS)}\n")
        return 2
    server = Server(f"demo-{argv[0]}", SERVERS[argv[0]], _send)
    try:
        for line in sys.stdin.buffer:
            if line.strip():
                server.receive(line)
    except KeyboardInterrupt:
        return 130
    finally:
        server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
