"""Hosts that read exact bytes, on a pipe and over HTTP, of both eras."""

from __future__ import annotations

import http.client
import json
from typing import Any, Protocol

from tests.kit.clock import PATIENCE
from tests.kit.pipe_host import PipeHost as RawHost
from tests.kit.results import ENVELOPE, MODERN, Message

LEGACY = "2025-11-25"
OPENING: Message = {
    "protocolVersion": LEGACY,
    "capabilities": {},
    "clientInfo": {"name": "raw", "version": "1"},
}


class Host(Protocol):
    """One conversation."""

    modern: bool
    streamed: int

    def ask(self, method: str, params: Message) -> tuple[str, bytes]:
        """`result` or `error`, and its bytes."""
        ...


def outcome(frame: bytes, id: int) -> tuple[str, bytes]:
    """Our frames have one form, so that no reading stands between the test and the bytes."""
    for member in ("result", "error"):
        head = b'{"jsonrpc":"2.0","id":%d,"%b":' % (id, member.encode())
        if frame.startswith(head) and frame.endswith(b"}"):
            return member, frame[len(head) : -1]
    raise AssertionError(f"no answer to {id}: {frame[:200]!r}")


class PipeHost:
    """A host on a pipe."""

    streamed = 0

    def __init__(self, raw: RawHost, *, modern: bool) -> None:
        self.modern = modern
        self._raw = raw
        self._id = 100
        raw.modern = modern
        if not modern:
            raw.initialize()

    def ask(self, method: str, params: Message) -> tuple[str, bytes]:
        self._id += 1
        self._raw.ask(method, params, self._id)
        while True:
            line = self._raw.line()
            if not line.startswith(b'{"jsonrpc":"2.0","method":"notifications/'):
                return outcome(line, self._id)


class WebHost:
    """A host over HTTP, on one connection."""

    def __init__(self, url: str, *, modern: bool) -> None:
        self.modern = modern
        place = url.removeprefix("http://").partition("/")[0]
        self._connection = http.client.HTTPConnection(place, timeout=PATIENCE)
        self.streamed = 0  # answers that came as events
        self._id = 100
        self._session: dict[str, str] = {}
        if not modern:
            self.ask("initialize", OPENING)
            self._post({"method": "notifications/initialized"}, {})

    def close(self) -> None:
        self._connection.close()

    def ask(self, method: str, params: Message) -> tuple[str, bytes]:
        self._id += 1
        headers: dict[str, str] = {}
        if self.modern:
            params = {**params, "_meta": {**ENVELOPE, **params.get("_meta", {})}}
            headers = {"mcp-protocol-version": MODERN, "mcp-method": method}
            if name := params.get("name") or params.get("uri"):
                headers["mcp-name"] = name
        body = self._post({"id": self._id, "method": method, "params": params}, headers)
        return outcome(body, self._id)

    def _post(self, message: Message, headers: dict[str, Any]) -> bytes:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        told = {"content-type": "application/json", "accept": BOTH, **self._session, **headers}
        self._connection.request("POST", "/mcp", body, told)
        answer = self._connection.getresponse()
        data = answer.read()
        if session := answer.headers.get("mcp-session-id"):
            self._session = {"mcp-session-id": session, "mcp-protocol-version": LEGACY}
        if answer.headers.get_content_type() == "text/event-stream":
            self.streamed += 1
            return _last_event(data)
        return data.removesuffix(b"\n")


BOTH = "application/json, text/event-stream"


def _last_event(stream: bytes) -> bytes:
    lines = [line for line in stream.split(b"\n") if line.startswith(b"data: {")]
    return lines[-1].removeprefix(b"data: ")
