"""A raw HTTP server in the test's own loop: the path says what it does wrong when a tool is called.

`/MODE` meets us as a good legacy server does and then misbehaves on `tools/call`; `/start/MODE`
misbehaves from the first request on; `/modern/MODE` is the same for the modern era; `/dual/MODE` speaks both.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import ssl
import struct
import threading
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import cache
from typing import Any

import msgspec

from tests.kit.clock import PATIENCE

MODERN = "2026-07-28"
TOOL = {"name": "echo", "inputSchema": {"type": "object"}}
Json = dict[str, Any]


class Request(msgspec.Struct):
    """What arrived."""

    verb: str
    path: str
    headers: dict[str, str]
    body: Json
    raw: bytes

    @property
    def method(self) -> str:
        return self.body.get("method", "")


class Hung:
    """A connection on which an answer is written as the test likes."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer

    async def raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def reply(
        self, status: int, body: bytes = b"", kind: str = "application/json", **headers: str
    ) -> None:
        lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}"]
        if kind:
            lines.append(f"Content-Type: {kind}")
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.raw("\r\n".join([*lines, "", ""]).encode() + body)

    async def events(self, *chunks: bytes, end: bool = True) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        await self.raw(head)
        for chunk in chunks:
            await self.more(chunk)
        if end:
            await self.raw(b"0\r\n\r\n")

    async def more(self, chunk: bytes) -> None:
        await self.raw(b"%x\r\n%b\r\n" % (len(chunk), chunk))

    def reset(self) -> None:
        sock = self.writer.get_extra_info("socket")
        with suppress(OSError):
            sock.setsockopt(1, 13, struct.pack("ii", 1, 0))  # SO_LINGER: close with a reset
        self.writer.transport.abort()


def result(request: Request, inside: bytes = b"") -> bytes:
    inside = inside or b'{"content":[{"type":"text","text":"%b"}]}' % (
        request.body["params"].get("arguments", {}).get("text", "ok").encode()
    )
    return b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (request.body["id"], inside)


def event(data: bytes, id: str = "") -> bytes:
    head = f"id: {id}\n".encode() if id else b""
    return head + b"event: message\ndata: " + data + b"\n\n"


Act = Callable[[Request, Hung], Awaitable[None]]


class BadHttp:
    """The server, what it has seen, and what it was told to do."""

    def __init__(self) -> None:
        self.port = 0
        self.seen: list[Request] = []
        self.connects = 0
        self.open = 0
        self.dropped: list[str] = []  # paths of exchanges that we left while they ran
        self.acts: dict[str, Act] = {}
        self.sessions: set[str] = set()
        self.tools: list[Json] = [TOOL]
        self.gets: list[float] = []
        self.held = asyncio.Event()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def on(self, path: str, act: Act) -> str:
        """Do this when a tool is called at this path."""
        self.acts[path] = act
        return self.url(path)

    def calls(self, method: str = "tools/call") -> list[Request]:
        return [request for request in self.seen if request.method == method]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connects += 1
        self.open += 1
        # While one request is answered, the first byte of the next is awaited, or the end.
        ahead = asyncio.ensure_future(reader.read(1))
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while request := await self._read(reader, await ahead):
                self.seen.append(request)
                ahead = asyncio.ensure_future(reader.read(1))
                if not await self._answered(request, ahead, Hung(writer)):
                    break
        ahead.cancel()
        writer.close()
        with suppress(OSError, asyncio.CancelledError):
            await ahead
        with suppress(OSError):
            await writer.wait_closed()
        self.open -= 1

    async def _answered(self, request: Request, ahead: asyncio.Future[bytes], out: Hung) -> bool:
        """Answer, and notice if the other side leaves meanwhile."""
        answering = asyncio.ensure_future(self._answer(request, out))
        await asyncio.wait((answering, ahead), return_when=asyncio.FIRST_COMPLETED)
        if answering.done():
            await answering
            return not out.writer.is_closing()
        answering.cancel()
        self.dropped.append(request.path)
        with suppress(asyncio.CancelledError, ConnectionError):
            await answering
        return False

    async def _read(self, reader: asyncio.StreamReader, first: bytes) -> Request | None:
        """The request that begins with this byte; None where the other side has left instead."""
        if not first:
            return None
        head = (first + await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        opening, *lines = head.split("\r\n")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines) if k}
        raw = await reader.readexactly(int(headers.get("content-length", "0")))
        verb, path, _ = opening.split(" ", 2)
        if path.startswith("http://server.test/"):  # we are the proxy on the way there
            headers["x-proxied"] = "yes"
            path = path.removeprefix("http://server.test")
        return Request(verb, path, headers, json.loads(raw) if raw else {}, raw)

    async def _answer(self, request: Request, out: Hung) -> None:
        path = request.path
        act = self.acts.get(path) or MODES.get(path.rpartition("/")[2])
        if request.verb == "GET":
            self.gets.append(asyncio.get_running_loop().time())
        if act is not None and (request.method == "tools/call" or path.startswith("/start/")):
            await act(request, out)
        elif request.verb == "GET" and (get := self.acts.get(f"GET {path}")):
            await get(request, out)
        elif request.verb != "POST":
            await out.reply(405)
        else:
            await self.good(request, out)

    async def good(self, request: Request, out: Hung) -> None:
        dual = "/dual/" in request.path
        modern = dual or "/modern/" in request.path
        if "id" not in request.body or not request.method:
            await out.reply(202, kind="")
            return
        session: Json = {}
        match request.method:
            case "server/discover" if modern:
                found: Json = {"supportedVersions": [MODERN], "capabilities": {"tools": {}}}
            case "initialize" if dual or not modern:
                found = {"protocolVersion": "2025-11-25", "capabilities": {}}
                if "/session" in request.path:
                    name = f"session-{len(self.sessions)}"
                    self.sessions.add(name)
                    session = {"Mcp_Session_Id": name}
            case _ if "/session" in request.path and not self._knows(request):
                await out.reply(404, b"no such session", "text/plain")
                return
            case "tools/list":
                found = {"tools": self.tools}
            case "tools/call":
                await out.reply(200, result(request))
                return
            case method:
                error = {"code": -32601, "message": f"Method not found: {method}"}
                body = {"jsonrpc": "2.0", "id": request.body["id"], "error": error}
                await out.reply(404 if modern else 200, json.dumps(body).encode())
                return
        body = {"jsonrpc": "2.0", "id": request.body["id"], "result": found}
        await out.reply(200, json.dumps(body).encode(), **session)

    def _knows(self, request: Request) -> bool:
        return request.headers.get("mcp-session-id") in self.sessions


