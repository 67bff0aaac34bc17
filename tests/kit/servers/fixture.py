"""How the fixture server answers, and which flags change that. See `server.py`."""

# It is started many times, and pathlib is not loaded for nothing.
# ruff: noqa: PTH110, PTH123

from __future__ import annotations

import os
import sys

import lean_json as json
from tools import (
    FLAGS,
    HANDLERS,
    LATE,
    LEGACY,
    LISTENING,
    META,
    MODERN,
    STATS,
    TOOLS,
    announce_change,
    echo,
    send,
    send_error,
    send_raw_result,
    send_result,
    speaks_modern,
    write,
)

TYPE_CHECKING = False  # `typing` is not either
if TYPE_CHECKING:
    from typing import Any

    Message = dict[str, Any]


def discover(id: Any) -> None:
    if "die_on_probe" in FLAGS:
        os._exit(1)
    if "quiet_probe" in FLAGS:
        return
    late = "late_probe" in FLAGS and not os.path.exists(FLAGS["late_probe"])
    if late and "initialize" not in STATS["methods"]:
        LATE.append(id)
    elif "modern" in FLAGS or "dual" in FLAGS:
        send_discovery(id)
    else:
        send_error(id, -32601, "Method not found")


def send_discovery(id: Any) -> None:
    STATS["era"] = "modern"
    send_result(
        id,
        {
            "resultType": "complete",
            "supportedVersions": [MODERN],
            "capabilities": {"tools": {"listChanged": True} if "listen" in FLAGS else {}},
            "ttlMs": 0,
            "cacheScope": "public",
            "_meta": {META + "serverInfo": {"name": "fixture", "version": "1"}},
        },
    )


def initialize(id: Any, params: Message) -> None:
    if "quiet_greeting" in FLAGS:
        return
    for probe in LATE:
        send_discovery(probe)
        if once := FLAGS["late_probe"]:
            with open(once, "w"):
                pass
    if "modern" in FLAGS or (LATE and "dual" not in FLAGS):
        supported = {"supported": [MODERN], "requested": params.get("protocolVersion")}
        send_error(id, -32022, "Unsupported protocol version", supported)
        return
    STATS["era"] = "legacy"
    offered = params["protocolVersion"]
    revision = FLAGS.get("rev") or (offered if offered in LEGACY else LEGACY[-1])
    info = {"name": "fixture", "version": "1"}
    answer: Message = {
        "protocolVersion": revision,
        "capabilities": {"tools": {}},
        "serverInfo": info,
    }
    if "says" in FLAGS:
        answer["instructions"] = FLAGS["says"]
    send_result(id, answer)


def list_tools(id: Any, params: Message) -> None:
    STATS["lists"] += 1
    if "hang_list" in FLAGS or ("hang_list_again" in FLAGS and STATS["lists"] > 1):
        return
    if os.path.exists(FLAGS.get("list_gate", "")):
        with open(FLAGS["list_gate"]):
            pass
    if "no_tools" in FLAGS:
        send_error(id, -32601, "Method not found")
        return
    if "list_error" in FLAGS:
        send_error(id, -32000, "no tools today")
        return
    if "list_odd" in FLAGS:
        send_result(id, {"tools": "none"})
        return
    if "die_in_list" in FLAGS and STATS["lists"] > 1:
        os._exit(7)
    shown = list(TOOLS)
    if "flip_in_list" in FLAGS and STATS["lists"] == 2:
        TOOLS.append(b'{"name":"late","inputSchema":{"type":"object"}}')
        announce_change()
    send_raw_result(id, page(shown, params.get("cursor")))


def page(tools: list[bytes], cursor: str | None) -> bytes:
    more = b""
    if "paged" in FLAGS:
        start = int(cursor or 0)
        if start + 1 < len(tools):
            more = b',"nextCursor":"%d"' % (start + 1)
        tools = tools[start : start + 1]
    elif "loop_cursor" in FLAGS:
        more = b',"nextCursor":"again"'
    if speaks_modern():
        more += b',"resultType":"complete","ttlMs":0,"cacheScope":"private"'
    return b'{"tools":[%b]%b}' % (b",".join(tools), more)


