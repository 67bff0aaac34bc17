"""The host over HTTP, in the test's own loop: a `Port`, legacy `Session`s on it, and single connections (`Peer`)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, cast

from mcp_workbench.core.spec import HttpSettings, Snapshot
from mcp_workbench.gateway.workbench import Gateway
from mcp_workbench.http_app import port_of
from mcp_workbench.server.http.front import HttpFront
from mcp_workbench.transport.http.server import HttpServer
from tests.kit.clock import PATIENCE, until
from tests.kit.config import snapshot, spec
from tests.kit.results import (
    INITIALIZE,
    LEGACY,
    MODERN,
    Message,
    enveloped,
    json_text,
    use_tool,
)

ACCEPT = "application/json, text/event-stream"


class Answer(NamedTuple):
    """A response. The body of a stream is what came until its end."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> Message:
        return self.message["error"]

    @property
    def result(self) -> Message:
        assert "result" in self.message, self.message
        return self.message["result"]

    @property
    def json_text(self) -> Any:
        """The JSON in the text of a call's result."""
        return json_text(self.result)

    @property
    def message(self) -> Message:
        """The JSON-RPC answer, in one piece or as the last event of a stream."""
        return self.json if self.body.startswith(b"{") else self.messages[-1]

    @property
    def messages(self) -> list[Message]:
        """What the events of a stream carry."""
        return [json.loads(event["data"]) for event in events_of(self.body) if event["data"]]


def events_of(stream: bytes) -> list[dict[str, str]]:
    """The events of a stream, each as its fields."""
    events: list[dict[str, str]] = []
    for block in stream.decode().split("\n\n"):
        fields = [line.partition(":") for line in block.split("\n") if line and line[0] != ":"]
        if fields:
            events.append({name: value.lstrip(" ") for name, _, value in fields})
    return events


class Peer:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.headers: dict[str, str] = {}

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def close(self) -> None:
        self.writer.transport.abort()

    async def head(self) -> tuple[int, dict[str, str]]:
        start, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[:-2]
        headers = {n.lower(): v.strip() for n, _, v in (line.partition(":") for line in lines)}
        self.headers = headers
        return int(start.split()[1]), headers

    async def answer(self) -> Answer:
        status, headers = await self.head()
        if headers.get("transfer-encoding") == "chunked":
            return Answer(status, headers, b"".join([part async for part in self.chunks()]))
        if "content-length" in headers:
            size = int(headers["content-length"])
            return Answer(status, headers, await self.reader.readexactly(size))
        empty = status in (202, 204)
        return Answer(status, headers, b"" if empty else await self.reader.read())

    async def chunks(self) -> AsyncGenerator[bytes]:
        while size := int(await self.reader.readline(), 16):
            yield await self.reader.readexactly(size)
            assert await self.reader.readline() == b"\r\n"
        assert await self.reader.readline() == b"\r\n"

    async def event(self) -> dict[str, str]:
        """The next event of a stream whose head has been read."""
        while True:
            size = int(await self.reader.readline(), 16)
            assert size, "the stream has ended"
            events = events_of(await self.reader.readexactly(size))
            assert await self.reader.readline() == b"\r\n"
            if events:
                (event,) = events
                return event

    async def message(self) -> Message:
        """The next event that carries a message."""
        while True:
            event = await self.event()
            if event["data"]:
                return json.loads(event["data"])

    async def ended(self) -> bool:
        """Has the other side closed, and said nothing more?"""
        return await self.reader.read() == b""


