"""The host over HTTP where the test blocks, one request at a time."""

from __future__ import annotations

import json
import socket
from collections.abc import Generator
from io import BufferedReader
from typing import Any

from tests.kit.clock import PATIENCE
from tests.kit.http_host import ACCEPT, modern_headers, rpc
from tests.kit.results import INITIALIZE, LEGACY, Message, enveloped, exact_outcome


class Connection:
    """As much of `http.client` as this host needs, at a third of its cost; opened when it is needed."""

    def __init__(self, place: str, timeout: float) -> None:
        self._place = place
        self.timeout = timeout
        self._socket: socket.socket | None = None
        self._reader: BufferedReader | None = None

    def close(self) -> None:
        for one in (self._reader, self._socket):
            if one is not None:
                one.close()
        self._reader = self._socket = None

    def post(self, path: str, body: bytes, headers: dict[str, Any]) -> tuple[dict[str, str], bytes]:
        """The headers of the response, and its body."""
        if self._socket is None or self._reader is None:
            name, _, port = self._place.rpartition(":")
            self._socket = socket.create_connection((name, int(port)), self.timeout)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._reader = self._socket.makefile("rb")
        whole = {"Host": self._place, "Content-Length": len(body), **headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in whole.items())
        try:
            self._socket.sendall(f"POST {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body)
            answered, data = _response(self._reader)
        except OSError:
            self.close()
            raise
        if answered.get("connection", "").lower() == "close":
            self.close()
        return answered, data


def _response(reader: BufferedReader) -> tuple[dict[str, str], bytes]:
    status = reader.readline()
    if not status:
        raise ConnectionResetError("closed without a response")
    assert status.startswith(b"HTTP/1.1 "), status
    headers: dict[str, str] = {}
    while line := reader.readline().rstrip(b"\r\n"):
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    if headers.get("transfer-encoding") == "chunked":
        return headers, b"".join(_chunks(reader))
    if "content-length" in headers:
        return headers, _exactly(reader, int(headers["content-length"]))
    empty = status.split()[1] in (b"202", b"204")
    return headers, b"" if empty else reader.read()


def _chunks(reader: BufferedReader) -> Generator[bytes]:
    while size := int(reader.readline(), 16):
        yield _exactly(reader, size)
        assert reader.readline() == b"\r\n"
    assert reader.readline() == b"\r\n"


def _exactly(reader: BufferedReader, size: int) -> bytes:
    data = reader.read(size)
    if len(data) < size:
        raise ConnectionResetError(f"closed after {len(data)} bytes of {size}")
    return data


class HttpHost:
    """A host on one connection, which blocks; a legacy one opens its session at once."""

    def __init__(
        self,
        url: str,
        *,
        modern: bool,
        timeout: float = PATIENCE,
        token: str = "",
        capabilities: Message | None = None,
    ) -> None:
        self.modern = modern
        place, _, path = url.removeprefix("http://").partition("/")
        self._path = f"/{path}"
        self.opening: Message = {}  # the result of `initialize`
        self._connection = Connection(place, timeout)
        self.streamed = 0  # answers that came as events
        self._id = 100
        self._session: dict[str, str] = {}
        self._token = {"authorization": f"Bearer {token}"} if token else {}
        if not modern:
            declared = {**INITIALIZE, "capabilities": capabilities or {}}
            self.opening = self.request("initialize", declared)["result"]
            self._post(rpc("notifications/initialized"), {})

    @property
    def session(self) -> str:
        """The id of a legacy host's session."""
        return self._session["mcp-session-id"]

    def take_session(self, other: HttpHost) -> None:
        """Use the session of another host from now on."""
        self._session = dict(other._session)

    def close(self) -> None:
        self._connection.close()

    def move_to(self, place: str) -> None:
        """Send everything from now on to another address, in the same session."""
        self._connection.close()
        self._connection = Connection(place, self._connection.timeout)

    def exact(self, method: str, params: Message) -> tuple[str, bytes]:
        """`result` or `error` and its bytes as they came."""
        return exact_outcome(self._ask(method, params), self._id)

    def request(self, method: str, params: Message) -> Message:
        """The whole answer to a request."""
        return json.loads(self._ask(method, params))

    def _ask(self, method: str, params: Message) -> bytes:
        self._id += 1
        if not self.modern:
            return self._post(rpc(method, params, self._id), {})
        return self._post(rpc(method, enveloped(params), self._id), modern_headers(method, params))

    def _post(self, body: bytes, headers: dict[str, Any]) -> bytes:
        sent = {"content-type": "application/json", "accept": ACCEPT, **self._session, **headers}
        sent |= self._token
        answered, data = self._connection.post(self._path, body, sent)
        if session := answered.get("mcp-session-id"):
            self._session = {"mcp-session-id": session, "mcp-protocol-version": LEGACY}
        if answered.get("content-type", "").startswith("text/event-stream"):
            self.streamed += 1
            lines = [line for line in data.split(b"\n") if line.startswith(b"data: {")]
            return lines[-1].removeprefix(b"data: ")
        return data.removesuffix(b"\n")
