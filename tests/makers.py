"""Small named makers of what tests need: servers, snapshots, files, and questions about processes."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from mcp_workbench.core.names import ServerAddress, ToolIdentifier
from mcp_workbench.core.spec import (
    Limits,
    ServerSpec,
    Snapshot,
    StdioCommand,
    ToolboxSpec,
    ToolMode,
)

FIXTURE = Path(__file__).parent / "fixtures" / "server.py"
PATIENCE = 20.0  # seconds; the bound of every open wait, far above what a slow machine needs


def argv(*flags: str) -> tuple[str, ...]:
    """The command line of the fixture server."""
    return (sys.executable, "-E", "-S", str(FIXTURE), *flags)


def spec(
    server: str, *flags: str, toolbox: str = "dev", env: Any = (), **wishes: Any
) -> ServerSpec:
    """A server that is the fixture with these flags; legacy unless they or `era` say otherwise."""
    command, *args = argv(*flags)
    wishes.setdefault("era", "legacy")
    target = StdioCommand(command, tuple(args), tuple(dict(env).items()))
    return ServerSpec(ServerAddress(toolbox, server), target, **wishes)


def snapshot(
    *specs: ServerSpec, mode: ToolMode = "proxy", limits: Limits | None = None
) -> Snapshot:
    """A configuration with these servers, each in the toolbox that it names."""
    boxes: dict[str, dict[str, ServerSpec]] = {}
    for one in specs:
        boxes.setdefault(one.address.toolbox, {})[one.address.server] = one
    toolboxes = {name: ToolboxSpec(name, f"The {name} toolbox", of) for name, of in boxes.items()}
    return Snapshot(toolboxes, mode, limits or Limits(), origin="made by a test")


def tool(server: str, name: str, toolbox: str = "dev") -> ToolIdentifier:
    return ToolIdentifier(toolbox, server, name)


def entry(*flags: str, **more: Any) -> dict[str, Any]:
    """A server entry of a configuration file, for the fixture; legacy unless told otherwise."""
    command, *args = argv(*flags)
    return {"command": command, "args": list(args), "era": "legacy", **more}


def config_file(folder: Path, servers: dict[str, Any], **more: Any) -> Path:
    """A file with these servers in the toolbox `dev`."""
    dev = {"description": "Development toolbox", "mcpServers": servers}
    return written(folder, {"toolboxes": {"dev": dev}, **more})


def written(folder: Path, config: dict[str, Any]) -> Path:
    path = folder / "workbench-config.json"
    path.write_text(json.dumps(config))
    return path


def said(result: dict[str, Any]) -> Any:
    """What a tool of the fixture said: the JSON in its one text block."""
    return json.loads(result["content"][0]["text"])


def texts(result: dict[str, Any]) -> list[str]:
    return [block["text"] for block in result["content"]]


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(value if isinstance(value, bytes) else msgspec.json.encode(value))


# Processes


def unmeasured() -> dict[str, str]:
    """Our environment for a child whose imports are counted: no coverage tool loads its own there."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COV")}


def pids_in(file: Path) -> list[int]:
    """The numbers of the fixture's processes that were started so far."""
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def alive(pid: int) -> bool:
    """Does the process run? One that has ended and was not yet reaped does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def open_fds() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def eventually(true: Callable[[], bool], what: str) -> None:
    """Wait, within bounds, for something outside that sends no event."""
    until = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < until, f"never: {what}"
        time.sleep(0.005)


def let_through(gate: Path) -> bool:
    """Let the server go on that waits at this FIFO; False where none does yet."""
    try:
        os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


async def until(true: Callable[[], bool]) -> None:
    """The same without stopping the loop; the bound is the caller's."""
    while not true():  # noqa: ASYNC110 - a file or another process sends no event
        await asyncio.sleep(0.005)
