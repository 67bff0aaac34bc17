"""Hosts for long runs: as quick as they can be, over HTTP and over pipes."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

from tests.soak.bench import Bench

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_ANSWER = re.compile(rb'data: ?(\{"jsonrpc":"2.0","id":[^\r\n]+)')
_SESSION = re.compile(rb"mcp-session-id: *([^\r\n]+)", re.IGNORECASE)
MODERN = "2026-07-28"
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "soak", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def use(
    server: str, tool: str, arguments: dict[str, Any], *, modern: bool = False
) -> dict[str, Any]:
    """The params of a call through the meta-tool."""
    wish = {"tool": {"toolbox": "t", "server": server, "tool": tool}, "arguments": arguments}
    return {"name": "use_tool", "arguments": wish, **({"_meta": ENVELOPE} if modern else {})}


class Wire(asyncio.Protocol):
    """One connection: a request, its answer, the next request."""

    def __init__(self) -> None:
        self._buffer = b""
        self._answer: asyncio.Future[tuple[bytes, bytes]] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, end, body = self._buffer.partition(b"\r\n\r\n")
        if not end or self._answer is None:
            return
        length = _LENGTH.search(head)
        if length is None and b"text/event-stream" in head:  # an answer that took its time
            found = _ANSWER.search(body) if body.endswith(b"0\r\n\r\n") else None
            if found is None:
                return
            body = found[1]
        elif length is not None and len(body) < int(length[1]):
            return
        self._buffer, answer, self._answer = b"", self._answer, None
        if not answer.done():
            answer.set_result((head, body))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("the workbench closed the connection"))

    def ask(self, request: bytes) -> asyncio.Future[tuple[bytes, bytes]]:
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._answer

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class HttpHost:
    """One host: a legacy session, or a modern one that has none; several connections."""

    def __init__(self, port: int, *, modern: bool = False) -> None:
        self._port = port
        self._modern = modern
        self._session = b""
        self._wires: list[Wire] = []
        self._id = 0

    async def open(self, connections: int = 1) -> HttpHost:
        loop = asyncio.get_running_loop()
        for _ in range(connections):
            _, wire = await loop.create_connection(Wire, "127.0.0.1", self._port)
            self._wires.append(wire)
        if not self._modern:
            params = {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "soak", "version": "1"},
            }
            head, _ = await self._wires[0].ask(self._post("initialize", params))
            found = _SESSION.search(head)
            assert found is not None, head
            self._session = found[1]
        return self

    async def use(
        self, server: str, tool: str, arguments: dict[str, Any], wire: int = 0
    ) -> dict[str, Any]:
        """The whole answer."""
        params = use(server, tool, arguments, modern=self._modern)
        _, body = await self._wires[wire].ask(self._post("tools/call", params))
        return json.loads(body)

    async def close(self) -> None:
        if self._session:
            await self._wires[0].ask(
                b"DELETE /mcp HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nMcp-Session-Id: %b\r\n\r\n"
                % (self._port, self._session)
            )
        for wire in self._wires:
            wire.close()

    def _post(self, method: str, params: dict[str, Any]) -> bytes:
        self._id += 1  # all hosts count alike, so their ids collide all the time
        message = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": params}
        return self.head(method, params.get("name", "")) % self._with_length(message)

    def _with_length(self, message: dict[str, Any]) -> tuple[int, bytes]:
        body = json.dumps(message, separators=(",", ":")).encode()
        return len(body), body

    def head(self, method: str, name: str) -> bytes:
        era = b"Mcp-Session-Id: %b\r\n" % self._session if self._session else b""
        if self._modern:
            era = b"MCP-Protocol-Version: %b\r\nMcp-Method: %b\r\nMcp-Name: %b\r\n" % (
                MODERN.encode(),
                method.encode(),
                name.encode(),
            )
        return (
            b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n"
            b"Accept: application/json, text/event-stream\r\n%b" % (self._port, era)
        ) + b"Content-Length: %d\r\n\r\n%b"


class PipeHost:
    """The one host of a workbench on pipes."""

    def __init__(self, bench: Bench) -> None:
        assert bench.process.stdin is not None
        assert bench.process.stdout is not None
        self._in, self._out = bench.process.stdin, bench.process.stdout
        self._id = 0

    def initialize(self) -> None:
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "soak", "version": "1"},
        }
        self.answer(self.ask("initialize", params))

    def ask(self, method: str, params: dict[str, Any]) -> int:
        self._id += 1
        self.send({"id": self._id, "method": method, "params": params})
        return self._id

    def send(self, message: dict[str, Any]) -> None:
        self._in.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._in.flush()

    def answer(self, id: int) -> dict[str, Any]:
        while True:
            message = self.read()
            if message.get("id") == id:
                return message

    def read(self) -> dict[str, Any]:
        line = self._out.readline()
        assert line, "the workbench has ended"
        return json.loads(line)

    def use(self, server: str, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return self.answer(self.ask("tools/call", use(server, tool, arguments)))["result"]


def told(answer: dict[str, Any]) -> str:
    """The text of a call's result."""
    return answer["result"]["content"][0]["text"]


def code(answer: dict[str, Any]) -> str:
    """The code of an error of the workbench's own; empty where there is none."""
    return answer["result"].get("_meta", {}).get("mcp-workbench/code", "")