@asynccontextmanager
async def bad_http(tls: ssl.SSLContext | None = None) -> AsyncGenerator[BadHttp]:
    """The server. Who is inside sees its connections closed; here we wait until they are.

    A connection belongs to a task of ours from the moment it is accepted. `asyncio.start_server` takes some
    turns of its loop for that, and leaves a connection open whose turn has not come when the loop ends.
    """
    bad = BadHttp()
    loop = asyncio.get_running_loop()
    listener = socket.create_server(("127.0.0.1", 0), backlog=100)
    listener.setblocking(False)
    bad.port = listener.getsockname()[1]
    serving: set[asyncio.Task[None]] = set()

    def accept() -> None:
        with suppress(BlockingIOError, ConnectionError):
            accepted, _ = listener.accept()
            accepted.setblocking(False)
            task = asyncio.ensure_future(_serve(bad, accepted, tls))
            serving.add(task)
            task.add_done_callback(serving.discard)

    loop.add_reader(listener, accept)
    try:
        yield bad
    finally:
        loop.remove_reader(listener)
        listener.close()
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*serving)


async def _serve(bad: BadHttp, accepted: socket.socket, tls: ssl.SSLContext | None) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    try:
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, accepted, ssl=tls)
    except OSError:  # a handshake that failed
        return
    await bad.serve(reader, asyncio.StreamWriter(transport, protocol, reader, loop))


# What can go wrong


async def rst(request: Request, out: Hung) -> None:
    out.reset()


async def rst_mid(request: Request, out: Hung) -> None:
    await out.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
    await asyncio.sleep(0.02)
    out.reset()


async def trunc(request: Request, out: Hung) -> None:
    await out.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
    out.writer.close()


async def badgzip(request: Request, out: Hung) -> None:
    await out.reply(200, b"\x1f\x8b\x08\x00nonsense" * 9, content_encoding="gzip")


async def cutgzip(request: Request, out: Hung) -> None:
    await out.reply(200, gzip.compress(result(request))[:-12], content_encoding="gzip")


async def goodgzip(request: Request, out: Hung) -> None:
    await out.reply(200, gzip.compress(result(request)), content_encoding="gzip")


async def gzsse(request: Request, out: Hung) -> None:
    engine = zlib.compressobj(wbits=31)
    body = engine.compress(event(result(request))) + engine.flush()
    await out.reply(200, body, "text/event-stream", content_encoding="gzip")


@cache
def bomb() -> bytes:
    """200 MB in 200 KB: five equal members, each beyond every cap of the tests."""
    engine = zlib.compressobj(9, wbits=31)
    piece = b" " * (1 << 20)
    member = b"".join([*(engine.compress(piece) for _ in range(40)), engine.flush()])
    return member * 5


async def gzbomb(request: Request, out: Hung) -> None:
    await out.reply(200, bomb(), content_encoding="gzip")


async def hang(request: Request, out: Hung) -> None:
    await asyncio.sleep(60)


