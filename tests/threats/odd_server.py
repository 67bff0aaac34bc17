"""A server on stdio whose results are whatever a test wants: the standard library only.

    odd_server.py ERA [RESULT]

Its tool `next` takes a method and JSON texts that are the results of the next requests of that method, in order;
it tells how many of earlier ones were asked for, and of which methods some were not yet. Its tool `odd` answers so, too, and
has a schema that a call may miss. RESULT is the first of `tools/list`.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # so it is with `typing`, which is not loaded: a hundred of these start
if TYPE_CHECKING:
    from typing import Any

    from tests.kit.servers import lean_json as json
else:
    sys.path.insert(0, __file__.rpartition("/")[0] + "/../kit/servers")
    import lean_json as json

MODERN = sys.argv[1] == "modern"
META = "io.modelcontextprotocol/"
CAN: dict[str, Any] = {
    "tools": {"listChanged": True},
    "prompts": {},
    "resources": {},
    "completions": {},
}
INFO = {"name": "odd", "version": "1"}
ODD = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOLS = [{"name": "next", "inputSchema": {"type": "object"}}, {"name": "odd", "inputSchema": ODD}]
RESULTS: dict[str, Any] = {
    "tools/list": {"tools": TOOLS},
    "prompts/list": {"prompts": [{"name": "ask"}]},
    "resources/list": {"resources": [{"uri": "odd:one", "name": "one"}]},
    "resources/templates/list": {"resourceTemplates": []},
}
if MODERN:
    about = {META + "serverInfo": INFO}
    found = {"supportedVersions": ["2026-07-28"], "capabilities": CAN, "_meta": about}
    RESULTS["server/discover"] = found
else:
    agreed = {"protocolVersion": "2025-11-25", "capabilities": CAN, "serverInfo": INFO}
    RESULTS["initialize"] = agreed
wanted: dict[str, list[str]] = {}  # by method, the last one first
asked: list[str] = []  # the method of each that was asked for
listening: list[Any] = []
if len(sys.argv) > 2:
    wanted["tools/list"] = [sys.argv[2]]


def write(text: str) -> None:
    sys.stdout.write('{"jsonrpc":"2.0",' + text + "}\n")
    sys.stdout.flush()


def reply(id: Any, result: dict[str, Any]) -> None:
    stamped = {"resultType": "complete", **result} if MODERN else result
    write(f'"id":{json.dumps(id)},"result":{json.dumps(stamped)}')


def announce() -> None:
    for id in listening if MODERN else [None]:
        params = {"_meta": {META + "subscriptionId": id}} if MODERN else {}
        write(f'"method":"notifications/tools/list_changed","params":{json.dumps(params)}')


def listen(id: Any, params: dict[str, Any]) -> None:
    listening.append(id)
    told = {"notifications": params["notifications"], "_meta": {META + "subscriptionId": id}}
    told = json.dumps(told)
    write(f'"method":"notifications/subscriptions/acknowledged","params":{told}')


def answer(method: str, id: Any, params: dict[str, Any]) -> None:
    named = method == "tools/call" and params["name"]
    if named == "next":
        arguments, unasked = params["arguments"], [name for name in wanted if wanted[name]]
        wanted[arguments["method"]] = arguments["results"][::-1]
        if arguments["method"] == "tools/list":
            announce()
        reply(id, {"content": [], "asked": len(asked), "unasked": unasked})
    elif wanted.get(method):
        asked.append(method)
        if method == "tools/list":  # it is asked for again when its tools are needed
            announce()
        write(f'"id":{json.dumps(id)},"result":{wanted[method].pop()}')
    elif method in RESULTS:
        reply(id, RESULTS[method])
    elif method == "subscriptions/listen" and MODERN:
        listen(id, params)
    else:
        write(f'"id":{json.dumps(id)},"error":{{"code":-32601,"message":"Method not found"}}')


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        answer(message["method"], message["id"], message.get("params", {}))
