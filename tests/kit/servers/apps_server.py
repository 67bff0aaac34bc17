"""A raw MCP server on stdio with an app and extensions: the standard library only.

    apps_server.py NAME [modern] [html|blob] [extension=NAME …]

Its tool `show` has a page, at the same address whatever NAME is, and its app has the tool `poll` for itself; both
only if the client declares that it shows apps. `seen` answers with all requests so far, `kind` with a result of a
kind that is not in the protocol. With an extension it also answers `example/echo` with the parameters, and
`example/die` not at all. The page is a fragment of text; `html` and `blob` make it a whole document, in these forms.
"""

from __future__ import annotations

import os
import sys

import lean_json as json

TYPE_CHECKING = False  # `typing` is not loaded for nothing
if TYPE_CHECKING:
    from typing import Any

    Message = dict[str, Any]

NAME, *FLAGS = sys.argv[1:]
MODERN = "modern" in FLAGS
EXTENSIONS = [flag.partition("=")[2] for flag in FLAGS if flag.startswith("extension=")]
META = "io.modelcontextprotocol/"
PAGE = "ui://monitor/page"
NOTE = "ui://monitor/note"  # not listed
APPS: Message = {"ui": {"resourceUri": PAGE, "x-odd": 1.0}, "ui/resourceUri": PAGE}
APP_ONLY: Message = {"ui": {"resourceUri": PAGE, "visibility": ["app"]}}
declared: Message = {}
seen: list[Message] = []


def reply(id: Any, result: Message) -> None:
    result = (
        {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **result}
        if MODERN
        else result
    )
    write({"id": id, "result": result})


def write(message: Message) -> None:
    os.write(1, json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def tool(name: str, description: str, **more: Any) -> Message:
    return {"name": name, "description": description, "inputSchema": {"type": "object"}, **more}


def tools(capabilities: Message) -> list[Message]:
    plain = [tool("seen", "Shows all requests."), tool("kind", "Has an odd result.")]
    if META + "ui" not in capabilities.get("extensions", {}):
        return plain
    own = tool("poll", "Polls the gauge.", _meta=APP_ONLY)
    return [*plain, tool("show", "Shows the gauge.", _meta=APPS), own]


def call(id: Any, params: Message) -> None:
    if params["name"] == "kind":
        reply(id, {"resultType": "example", "content": []})
        return
    text = json.dumps(seen if params["name"] == "seen" else [NAME, params["name"]])
    reply(id, {"content": [{"type": "text", "text": text}]})


def content(uri: str) -> Message:
    if uri == NOTE:
        return {"uri": NOTE, "mimeType": "text/plain", "text": NAME}
    page = f"<!doctype html>\n<html><head><title>{NAME}</title></head></html>"
    if "html" in FLAGS:
        return {"uri": PAGE, "mimeType": "text/html;profile=mcp-app", "text": page, "_meta": {}}
    if "blob" in FLAGS:
        from base64 import b64encode

        blob = b64encode(page.encode()).decode()
        return {"uri": PAGE, "mimeType": "text/html;profile=mcp-app", "blob": blob}
    return {"uri": PAGE, "text": f"<p>{NAME}"}


def answer(method: str, id: Any, params: Message) -> None:  # noqa: C901 - a table
    global declared  # noqa: PLW0603 - what a legacy client has declared
    capabilities: Message = {"tools": {}, "resources": {}}
    if EXTENSIONS:
        capabilities["extensions"] = {name: {"by": NAME} for name in EXTENSIONS}
    meta = params.get("_meta", {})
    told = meta.get(META + "clientCapabilities", {}) if MODERN else declared
    if method == "server/discover" and MODERN:
        info = {META + "serverInfo": {"name": NAME, "version": "1"}}
        reply(
            id, {"supportedVersions": ["2026-07-28"], "capabilities": capabilities, "_meta": info}
        )
    elif method == "initialize" and not MODERN:
        declared = params["capabilities"]
        info = {"name": NAME, "version": "1"}
        reply(
            id, {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
        )
    elif method == "tools/list":
        reply(id, {"tools": tools(told)})
    elif method == "tools/call":
        call(id, params)
    elif method == "resources/list":
        reply(id, {"resources": [{"uri": PAGE, "name": "page"}]})
    elif method == "resources/read" and params["uri"] in (PAGE, NOTE):
        reply(id, {"contents": [content(params["uri"])]})
    elif method == "example/echo" and EXTENSIONS:
        reply(
            id,
            {
                "by": NAME,
                "params": {key: params[key] for key in params if key != "_meta"},
                "odd": 1.0,
            },
        )
    elif method == "example/die" and EXTENSIONS:
        os._exit(1)
    else:
        write({"id": id, "error": {"code": -32601, "message": f"Method not found: {method}"}})


for line in sys.stdin:
    message: Message = json.loads(line)
    name, id, params = message.get("method", ""), message.get("id"), message.get("params", {})
    seen.append({"method": name, "params": params})
    if id is not None and name:
        answer(name, id, params)
