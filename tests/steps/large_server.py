"""A server whose messages are files, as long as anybody wants: the standard library only.

    large_server.py FOLDER [PORT]

`FOLDER/tools.list` is what follows the id in the answer to `tools/list`, and so on; what has no file is
answered with the least that works. `FOLDER/told` is sent before the answer to a call, with a line feed after
each message. With a port, over HTTP; `FOLDER/stream` makes each answer an event.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
CAN: dict[str, Any] = {
    "tools": {"listChanged": True}, "prompts": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True}, "completions": {}, "logging": {},
}  # fmt: skip
RESULTS: dict[str, Any] = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": CAN,
        "serverInfo": {"name": "large", "version": "1"},
    },
    "tools/list": {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]},
    "prompts/list": {"prompts": [{"name": "p"}]},
    "resources/list": {"resources": [{"uri": "a:b", "name": "b"}]},
    "resources/templates/list": {"resourceTemplates": []},
    "tools/call": {"content": []},
}


def answer(asked: dict[str, Any]) -> bytes:
    file = FOLDER / asked["method"].replace("/", ".")
    if file.exists():
        rest = file.read_bytes()
    elif asked["method"] in RESULTS or asked["method"] == "ping":
        rest = b'"result":%b' % json.dumps(RESULTS.get(asked["method"], {})).encode()
    else:
        rest = b'"error":{"code":-32601,"message":"no such method"}'
    return b'{"jsonrpc":"2.0","id":%b,%b}' % (json.dumps(asked["id"]).encode(), rest)


def told(asked: dict[str, Any]) -> bytes:
    file = FOLDER / "told"
    return file.read_bytes() if asked["method"] == "tools/call" and file.exists() else b""


class Handler(BaseHTTPRequestHandler):
    """Answers requests, and takes everything else."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if "id" not in asked or "method" not in asked:
            self._send(202, b"", "application/json")
            return
        body = answer(asked)
        if (FOLDER / "stream").exists():
            self._send(200, b"data: %b\n\n" % body, "text/event-stream")
        else:
            self._send(200, body, "application/json")

    def do_GET(self) -> None:
        self._send(405, b"", "text/plain")

    do_DELETE = do_GET  # noqa: N815 - the names that the library calls

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None: ...


def serve_stdio() -> None:
    out = sys.stdout.buffer
    for line in sys.stdin.buffer:
        asked = json.loads(line)
        if "id" in asked and "method" in asked:
            out.write(told(asked) + answer(asked) + b"\n")
            out.flush()


def serve_http() -> None:
    with ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()


if __name__ == "__main__":
    if len(sys.argv) > 2:
        serve_http()
    else:
        serve_stdio()
