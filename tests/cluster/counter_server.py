"""A legacy server that keeps state in its process: `counter_server.py FOLDER`. Standard library only.

`count` counts its calls. `hold` answers when FOLDER/release exists, `progress` sends three steps, `grow` adds a tool and
announces that, `touch` announces a change of the resource `counter://now`. FOLDER/events has a line for
each start, each end of input, and each cancelled or subscribed thing.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

Json = dict[str, Any]

FOLDER = Path(sys.argv[1])
NOTED = FOLDER / "events"
TOOLS = ["count", "hold", "progress", "grow", "touch"]
writing = threading.Lock()
calls = 0


def note(*words: object) -> None:
    with NOTED.open("a") as file:
        file.write(" ".join(map(str, words)) + "\n")


def send(message: Json) -> None:
    with writing:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def reply(id: Any, value: Any) -> None:
    send({"id": id, "result": {"content": [{"type": "text", "text": json.dumps(value)}]}})


def hold(id: Any) -> None:
    while not (FOLDER / "release").exists():
        time.sleep(0.02)
    reply(id, {"pid": os.getpid(), "held": True})


def call(id: Any, params: Json) -> None:
    global calls  # noqa: PLW0603 - the state of this process
    name = params["name"]
    if name == "count":
        calls += 1
        reply(id, {"pid": os.getpid(), "count": calls})
        return
    if name == "hold":
        note("held", os.getpid())
        threading.Thread(target=hold, args=(id,), daemon=True).start()
        return
    if name == "progress":
        token = params["_meta"]["progressToken"]
        for step in range(3):
            progress = {"progressToken": token, "progress": step}
            send({"method": "notifications/progress", "params": progress})
    elif name == "grow":
        TOOLS.append("grown")
        send({"method": "notifications/tools/list_changed"})
    elif name == "touch":
        updated = {"uri": "counter://now"}
        send({"method": "notifications/resources/updated", "params": updated})
    reply(id, name)


def answer(id: Any, method: str, params: Json) -> None:
    if method == "initialize":
        capabilities = {"tools": {"listChanged": True}, "resources": {"subscribe": True}}
        info = {"name": "counter", "version": "1"}
        version = params["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info}
        note("initialize", os.getpid())
        send({"id": id, "result": result})
    elif method == "tools/list":
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
        send({"id": id, "result": {"tools": tools}})
    elif method == "resources/list":
        resources = [{"uri": "counter://now", "name": "now"}]
        send({"id": id, "result": {"resources": resources}})
    elif method in ("resources/subscribe", "resources/unsubscribe"):
        note(method, params["uri"])
        send({"id": id, "result": {}})
    elif method == "tools/call":
        call(id, params)
    else:
        send({"id": id, "error": {"code": -32601, "message": "Method not found"}})


note("start", os.getpid())
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        answer(message["id"], message["method"], message.get("params", {}))
    elif message["method"] == "notifications/cancelled":
        note("cancelled", message["params"]["reason"])
note("end", os.getpid())