def call(id: Any, params: Message) -> None:
    handler = HANDLERS.get(params["name"], echo)
    handler(id, params.get("arguments", {}), params)


def lacks_envelope(params: Message) -> bool:
    meta = params.get("_meta", {})
    return META + "protocolVersion" not in meta or META + "clientCapabilities" not in meta


def receive(raw: bytes) -> None:
    message: Message = json.loads(raw)
    method, id, params = message.get("method"), message.get("id"), message.get("params", {})
    STATS["raw"].append(raw)
    STATS["methods"].append(method)
    if "hang" in FLAGS:
        return
    if method is None:
        STATS["answers"].append(message)
    elif method == "notifications/cancelled":
        STATS["cancelled"].append(params["requestId"])
    elif id is not None:
        answer(method, id, params)


def answer(method: str, id: Any, params: Message) -> None:
    if method == "initialize":
        initialize(id, params)
    elif method == "server/discover":
        discover(id)
    elif speaks_modern() and lacks_envelope(params):
        send_error(id, -32602, "the envelope is missing")
    elif method == "tools/list":
        list_tools(id, params)
    elif method == "tools/call":
        call(id, params)
    elif method == "subscriptions/listen" and "listen" in FLAGS:
        listen(id, params)
    else:
        send_error(id, -32601, f"Method not found: {method}")


def listen(id: Any, params: Message) -> None:
    LISTENING.append(id)
    honoured = {
        "notifications": params["notifications"],
        "_meta": {META + "subscriptionId": id},
    }
    send({"method": "notifications/subscriptions/acknowledged", "params": honoured})


def start() -> None:
    for word in sys.argv[1:]:
        flag, _, value = word.partition("=")
        FLAGS[flag] = value
    if "ignore_term" in FLAGS:
        import signal  # nor are the others, for a flag that is not there

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note_pid(os.getpid())
    if "grandchild" in FLAGS:
        import subprocess

        # It holds our stdout open for longer than any test lasts.
        sleep = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
        note_pid(subprocess.Popen(sleep).pid)
    prepare()
    leave_early()


def note_pid(pid: int) -> None:
    if pids := os.environ.get("PIDFILE"):
        with open(pids, "a") as file:
            file.write(f"{pid}\n")


def prepare() -> None:
    if "gate" in FLAGS:
        with open(FLAGS["gate"]):
            pass
    if "tools" in FLAGS:
        with open(FLAGS["tools"], "rb") as file:
            TOOLS[:] = [file.read().strip().removeprefix(b"[").removesuffix(b"]")]
    if "floods" in FLAGS:
        from floods import FLOODS  # not loaded for nothing either

        HANDLERS.update(FLOODS)
        TOOLS.extend(b'{"name":"%b","inputSchema":{}}' % name.encode() for name in FLOODS)
    if "stderr" in FLAGS:
        os.write(2, b"e" * int(FLAGS["stderr"]))
    if "banner" in FLAGS:
        write(b"\xef\xbb\xbfWelcome to \xff my server!")
        write(b"{not json")


def leave_early() -> None:
    if "exit_start" in FLAGS:
        os._exit(3)
    if "stderr_exit" in FLAGS:
        sys.stderr.write("line one\nError: no DATABASE_URL in the environment\n")
        sys.stderr.flush()
        os._exit(3)
    later = FLAGS.get("later_modern")
    if later and os.path.exists(later):
        FLAGS["modern"] = ""
    elif later:
        with open(later, "w"):
            pass
    once = FLAGS.get("crash_once")
    if once and not os.path.exists(once):
        with open(once, "w"):
            os._exit(1)


def serve() -> None:
    held: list[bytes] = []
    while data := os.read(0, 1 << 18):
        first, *more = data.split(b"\n")
        held.append(first)
        for part in more:
            raw = b"".join(held)
            held = [part]
            if raw.strip():
                receive(raw)


def main() -> None:
    start()
    serve()
    if "note_eof" in FLAGS:
        with open(FLAGS["note_eof"], "w"):
            pass
    while "no_eof_exit" in FLAGS:
        import time

        time.sleep(600)
    if (
        "threading" not in sys.modules
    ):  # no late answers: to take the interpreter down takes a sixth of all
        os._exit(0)
