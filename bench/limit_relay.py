"""The limit relay: about the least that a Python gateway must do per call. A yardstick, no product.

python -I limit_relay.py --config FILE [--http PORT]

Bytes in, bytes out on uvloop; what it need not understand stays `Raw`. A call still pays for what no
honest gateway can leave out: tool check, size limit, progress tokens, cancellation, a timer, counters.
There is next to no error handling.
"""

# A yardstick or a measure, not the product: what is plainly wrong is enough.
# pyright: basic, reportOptionalMemberAccess=false

import asyncio
import fcntl
import os
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
import uvloop

Raw = msgspec.Raw
NOTHING = Raw(b"")
VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
LARGEST = 16 << 20  # bytes in one message from the host
PATIENCE = 60  # seconds for one call
PIPE = 256 * 1024  # bytes; large results need fewer wake-ups
SET_PIPE_SIZE = 1031  # F_SETPIPE_SZ, Linux

META_TOOLS = Raw(
    b'{"tools":[{"name":"open_toolbox","description":"Open a toolbox and list its tools.",'
    b'"inputSchema":{"type":"object","properties":{"toolbox_name":{"type":"string"}}}},'
    b'{"name":"use_tool","description":"Use a tool of an opened toolbox.",'
    b'"inputSchema":{"type":"object","properties":{"tool":{"type":"object","properties":'
    b'{"toolbox":{"type":"string"},"server":{"type":"string"},"tool":{"type":"string"}}},'
    b'"arguments":{"type":"object"}}}}]}'
)


class Message(msgspec.Struct, gc=False):
    id: Raw = NOTHING
    method: str = ""
    params: Raw = NOTHING
    result: Raw = NOTHING
    error: Raw = NOTHING


class ToolName(msgspec.Struct, gc=False):
    toolbox: str
    server: str
    tool: str


class Wish(msgspec.Struct, gc=False):
    tool: ToolName | None = None
    arguments: Raw = Raw(b"{}")
    toolbox_name: str = ""


class Meta(msgspec.Struct, gc=False):
    progressToken: Raw = NOTHING  # noqa: N815


class CallParams(msgspec.Struct, gc=False):
    name: str
    arguments: Wish
    meta: Raw = msgspec.field(default=NOTHING, name="_meta")


class Cancelled(msgspec.Struct, gc=False):
    requestId: Raw = NOTHING  # noqa: N815


encode, decode = msgspec.json.encode, msgspec.json.decode
decode_message = msgspec.json.Decoder(Message).decode
decode_call = msgspec.json.Decoder(CallParams).decode
decode_meta = msgspec.json.Decoder(Meta).decode
decode_cancelled = msgspec.json.Decoder(Cancelled).decode


class Lines(asyncio.Protocol):
    """Bytes in, whole lines out, in linear time."""

    def __init__(self, take, ended):
        self.take, self.ended, self.parts = take, ended, []

    def data_received(self, data):
        last = data.rfind(b"\n")
        if last < 0:
            self.parts.append(data)
            return
        if last + 1 == len(data) and not self.parts and data.find(b"\n") == last:
            self.take(data)  # the usual case: exactly one line
            return
        whole = b"".join((*self.parts, data[:last]))
        self.parts = [data[last + 1 :]] if last + 1 < len(data) else []
        for line in whole.split(b"\n"):
            if line:
                self.take(line)

    def connection_lost(self, error):
        self.ended()


class Counters:
    __slots__ = ("buckets", "calls", "spent", "timeouts")

    def __init__(self):
        self.calls, self.spent, self.timeouts, self.buckets = 0, 0, 0, [0] * 32


class Call:
    __slots__ = ("counters", "front", "host_id", "started", "timer", "token")


def enlarge(fd):
    with suppress(OSError):  # not Linux, or over the user's limit: slower, not wrong
        fcntl.fcntl(fd, SET_PIPE_SIZE, PIPE)


