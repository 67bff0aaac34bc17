"""The server behind every gateway: raw JSON-RPC lines, standard library only, so that it is never the bottleneck.

python -I server.py NAME          on stdin and stdout
python -I server.py NAME PORT     over HTTP, until stdin closes

Tools: `echo(text)`, `blob(kb)`, and eight fillers that give the listing a realistic size.
"""

# A yardstick or a measure, not the product: what is plainly wrong is enough.
# pyright: basic, reportOptionalMemberAccess=false

import os
import socket
import sys
from contextlib import suppress
from json import JSONDecoder, dumps
from json.encoder import encode_basestring_ascii as quote

VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
PROSE = 'The quick brown fox jumps over the lazy dog; "quoted" café \\ path.\n'
parse = JSONDecoder().raw_decode
blobs: dict[int, bytes] = {}


def tool(name: str, description: str, properties: dict, required: str) -> dict:
    schema = {"type": "object", "properties": properties, "required": [required]}
    return {"name": name, "description": description, "inputSchema": schema}


def listing() -> bytes:
    text, number = {"type": "string"}, {"type": "integer"}
    filler = {
        "path": {**text, "description": "Path of the thing to work on"},
        "query": {**text, "description": "What to look for"},
        "limit": {**number, "description": "At most this many results", "default": 20},
    }
    about = (
        "It does some plausible thing with a path, a query and a limit, and answers with text, "
        "so that a listing has a realistic size."
    )
    tools = [
        tool("echo", "Return the given text unchanged.", {"text": text}, "text"),
        tool("blob", "Return kb kilobytes of text.", {"kb": number}, "kb"),
        *(tool(f"tool_{i:04}", f"Filler tool {i}. {about}", filler, "path") for i in range(8)),
    ]
    return b'"result":%b}\n' % dumps({"tools": tools}, separators=(",", ":")).encode()


TOOLS = listing()


def blob(kb: int) -> bytes:
    """The answer's text as JSON, made once: the bench times gateways, not this."""
    if kb not in blobs:
        text = (PROSE * (kb * 1024 // len(PROSE) + 1))[: kb * 1024]
        blobs[kb] = dumps(text, ensure_ascii=False).encode()
    return blobs[kb]


def called(params: dict) -> bytes:
    name, arguments = params["name"], params.get("arguments") or {}
    if name == "echo":
        text = quote(arguments["text"]).encode()
    elif name == "blob":
        text = blob(arguments["kb"])
    else:
        text = quote(dumps(arguments)).encode()
    return b'"result":{"content":[{"type":"text","text":%b}],"isError":false}}\n' % text


def greeted(params: dict) -> bytes:
    wanted = params.get("protocolVersion")
    version = wanted if wanted in VERSIONS else VERSIONS[-1]
    about = {"name": sys.argv[1], "version": "1.0"}
    greeting = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
    return b'"result":%b}\n' % dumps(greeting).encode()


def answered(line: bytes) -> bytes:
    """The line that answers this one; nothing for a notification."""
    message = parse(line.decode())[0]
    number = message.get("id")
    if number is None:
        return b""
    head = b'{"jsonrpc":"2.0","id":%b,' % (quote if type(number) is str else str)(number).encode()
    match message["method"]:
        case "tools/call":
            return head + called(message["params"])
        case "tools/list":
            return head + TOOLS
        case "initialize":
            return head + greeted(message["params"])
        case "ping":
            return head + b'"result":{}}\n'
    return head + b'"error":{"code":-32601,"message":"Method not found"}}\n'


def write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


# Over HTTP


OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
ACCEPTED = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
REFUSED = b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n"


class Peer:
    """One connection: requests in, responses out, in blocking writes."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.data = b""

    def receive(self) -> bool:
        """Answer what has arrived. Returns whether the connection is still open."""
        chunk = self.connection.recv(1 << 18)
        self.data += chunk
        while (request := self.next()) is not None:
            self.connection.sendall(request)
        return bool(chunk)

    def next(self) -> bytes | None:
        """The response to the next whole request, if there is one."""
        head, end, rest = self.data.partition(b"\r\n\r\n")
        if not end:
            return None
        _, _, length = head.lower().partition(b"content-length:")
        size = int(length.partition(b"\r\n")[0] or 0)
        if len(rest) < size:
            return None
        body, self.data = rest[:size], rest[size:]
        if not head.startswith(b"POST "):
            return REFUSED
        answer = answered(body)[:-1]
        return OK % len(answer) + answer if answer else ACCEPTED


def serve_http(port: int) -> None:
    from selectors import EVENT_READ, DefaultSelector

    selector = DefaultSelector()
    listener = socket.create_server(("127.0.0.1", port), backlog=256)
    selector.register(listener, EVENT_READ)
    selector.register(0, EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                connection, _ = listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                selector.register(connection, EVENT_READ, Peer(connection))
            elif key.fileobj == 0:
                return
            elif not key.data.receive():
                selector.unregister(key.fileobj)
                key.data.connection.close()


def main() -> None:
    """Answer until stdin closes: that is how every gateway, also one that was killed, ends it."""
    rest = b""
    while chunk := os.read(0, 1 << 18):
        *lines, rest = (rest + chunk).split(b"\n")
        if answers := b"".join([answered(line) for line in lines if line]):
            write(answers)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt, BrokenPipeError, ConnectionResetError):
        if sys.argv[2:]:
            serve_http(int(sys.argv[2]))
        else:
            main()
