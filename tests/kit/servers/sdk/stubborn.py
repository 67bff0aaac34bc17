"""A server that stays: the end of its input and the polite signal mean nothing to it."""

from __future__ import annotations

import json
import signal
import sys
import time
from typing import Any

TOOL = {"name": "stay", "inputSchema": {"type": "object"}}


def say(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def answer(request: dict[str, Any]) -> dict[str, Any] | None:
    match request["method"]:
        case "initialize":
            result: dict[str, Any] = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "stubborn", "version": "1"},
            }
        case "tools/list":
            result = {"tools": [TOOL]}
        case "tools/call":  # says that it has begun, and no more
            token = request["params"]["_meta"]["progressToken"]
            params = {"progressToken": token, "progress": 0}
            say({"method": "notifications/progress", "params": params})
            return None
        case method:
            return {"error": {"code": -32601, "message": f"Method not found: {method}"}}
    return {"result": result}


def main() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request and (said := answer(request)):
            say({"id": request["id"], **said})
    time.sleep(600)


if __name__ == "__main__":
    main()