class Server:
    """One server behind the relay: its process, its tools and who waits for which of our numbers."""

    def __init__(self, relay):
        self.relay, self.number = relay, 0
        self.calls, self.futures, self.tools = {}, {}, frozenset()

    async def start(self, spec):
        await self.connect(spec)
        about = {"name": "limit-relay", "version": "0"}
        wanted = {"protocolVersion": VERSIONS[-1], "capabilities": {}, "clientInfo": about}
        await self.ask(b"initialize", encode(wanted))
        self.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        tools = (await self.ask(b"tools/list", b"{}"))["tools"]
        self.tools = frozenset(tool["name"] for tool in tools)
        return tools

    async def connect(self, spec):
        loop = asyncio.get_running_loop()
        their_in, our_out = os.pipe()
        our_in, their_out = os.pipe()
        enlarge(our_out)
        enlarge(our_in)
        command = [spec["command"], *spec["args"]]
        self.process = subprocess.Popen(  # noqa: ASYNC220  it never waits
            command, stdin=their_in, stdout=their_out, start_new_session=True
        )
        os.close(their_in)
        os.close(their_out)
        self.pipe, _ = await loop.connect_write_pipe(
            asyncio.BaseProtocol, os.fdopen(our_out, "wb", 0)
        )
        self.write = self.pipe.write
        await loop.connect_read_pipe(
            lambda: Lines(self.take, lambda: None), os.fdopen(our_in, "rb", 0)
        )

    def send(self, message):
        self.write(message + b"\n")

    def close(self):
        self.pipe.close()

    async def ask(self, method, params):
        self.number = number = self.number + 1
        self.futures[number] = future = asyncio.get_running_loop().create_future()
        self.send(b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":%b}' % (number, method, params))
        return decode((await future).result)

    def take(self, line):
        message = decode_message(line)
        if message.method:
            if message.method == "notifications/progress":
                self.pass_progress(message.params)
            return
        number = int(bytes(message.id))
        call = self.calls.pop(number, None)
        if call is not None:
            self.settle(call, message)
        elif number in self.futures:
            self.futures.pop(number).set_result(message)

    def settle(self, call, message):
        call.timer.cancel()
        self.relay.in_flight.pop((call.front, call.host_id), None)
        counters = call.counters
        counters.calls += 1
        spent = time.monotonic_ns() - call.started
        counters.spent += spent
        counters.buckets[(spent // 1000).bit_length()] += 1
        if message.result:
            call.front.answer(call.host_id, b"result", bytes(message.result))
        else:
            call.front.answer(call.host_id, b"error", bytes(message.error))

    def pass_progress(self, params):
        progress = decode(params)
        call = self.calls.get(progress["progressToken"])
        if call is not None and call.token:
            progress["progressToken"] = Raw(call.token)
            head = b'{"jsonrpc":"2.0","method":"notifications/progress","params":'
            call.front.send(head + encode(progress) + b"}")

    def forget(self, number):
        call = self.calls.pop(number, None)
        if call is not None:
            call.timer.cancel()
        head = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":'
        self.send(head + b"%d}}" % number)
        return call

    def expire(self, number):
        call = self.forget(number)
        if call is not None:
            self.relay.in_flight.pop((call.front, call.host_id), None)
            call.counters.timeouts += 1
            call.front.answer(call.host_id, b"error", b'{"code":-32001,"message":"timed out"}')


class UrlServer(Server):
    """A server behind a URL: kept connections, one exchange on each at a time, answers as JSON."""

    async def connect(self, spec):
        address = spec["url"].removeprefix("http://")
        self.address, _, path = address.partition("/")
        self.head = (
            f"POST /{path} HTTP/1.1\r\nHost: {self.address}\r\nContent-Type: application/json\r\n"
            "Accept: application/json, text/event-stream\r\n"
        ).encode()
        self.free, self.connecting = [], set()

    def send(self, message):
        if self.free:
            self.free.pop().post(message)
        else:
            task = asyncio.get_running_loop().create_task(self.open(message))
            self.connecting.add(task)
            task.add_done_callback(self.connecting.discard)

    async def open(self, message):
        host, _, port = self.address.rpartition(":")
        loop = asyncio.get_running_loop()
        _, exchange = await loop.create_connection(lambda: Exchange(self), host, int(port))
        exchange.post(message)

    def close(self):
        pass


class Exchange(asyncio.Protocol):
    def __init__(self, server):
        import httptools  # stdio does without

        self.server, self.parts = server, []
        self.parser = httptools.HttpResponseParser(self)

    def connection_made(self, transport: Any):
        self.transport = transport

    def post(self, message):
        self.parts = []
        head = b"%bContent-Length: %d\r\n\r\n" % (self.server.head, len(message))
        self.transport.write(head + message)

    def data_received(self, data):
        self.parser.feed_data(data)

    def on_header(self, name, value):
        if name.lower() == b"mcp-session-id" and b"Mcp-Session-Id" not in self.server.head:
            self.server.head += b"Mcp-Session-Id: %b\r\n" % value

    def on_body(self, data):
        self.parts.append(data)

    def on_message_complete(self):
        body = b"".join(self.parts)
        self.server.free.append(self)
        if body:
            self.server.take(body)


class PipeFront:
    """The host on a pipe."""

    def __init__(self, write):
        self.write = write

    def send(self, message):
        self.write(message + b"\n")

    def answer(self, host_id, kind, body):
        self.send(b'{"jsonrpc":"2.0","id":%b,"%b":%b}' % (host_id, kind, body))


class HttpFront(asyncio.Protocol):
    """A host over HTTP: one connection, one answer to each POST. Path and Host are checked."""

    def __init__(self, relay, names):
        import httptools

        self.relay, self.names, self.parts, self.wrong = relay, names, [], b""
        self.parser = httptools.HttpRequestParser(self)

    def connection_made(self, transport: Any):
        self.transport = transport

    def data_received(self, data):
        self.parser.feed_data(data)

    def on_url(self, url):
        self.parts, self.wrong = [], b"" if url == b"/mcp" else b"404 Not Found"

    def on_header(self, name, value):
        if len(name) == len("host") and name.lower() == b"host" and value not in self.names:
            self.wrong = b"421 Misdirected Request"
        elif len(name) == len("origin") and name.lower() == b"origin":
            self.wrong = b"403 Forbidden"

    def on_body(self, data):
        self.parts.append(data)

    def on_message_complete(self):
        if self.wrong:
            self.transport.write(b"HTTP/1.1 %b\r\nContent-Length: 0\r\n\r\n" % self.wrong)
        elif not self.relay.take(self, b"".join(self.parts)):
            self.transport.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")

    def send(self, message):
        pass  # it has no stream for notifications

    def answer(self, host_id, kind, body):
        frame = b'{"jsonrpc":"2.0","id":%b,"%b":%b}' % (host_id, kind, body)
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        self.transport.write(head % len(frame) + frame)


class Relay:
    """The hosts' side: their requests in, answers under their own ids out."""

    def __init__(self, config, later):
        self.toolboxes = decode(config)["toolboxes"]
        self.later = later
        self.servers, self.opened, self.in_flight, self.counters = {}, {}, {}, {}
        self.tasks = set()

    def take(self, front, line):
        """Take a message of a host. Returns whether it will be answered."""
        if len(line) > LARGEST:
            return False
        message = decode_message(line)
        if not message.id:
            if message.method == "notifications/cancelled":
                self.cancel((front, bytes(decode_cancelled(message.params).requestId)))
            return False
        if message.method == "tools/call":
            params = decode_call(message.params)
            if params.name == "use_tool":
                self.use_tool(bytes(message.id), params, front)
                return True
        task = asyncio.get_running_loop().create_task(self.take_slowly(message, front))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return True

    def use_tool(self, host_id, params, front):
        name = params.arguments.tool
        server = self.servers.get((name.toolbox, name.server))
        if server is None or name.tool not in server.tools:
            front.answer(host_id, b"error", b'{"code":-32602,"message":"Tool not found"}')
            return
        server.number = number = server.number + 1
        call = Call()
        call.front, call.host_id, call.token, extra = front, host_id, b"", b""
        if params.meta:
            call.token = bytes(decode_meta(params.meta).progressToken)
            if call.token:
                extra = b',"_meta":{"progressToken":%d}' % number
        key = (name.toolbox, name.server, name.tool)
        call.counters = self.counters.get(key) or self.counters.setdefault(key, Counters())
        call.started = time.monotonic_ns()
        server.calls[number] = call
        server.send(
            b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%b,"arguments":%b%b}}'
            % (number, encode(name.tool), bytes(params.arguments.arguments), extra)
        )
        self.in_flight[front, host_id] = (server, number)
        call.timer = self.later(PATIENCE, server.expire, number)

    def cancel(self, key):
        if key in self.in_flight:
            server, number = self.in_flight.pop(key)
            server.forget(number)

    async def take_slowly(self, message, front):
        match message.method:
            case "initialize":
                wanted = decode(message.params)["protocolVersion"]
                result = {
                    "protocolVersion": wanted if wanted in VERSIONS else VERSIONS[-1],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "limit-relay", "version": "0"},
                }
            case "tools/list":
                result = META_TOOLS
            case "tools/call":
                result = await self.open(decode_call(message.params).arguments.toolbox_name)
            case "ping":
                result = {}
            case _:
                error = b'{"code":-32601,"message":"Method not found"}'
                front.answer(bytes(message.id), b"error", error)
                return
        front.answer(bytes(message.id), b"result", encode(result))

    async def open(self, toolbox):
        if toolbox not in self.opened:
            specs = self.toolboxes[toolbox]["mcpServers"]
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self.connect(toolbox, name, spec))
                    for name, spec in specs.items()
                ]
            tools = [tool for task in tasks for tool in task.result()]
            text = encode({"toolbox": toolbox, "tools": tools}).decode()
            self.opened[toolbox] = encode({"content": [{"type": "text", "text": text}]})
        return Raw(self.opened[toolbox])

    async def connect(self, toolbox, name, spec):
        self.servers[toolbox, name] = server = (UrlServer if "url" in spec else Server)(self)
        tools = await server.start(spec)
        return [{**tool, "server": name, "toolbox": toolbox} for tool in tools]


async def main(config, port=""):
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    with open(config, "rb") as file:  # noqa: ASYNC230, PTH123  pathlib costs start-up time
        relay = Relay(file.read(), loop.call_later)
    if port:
        names = {f"{name}:{port}".encode() for name in ("127.0.0.1", "localhost", "[::1]")}
        await loop.create_server(lambda: HttpFront(relay, names), "127.0.0.1", int(port))
        await loop.connect_read_pipe(lambda: Lines(len, ended.set), os.fdopen(0, "rb", 0))
    else:
        enlarge(0)
        enlarge(1)
        out, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(1, "wb", 0))
        take = partial(relay.take, PipeFront(out.write))
        await loop.connect_read_pipe(lambda: Lines(take, ended.set), os.fdopen(0, "rb", 0))
    await ended.wait()
    for server in relay.servers.values():
        server.close()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[2::2]))
