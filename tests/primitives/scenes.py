"""Servers that offer everything, behind the real command, with a raw host of either era before it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.kit.config import write_config
from tests.kit.pipe_host import PipeHost
from tests.kit.results import Message, json_text

LEGACY, MODERN = "legacy", "modern"
ERAS = (LEGACY, MODERN)


def bench(folder: Path, toolboxes: dict[str, dict[str, Any]], *, mode: str = "proxy") -> Path:
    """A file with these toolboxes."""
    boxes = {name: {"mcpServers": servers} for name, servers in toolboxes.items()}
    return write_config(folder, {"toolMode": mode, "toolboxes": boxes})


def begin(host: PipeHost, *boxes: str) -> PipeHost:
    """Open the conversation and these toolboxes."""
    host.handshake()
    for box in boxes:
        host.open(box)
    return host


def names(result: Message, member: str, key: str = "name") -> list[str]:
    return [item[key] for item in result[member]]


def use(host: PipeHost, box: str, server: str, tool: str, **arguments: Any) -> Any:
    """The JSON that a tool answers with."""
    return json_text(host.use(server, tool, arguments, toolbox=box))


def seen(host: PipeHost, box: str, server: str, method: str) -> list[Message]:
    """The parameters of every such request that the server has got."""
    return [one["params"] for one in use(host, box, server, "stats") if one["method"] == method]
