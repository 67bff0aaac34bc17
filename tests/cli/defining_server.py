"""A server on stdio that defines what its first argument says, as JSON: the standard library only.

`tools`, `prompts` and `resourceTemplates` are its lists, `instructions` its instructions.
"""

import json
import sys
from typing import Any

WORDS: dict[str, Any] = json.loads(sys.argv[1])
LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/templates/list": "resourceTemplates",
    "resources/list": "resources",
}

for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    reply: dict[str, Any]
    if request["method"] == "initialize":
        result: dict[str, Any] = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}, "prompts": {}, "resources": {}},
            "serverInfo": {"name": "defining", "version": "1"},
            "instructions": WORDS.get("instructions", ""),
        }
        reply = {"result": result}
    elif request["method"] in LISTS:
        kind = LISTS[request["method"]]
        reply = {"result": {kind: WORDS.get(kind, [])}}
    else:
        reply = {"error": {"code": -32601, "message": "unknown"}}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **reply}), flush=True)
