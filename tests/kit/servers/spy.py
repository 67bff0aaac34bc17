"""A server that tries what a sandbox should deny, and tells what came of it.

Its tool `attempt` takes a list of attempts, each a list of a name and its arguments, and returns for each the text
of what it got, or `denied: ` and the error.
"""

# A program of its own: no part of the kit is loaded.
# ruff: noqa: PTH109, PTH123, PTH208

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TEXT = "written by the spy"


def read(path: str) -> str:
    with open(path) as file:
        return file.read()


def listed(path: str) -> str:
    return " ".join(sorted(os.listdir(path)))


def write(path: str) -> str:
    with open(path, "w") as file:
        file.write(TEXT)
    return "written"


def connect(port: int) -> str:
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        return "connected"


def connect_unix(path: str) -> str:
    with socket.socket(socket.AF_UNIX) as channel:
        channel.settimeout(5)
        channel.connect(path)
        return "connected"


def send_signal(pid: int) -> str:
    os.kill(pid, 0)
    return "allowed"


def environ(pid: int) -> str:
    return read(f"/proc/{pid}/environ")


def environs() -> str:
    """All environments that can be read here."""
    texts: list[str] = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            texts.append(read(f"/proc/{name}/environ"))
    return "\n".join(texts)


def processes() -> str:
    return str(len([name for name in os.listdir("/proc") if name.isdigit()]))


def status(field: str) -> str:
    lines = read("/proc/self/status").splitlines()
    return next(line.partition(":")[2].strip() for line in lines if line.startswith(f"{field}:"))


def where() -> str:
    return os.getcwd()


def variable(name: str) -> str:
    return os.environ.get(name, "")


def memory(count: int) -> str:
    return str(len(bytearray(count)))


def used_by(processes: int, count: int) -> str:
    """Have so many processes use so much memory, at the same time; how many could."""
    ready, hold = os.pipe()
    done, tell = os.pipe()
    for _ in range(processes):
        if not os.fork():
            os.close(hold)
            used = b"x" * count
            os.write(tell, used[:1])
            os.read(ready, 1)
            os._exit(0)
    os.close(tell)
    could = sum(len(os.read(done, 1)) for _ in range(processes))
    os.close(hold)
    return str(could)


def forks(count: int) -> str:
    """How many children it could have at once."""
    children: list[int] = []
    ready, hold = os.pipe()
    try:
        for _ in range(count):
            child = os.fork()
            if not child:
                os.close(hold)
                os.read(ready, 1)
                os._exit(0)
            children.append(child)
    except OSError:
        pass
    finally:
        os.close(hold)
        os.close(ready)
        for child in children:
            os.waitpid(child, 0)
    return str(len(children))


def opens(count: int) -> str:
    """How many files it could have open at once."""
    files: list[int] = []
    try:
        files += [os.open(os.devnull, os.O_RDONLY) for _ in range(count)]
    except OSError:
        return "refused"
    finally:
        for file in files:
            os.close(file)
    return "opened"


def escape(file: str) -> str:
    """Start a process that leaves our group and session, ignores what it can, and writes down its number."""
    if os.fork():
        return "started"
    os.setsid()
    if os.fork():
        os._exit(0)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    os.close(0)
    os.close(1)
    with open(file, "w") as written:
        written.write(TEXT)
    while True:
        signal.pause()


ATTEMPTS: dict[str, Any] = {
    name: act
    for name, act in globals().items()
    if callable(act) and getattr(act, "__module__", "") == __name__
}


def attempt(name: str, *arguments: Any) -> str:
    try:
        return ATTEMPTS[name](*arguments)
    except (OSError, MemoryError) as error:
        return f"denied: {type(error).__name__}: {error}"


def answer(message: dict[str, Any]) -> dict[str, Any] | None:
    match message.get("method"):
        case "initialize":
            version = message["params"]["protocolVersion"]
            about = {"name": "spy", "version": "1"}
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
        case "tools/list":
            return {"tools": [{"name": "attempt", "inputSchema": {"type": "object"}}]}
        case "tools/call":
            results = [attempt(*one) for one in message["params"]["arguments"]["attempts"]]
            return {"content": [{"type": "text", "text": json.dumps(results)}]}
        case _:
            return {} if "id" in message else None


def main() -> None:
    """Answer until the input ends; with `on_term FILE`, until SIGTERM, at which the file is written."""
    stays = "on_term" in sys.argv

    def leave(*_: object) -> None:
        time.sleep(0.05)  # it has work to finish; without a sandbox it has 0.3 s for that
        write(sys.argv[-1])
        os._exit(0)

    if stays:
        signal.signal(signal.SIGTERM, leave)
    while line := sys.stdin.readline():
        sent = json.loads(line)
        if (result := answer(sent)) is not None:
            print(
                json.dumps({"jsonrpc": "2.0", "id": sent.get("id"), "result": result}), flush=True
            )
    while stays:
        signal.pause()


if __name__ == "__main__":
    main()
