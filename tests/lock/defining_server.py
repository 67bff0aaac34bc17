"""A legacy MCP server on stdio that defines what a file says at that moment: the standard library only.

    defining_server.py FILE

FILE is a JSON object with `tools`, `prompts`, `templates` and `resources` (lists), `instructions`, and
`asked`: more tools for hosts with the capability `elicitation`. A list may also be a string: JSON that is
sent as it is. The tool `announce` announces changed lists; any other name answers with its own name.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # so it is with `typing`
if TYPE_CHECKING:
    from typing import Any

    from tests.kit.servers import lean_json as json

    Message = dict[str, Any]
else:  # it is started very often: `json`, `pathlib` and `typing` would be most of its start
    sys.path.append(f"{os.path.dirname(__file__)}/../kit/servers")  # noqa: PTH120
    import lean_json as json

CAPABILITIES: Message = {}
LISTS = {
    "tools/list": ("tools", "tools"),
    "prompts/list": ("prompts", "prompts"),
    "resources/list": ("resources", "resources"),
    "resources/templates/list": ("resourceTemplates", "templates"),
}
CHANGED = ("tools", "prompts", "resources")


def defined() -> Message:
    with open(sys.argv[1], "rb") as file:  # noqa: PTH123
        return json.loads(file.read())


def send(text: str) -> None:
    sys.stdout.buffer.write(text.encode() + b"\n")
    sys.stdout.buffer.flush()


def reply(id: Any, result: str) -> None:
    send(f'{{"jsonrpc":"2.0","id":{json.dumps(id)},"result":{result}}}')


def initialize(id: Any, params: Message) -> None:
    CAPABILITIES.update(params.get("capabilities", {}))
    definitions = defined()
    offered = {"tools": {"listChanged": True}}
    if definitions.get("prompts"):
        offered["prompts"] = {"listChanged": True}
    if definitions.get("templates") or definitions.get("resources"):
        offered["resources"] = {"listChanged": True}
    result = {
        "protocolVersion": "2025-11-25",
        "capabilities": offered,
        "serverInfo": {"name": "definer", "version": definitions.get("version", "1")},
    }
    if "instructions" in definitions:
        result["instructions"] = definitions["instructions"]
    reply(id, json.dumps(result))


def listed(id: Any, member: str, key: str) -> None:
    definitions = defined()
    found: Any = definitions.get(key, [])
    if key == "tools" and "elicitation" in CAPABILITIES and isinstance(found, list):
        found += definitions.get("asked", [])
    reply(id, f'{{"{member}":{found if isinstance(found, str) else json.dumps(found)}}}')


def called(id: Any, params: Message) -> None:
    if params["name"] == "announce":
        for kind in CHANGED:
            method = f"notifications/{kind}/list_changed"
            send(json.dumps({"jsonrpc": "2.0", "method": method}))
    reply(id, json.dumps({"content": [{"type": "text", "text": f"ran {params['name']}"}]}))


def answer(message: Message) -> None:
    method, id, params = message.get("method"), message.get("id"), message.get("params", {})
    if method == "initialize":
        initialize(id, params)
    elif method in LISTS:
        listed(id, *LISTS[method])
    elif method == "tools/call":
        called(id, params)
    elif method == "prompts/get":
        content = {"type": "text", "text": f"got {params['name']}"}
        reply(id, json.dumps({"messages": [{"role": "user", "content": content}]}))
    elif id is not None:
        error = {"code": -32601, "message": "Method not found"}
        send(json.dumps({"jsonrpc": "2.0", "id": id, "error": error}))


if __name__ == "__main__":
    for line in sys.stdin.buffer:
        answer(json.loads(line))
