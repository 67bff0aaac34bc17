"""A server for tests of the page: many tools, or names, texts and results that attack whoever shows them.

page_server.py many 500     so many tools, each with a description and a schema of usual size
page_server.py hostile      names, texts and results with markup, and all kinds of content
page_server.py slow 0.2     one tool that takes so many seconds
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

MARKUP = "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SHAPES: dict[str, Any] = {
    "type": "object",
    "$defs": {
        "point": {
            "type": "object",
            "properties": {"x": {"type": "number"}, "y": {"type": "number"}},
            "required": ["x", "y"],
        },
        "tree": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}},
            },
        },
        "loop": {"$ref": "#/$defs/loop"},
    },
    "properties": {
        "text": {"type": "string", "description": MARKUP},
        "count": {"type": "integer", "minimum": 1, "maximum": 9},
        "flag": {"type": "boolean", "default": True},
        "kind": {"enum": ["small", "large", MARKUP]},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "either": {"oneOf": [{"type": "string"}, {"type": "object"}]},
        "where": {"$ref": "#/$defs/point"},
        "tree": {"$ref": "#/$defs/tree"},
        "loop": {"$ref": "#/$defs/loop"},
        "far": {"$ref": "https://evil.example/schema.json"},
        "names": {"type": "array", "items": {"type": "string"}},
        "constructor": {"type": "string"},
        "__proto__x": {"type": "string"},
    },
    "required": ["text", "count", "where"],
}


def tool(name: str, description: str, schema: Any = None, **more: Any) -> dict[str, Any]:
    schema = schema or {"type": "object", "properties": {}}
    return {"name": name, "description": description, "inputSchema": schema, **more}


def many(count: int) -> list[dict[str, Any]]:
    texts = {
        "path": {
            "type": "string",
            "description": "The path of the file, from the project's folder",
        },
        "limit": {"type": "integer", "description": "The largest number of results", "default": 20},
        "query": {"type": "string", "description": "Words to look for; all of them must occur"},
    }
    schema = {"type": "object", "properties": texts, "required": ["path"]}
    return [
        tool(f"tool_{n:04}", f"Reads part {n} of a file. Returns its lines, with numbers.", schema)
        for n in range(count)
    ]


HOSTILE = [
    tool("shapes", "Shows what it is given. A form has all its shapes.", SHAPES),
    tool(MARKUP, f"{MARKUP} A name that is markup.", annotations={"destructiveHint": True}),
    tool("text", "Returns markup as text."),
    tool("image", "Returns a picture, and one at another address."),
    tool("structured", "Returns structured content."),
    tool("wrong", "Reports an error."),
    tool("long_" + "n" * 300, "Has a long name."),
    tool("\u202egnitirw", "Has a name with a direction override.\u200b"),
]
RESULTS: dict[str, Any] = {
    "text": {"content": [{"type": "text", "text": MARKUP}]},
    "image": {
        "content": [
            {"type": "image", "data": PIXEL, "mimeType": "image/png"},
            {"type": "image", "data": "PHN2Zy8+", "mimeType": "image/svg+xml"},
            {"type": "resource_link", "uri": "https://evil.example/x.png", "name": MARKUP},
        ]
    },
    "structured": {
        "content": [{"type": "text", "text": "see below"}],
        "structuredContent": {"title": MARKUP, "number": 12345678901234567890},
    },
    "wrong": {"content": [{"type": "text", "text": f"broken: {MARKUP}"}], "isError": True},
}


def result_of(mode: str, params: dict[str, Any]) -> Any:
    if mode == "slow":
        time.sleep(float(sys.argv[2]))
    text = json.dumps(params.get("arguments", {}), ensure_ascii=False)
    return RESULTS.get(params["name"], {"content": [{"type": "text", "text": text}]})


def main() -> None:
    mode = sys.argv[1]
    tools = {
        "many": lambda: many(int(sys.argv[2])),
        "hostile": lambda: HOSTILE,
        "slow": lambda: [tool("wait", "Takes its time.")],
    }[mode]()
    sys.stderr.write(f"{MARKUP}\nready, with {len(tools)} tools\n")
    sys.stderr.flush()
    for line in sys.stdin:
        message = json.loads(line)
        answer: dict[str, Any] | None = {}
        match message.get("method"):
            case "initialize":
                answer = {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": f"{mode} <b>server</b>", "version": "1"},
                    "instructions": MARKUP if mode == "hostile" else "",
                }
            case "tools/list":
                answer = {"tools": tools}
            case "tools/call":
                answer = result_of(mode, message["params"])
            case "ping":
                answer = {}
            case _:
                answer = None
        if "id" not in message:
            continue
        body = (
            {"result": answer}
            if answer is not None
            else {"error": {"code": -32601, "message": "no"}}
        )
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **body}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
