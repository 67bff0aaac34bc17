"""The server behind every gateway: raw JSON-RPC lines, standard library only, so that it is never the bottleneck.

python -I server.py NAME

Tools: `echo(text)`, `blob(kb)`, and eight fillers that give the listing a realistic size.
"""

# A yardstick or a measure, not the product: what is plainly wrong is enough.
# pyright: basic, reportOptionalMemberAccess=false

import os
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


def main() -> None:
    """Answer until stdin closes: that is how every gateway, also one that was killed, ends it."""
    rest = b""
    while chunk := os.read(0, 1 << 18):
        *lines, rest = (rest + chunk).split(b"\n")
        if answers := b"".join([answered(line) for line in lines if line]):
            write(answers)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt, BrokenPipeError):
        main()
