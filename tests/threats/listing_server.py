"""A server on stdio whose lists are trouble: the standard library only.

    listing_server.py JSON

The JSON object says which methods it never answers (`hangs`), which lists it gives page by page without
end (`drips`), how many seconds each page takes (`seconds`), and from which reading of its tools on it does
so (`tools_from`). Before each of these it waits at a FIFO, where there is a `gate`: its path, and the number
of the reading. `more_tools` is how many tools it has beside the usual ones, `tool_bytes` how long the
description of each of them is. It has the tools `seen`, which counts the requests that came, and `change`,
which announces that its tools have changed.
"""

import json
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

WISHES: dict[str, Any] = json.loads(sys.argv[1])
MEMBERS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}
SCHEMA: dict[str, Any] = {"type": "object"}
LONG = '"a" ' * (WISHES.get("tool_bytes", 0) // 4)
TOOLS: list[dict[str, Any]] = [
    *({"name": name, "inputSchema": SCHEMA} for name in ("seen", "change")),
    *(
        {"name": f"more_{n}", "description": LONG, "inputSchema": SCHEMA}
        for n in range(WISHES.get("more_tools", 0))
    ),
]
seen: Counter[str] = Counter()
lock = threading.Lock()


def write(message: dict[str, Any]) -> None:
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def reply(id: Any, result: dict[str, Any]) -> None:
    write({"id": id, "result": result})


def drip(id: Any, method: str, cursor: int) -> None:
    result: dict[str, Any] = {MEMBERS[method]: [], "nextCursor": str(cursor + 1)}
    timer = threading.Timer(WISHES.get("seconds", 0.1), reply, (id, result))
    timer.daemon = True
    timer.start()


def wait_at_gate(id: Any, gate: str) -> None:
    with Path(gate).open():
        reply(id, {"tools": TOOLS})


def listed(id: Any, method: str, cursor: int) -> None:
    late = method != "tools/list" or seen[method] >= WISHES.get("tools_from", 1)
    if method in WISHES.get("drips", ()) and late:
        drip(id, method, cursor)
    elif method == "tools/list" and late and "gate" in WISHES:
        gate = f"{WISHES['gate']}{seen[method]}"
        threading.Thread(target=wait_at_gate, args=(id, gate), daemon=True).start()
    else:
        reply(id, {MEMBERS[method]: TOOLS if method == "tools/list" else []})


def answer(method: str, id: Any, params: dict[str, Any]) -> None:
    if method in WISHES.get("hangs", ()):
        return
    if method == "initialize":
        many = {"listChanged": True}
        can = {"tools": many, "resources": {"subscribe": True, **many}, "prompts": many}
        info = {"name": "listing", "version": "1"}
        reply(id, {"protocolVersion": "2025-11-25", "capabilities": can, "serverInfo": info})
    elif method in MEMBERS:
        listed(id, method, int(params.get("cursor", 0)))
    elif method == "tools/call":
        if params["name"] == "change":
            write({"method": "notifications/tools/list_changed"})
        reply(id, {"content": [{"type": "text", "text": json.dumps(seen)}]})
    else:
        write({"id": id, "error": {"code": -32601, "message": "Method not found"}})


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        seen[message["method"]] += 1
        answer(message["method"], message["id"], message.get("params", {}))
