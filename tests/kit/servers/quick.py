"""A server for long runs: quick, forgetful, and honest about what it has seen. Standard library only.

    server.py NAME [slow=SECONDS] [pids=FILE]

Tools: `echo` (its name and the nonce), `hold` (no answer), `seen` (when it heard of cancellations, and its
process), `line` (a line of so many bytes), `endless` (so many bytes without an end), `flood` (so many notices).
With `slow`, one `echo` at a time takes that long.
"""

# It is started many times, and pathlib is not loaded for nothing.
# ruff: noqa: PTH123

import json
import os
import sys
import time
from typing import Any

NAME = sys.argv[1]
WISHES = {word.partition("=")[0]: word.partition("=")[2] for word in sys.argv[2:]}
SLOW = float(WISHES.get("slow", "0"))
TOOLS = ("echo", "hold", "seen", "line", "endless", "flood")
CANCELLED: dict[str, float] = {}
PIECE = b"x" * 65536


def write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


def say(id: Any, text: str) -> None:
    result = {"content": [{"type": "text", "text": text}]}
    write(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode() + b"\n")


def call(id: Any, name: str, arguments: dict[str, Any]) -> None:
    if name == "echo":
        if SLOW:
            time.sleep(SLOW)
        say(id, f"{NAME} {arguments.get('nonce')}")
    elif name == "seen":
        say(id, json.dumps({"cancelled": CANCELLED, "pid": os.getpid()}))
    elif name == "line":
        write(b'{"jsonrpc":"2.0","id":%d,"result":{"x":"' % id)
        pour(arguments["bytes"])
        write(b'"}}\n')
    elif name == "endless":
        pour(arguments["bytes"])
    elif name == "flood":
        notice = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"debug"}}\n'
        for _ in range(arguments["notices"] // 100):
            write(notice * 100)
        say(id, "flooded")


def pour(count: int) -> None:
    for _ in range(count // len(PIECE)):
        write(PIECE)


def receive(message: dict[str, Any]) -> None:
    method, id, params = message.get("method"), message.get("id"), message.get("params", {})
    if method == "notifications/cancelled":
        CANCELLED[str(params["requestId"])] = time.monotonic()
    elif id is None:
        return
    elif method == "tools/call":
        call(id, params["name"], params.get("arguments", {}))
    elif method == "initialize":
        result: dict[str, Any] = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": NAME, "version": "1"},
        }
        write(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode() + b"\n")
    elif method == "tools/list":
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
        answer = {"jsonrpc": "2.0", "id": id, "result": {"tools": tools}}
        write(json.dumps(answer).encode() + b"\n")
    else:
        error = {"code": -32601, "message": "Method not found"}
        write(json.dumps({"jsonrpc": "2.0", "id": id, "error": error}).encode() + b"\n")


if "pids" in WISHES:
    with open(WISHES["pids"], "a") as file:
        file.write(f"{os.getpid()}\n")
try:
    for line in sys.stdin.buffer:
        receive(json.loads(line))
except (BrokenPipeError, KeyboardInterrupt):
    pass