async def drip(request: Request, out: Hung) -> None:
    body = result(request)
    await out.raw(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
    for byte in body:
        await out.raw(bytes([byte]))
        await asyncio.sleep(1)


async def html(request: Request, out: Hung) -> None:
    page = b"<html><title>Sign in</title>\n\x1b[31m<p>hush-hush-token" + b"x" * 999
    await out.reply(200, page, "text/html; charset=utf-8")


async def notjson(request: Request, out: Hung) -> None:
    await out.reply(200, b"{not json")


async def pretty(request: Request, out: Hung) -> None:
    body = json.dumps(json.loads(result(request)), indent=2).replace("\n", "\r\n")
    await out.reply(200, body.encode())


async def wrongid(request: Request, out: Hung) -> None:
    await out.reply(200, b'{"jsonrpc":"2.0","id":77,"result":{}}')


async def nobatch(request: Request, out: Hung) -> None:
    await out.reply(200, b'[{"jsonrpc":"2.0","id":77,"result":{}}]')


async def twoids(request: Request, out: Hung) -> None:
    id = json.dumps(request.body["id"]).encode()
    await out.reply(200, b'{"jsonrpc":"2.0","id":%b,"result":{},"id":77}' % id)


async def nullid_error(request: Request, out: Hung) -> None:
    body = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no"}}'
    await out.reply(400, body, "")


async def taken(request: Request, out: Hung) -> None:
    await out.reply(202, kind="")


def status(code: int, **headers: str) -> Act:
    async def act(request: Request, out: Hung) -> None:
        await out.reply(code, b"<h1>no</h1>", "text/html", **headers)

    return act


async def redir_same(request: Request, out: Hung) -> None:
    await out.reply(307, location=request.path.replace("redir_same", "ok"))


async def redir_cross(request: Request, out: Hung) -> None:
    await out.reply(307, location="http://127.0.0.2:1/stolen?token=1")


async def redir_bad(request: Request, out: Hung) -> None:
    await out.reply(307, location="http://[half/an/address")


async def redir_loop(request: Request, out: Hung) -> None:
    await out.reply(307, location=request.path)


async def sse(request: Request, out: Hung) -> None:
    note = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":1}}'
    await out.events(b": hello\n\n", event(note), event(result(request)))


async def sse_end(request: Request, out: Hung) -> None:
    await out.events(b": nothing\n\n")


async def sse_rst(request: Request, out: Hung) -> None:
    await out.events(b": nothing\n\n", end=False)
    await asyncio.sleep(0.02)
    out.reset()


async def sse_id_end(request: Request, out: Hung) -> None:
    await out.events(b"retry: 0\nid: 1\ndata:\n\n")


async def bigsse(request: Request, out: Hung) -> None:
    text = b'{"content":[{"type":"text","text":"%b"}]}' % (b"x" * (2 << 20))
    await out.events(event(result(request, text)))


async def bigjson(request: Request, out: Hung) -> None:
    text = b'{"content":[{"type":"text","text":"%b"}]}' % (b"x" * (2 << 20))
    await out.reply(200, result(request, text))


async def endless_sse(request: Request, out: Hung) -> None:
    await out.events(b"data: ", end=False)
    while True:
        await out.more(b"x" * 65536)


async def garbage(request: Request, out: Hung) -> None:
    await out.raw(b"SSH-2.0-OpenSSH_9.6\r\n")


async def headers(request: Request, out: Hung) -> None:
    await out.raw(b"HTTP/1.1 200 OK\r\n" + b"X-A: %b\r\n" % (b"a" * 1000) * 100 + b"\r\n")


async def twice(request: Request, out: Hung) -> None:
    """Two answers to one request: the second must never become another's."""
    body = result(request)
    one = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    await out.raw(one + one.replace(b"result", b"resylt"))


async def until_close(request: Request, out: Hung) -> None:
    await out.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + result(request))
    out.writer.close()


async def interim(request: Request, out: Hung) -> None:
    await out.raw(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
    await out.reply(200, result(request))


MODES: dict[str, Act] = {
    "rst": rst, "rst_mid": rst_mid, "trunc": trunc, "badgzip": badgzip, "cutgzip": cutgzip,
    "goodgzip": goodgzip, "gzsse": gzsse, "gzbomb": gzbomb, "hang": hang, "drip": drip,
    "html": html, "notjson": notjson, "pretty": pretty, "wrongid": wrongid,
    "nobatch": nobatch, "twoids": twoids,
    "nullid_error": nullid_error, "taken": taken, "s401": status(401), "s403": status(403),
    "s401_meta": status(401, WWW_Authenticate='Bearer resource_metadata="http://127.0.0.2:1/x"'),
    "s429": status(429, Retry_After="7"), "s500": status(500), "s502": status(502),
    "s503": status(503, Retry_After="9"), "redir_same": redir_same, "redir_cross": redir_cross,
    "redir_loop": redir_loop, "redir_bad": redir_bad, "sse": sse, "sse_end": sse_end, "sse_rst": sse_rst,
    "sse_id_end": sse_id_end, "bigsse": bigsse, "bigjson": bigjson, "endless_sse": endless_sse,
    "garbage": garbage, "headers": headers, "twice": twice, "until_close": until_close,
    "interim": interim,
}  # fmt: skip


@contextmanager
def bad_http_in_a_thread() -> Generator[BadHttp]:
    """The misbehaving servers, in a thread: the test and its host may wait as they like."""
    ready, leave = threading.Event(), threading.Event()
    found: list[BadHttp] = []

    async def serve() -> None:
        async with bad_http() as bad:
            found.append(bad)
            ready.set()
            await asyncio.to_thread(leave.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(PATIENCE)
    try:
        yield found[0]
    finally:
        leave.set()
        thread.join(PATIENCE)
        assert not thread.is_alive()
