"""The recorded server over HTTP, in the test's own process; it reads of a request what it needs."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http import HTTPStatus
from socketserver import StreamRequestHandler, ThreadingTCPServer

from tests.fidelity.recorded import Message, Recorded


class _Handler(StreamRequestHandler):
    """One connection, and one request after the other."""

    disable_nagle_algorithm = True
    recorded: Recorded

    def handle(self) -> None:
        while line := self.rfile.readline():
            size = 0
            while (header := self.rfile.readline()).strip():
                name, _, value = header.partition(b":")
                if name.lower() == b"content-length":
                    size = int(value)
            body = self.rfile.read(size)
            if line.startswith(b"POST "):
                self._post(json.loads(body))
            else:
                self._say(HTTPStatus.METHOD_NOT_ALLOWED)

    def _post(self, message: Message) -> None:
        if "id" not in message or "method" not in message:
            self._say(HTTPStatus.ACCEPTED)
            return
        answer = self.recorded.answer(message)
        frame = answer.frame(message["id"])
        if not answer.events:
            self._say(HTTPStatus.OK, b"application/json", frame)
            return
        lines = re.split(rb"\r\n|\r|\n", frame)
        event = b": odd\n\n" + b"".join(b"data: %b\n" % line for line in lines) + b"\n"
        self._say(HTTPStatus.OK, b"text/event-stream", event)

    def _say(self, status: HTTPStatus, kind: bytes = b"", body: bytes = b"") -> None:
        head = b"HTTP/1.1 %d %b\r\n" % (status, status.phrase.encode())
        if kind:
            head += b"Content-Type: %b\r\n" % kind
        self.request.sendall(b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body))


class _Server(ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 64


@contextmanager
def serving_web(recorded: Recorded) -> Generator[str]:
    """For the length of the block; its URL."""
    handler = type("Handler", (_Handler,), {"recorded": recorded})
    with _Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/mcp"
        finally:
            server.shutdown()
            thread.join()