class Port:
    """An open port, and requests to it. Every connection is closed with `close`."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.name = f"127.0.0.1:{number}"
        self.peers: list[Peer] = []
        self._id = 0

    def close(self) -> None:
        """Drop every connection that is still open."""
        while self.peers:
            self.peers.pop().close()

    async def connect(self) -> Peer:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.number)
        peer = Peer(reader, writer)
        self.peers.append(peer)
        return peer

    def request(
        self,
        body: bytes = b"",
        headers: dict[str, Any] | None = None,
        *,
        method: str = "POST",
        path: str = "/mcp",
    ) -> bytes:
        """Its bytes. A header that is None is left out; a list is one line for each value."""
        whole: dict[str, Any] = {"host": self.name, "accept": ACCEPT}
        if method == "POST":
            whole |= {"content-type": "application/json", "content-length": str(len(body))}
        whole |= {name.lower(): value for name, value in (headers or {}).items()}
        lines = [f"{method} {path} HTTP/1.1"]
        for name, value in whole.items():
            values = cast("list[Any]", value) if isinstance(value, list) else [value]
            lines += [f"{name}: {one}" for one in values if one is not None]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body

    async def ask(
        self, body: bytes = b"", headers: dict[str, Any] | None = None, **more: str
    ) -> Answer:
        """One request on a connection of its own, which is closed afterwards."""
        peer = await self.connect()
        self.peers.remove(peer)
        try:
            peer.send(self.request(body, headers, **more))
            return await peer.answer()
        finally:
            peer.close()

    # Modern

    def modern(
        self, method: str, params: Message | None = None, **headers: Any
    ) -> tuple[bytes, dict[str, Any]]:
        """Body and headers of a modern request. Headers: `mcp_name`, `mcp_method` and so on."""
        self._id += 1
        whole = modern_headers(method, params or {})
        whole |= {name.replace("_", "-"): value for name, value in headers.items()}
        return rpc(method, enveloped(params or {}), self._id), whole

    async def ask_modern(self, method: str, params: Message | None = None, **more: Any) -> Answer:
        return await self.ask(*self.modern(method, params, **more))

    def modern_use(self, tool: str, arguments: Message | None = None, **more: Any) -> bytes:
        """The bytes of a modern call of a tool of the server `fixture`."""
        params = {**use_tool("fixture", tool, arguments), **more}
        return self.request(*self.modern("tools/call", params))

    # Legacy

    async def open(self, revision: str = LEGACY, path: str = "/mcp", **headers: str) -> Session:
        """A session, opened."""
        params = {**INITIALIZE, "protocolVersion": revision}
        answer = await self.ask(rpc("initialize", params, 0), headers, path=path)
        assert answer.result["protocolVersion"] == revision
        session = Session(self, answer.headers["mcp-session-id"], revision, path)
        session.headers |= headers
        done = await session.post(rpc("notifications/initialized"))
        assert (done.status, done.body) == (202, b"")
        return session


class Session:
    """A legacy host with its session."""

    def __init__(self, port: Port, id: str, revision: str, path: str) -> None:
        self.port = port
        self.id = id
        self.path = path
        self.headers: dict[str, Any] = {"mcp-session-id": id, "mcp-protocol-version": revision}
        self._id = 0

    def request(self, body: bytes = b"", method: str = "POST", **headers: str) -> bytes:
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.port.request(body, {**self.headers, **more}, method=method, path=self.path)

    async def post(self, body: bytes, method: str = "POST", **headers: str) -> Answer:
        peer = await self.port.connect()
        peer.send(self.request(body, method, **headers))
        return await peer.answer()

    def ask(self, method: str, params: Message | None = None) -> bytes:
        self._id += 1
        return rpc(method, params, self._id)

    async def result(self, method: str, params: Message | None = None) -> Message:
        return (await self.post(self.ask(method, params))).result

    async def use(self, tool: str, arguments: Message | None = None, **more: Any) -> Answer:
        return await self.post(
            self.ask("tools/call", {**use_tool("fixture", tool, arguments), **more})
        )

    async def begin(self, tool: str, arguments: Message | None = None, **more: Any) -> Peer:
        """A call whose response is still to be read."""
        peer = await self.port.connect()
        peer.send(
            self.request(self.ask("tools/call", {**use_tool("fixture", tool, arguments), **more}))
        )
        return peer

    async def listen(self, last: str = "") -> Peer:
        """A GET stream whose head has been read."""
        peer = await self.port.connect()
        more = {"last-event-id": last or None}
        peer.send(self.port.request(b"", {**self.headers, **more}, method="GET", path=self.path))
        status, headers = await peer.head()
        assert (status, headers["content-type"]) == (200, "text/event-stream")
        return peer


def modern_headers(method: str, params: Message) -> dict[str, Any]:
    """The headers that a modern request repeats of its body."""
    headers: dict[str, Any] = {"mcp-protocol-version": MODERN, "mcp-method": method}
    uri = params.get("uri") if method == "resources/read" else params.get("taskId")
    if name := params.get("name") or uri:
        headers["mcp-name"] = name
    return headers


def rpc(method: str, params: Message | None = None, id: Any = None) -> bytes:
    """The bytes of a request, or of a notification where it has no id."""
    message: Message = {"jsonrpc": "2.0", "method": method, "params": params or {}}
    return json.dumps(message if id is None else {**message, "id": id}).encode()


class OwnPort(Port):
    """A port that the test itself has opened, so that it can look behind it."""

    def __init__(self, front: HttpFront, server: HttpServer) -> None:
        super().__init__(server.port)
        self.front = front
        self.server = server

    async def until_asked(self) -> None:
        """Wait until a server has a call: while it starts, a later call might reach it first."""

        def is_asked() -> bool:
            ready = [one for one in self.front.gateway.connected if one.tools.read_at]
            return any(one.conversation.pending.count for one in ready)

        await until(is_asked)


@asynccontextmanager
async def port(
    configuration: Snapshot | None = None, http: HttpSettings | None = None, *flags: str
) -> AsyncGenerator[OwnPort]:
    """An open port of a workbench in the test's own loop; one toolbox `dev` with the server `fixture` unless told otherwise."""
    configuration = configuration or snapshot(spec("fixture", *flags))
    async with (
        asyncio.timeout(PATIENCE),
        Gateway(configuration) as gateway,
        port_of(gateway, "127.0.0.1", 0, http or HttpSettings()) as (front, server),
    ):
        opened = OwnPort(front, server)
        try:
            yield opened
        finally:
            opened.close()
