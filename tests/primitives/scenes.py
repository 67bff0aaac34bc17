"""Servers that offer everything, behind the real command, with a raw host of either era before it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.makers import written
from tests.rawhost import Message, RawHost

FIXTURE = Path(__file__).parents[1] / "fixtures" / "offers_server.py"
LEGACY, MODERN = "legacy", "modern"
ERAS = (LEGACY, MODERN)


def server(name: str, era: str, *flags: str) -> dict[str, Any]:
    """The entry of a server of this era."""
    words = [name, *(["modern"] if era == MODERN else []), *flags]
    return {"command": sys.executable, "args": ["-E", "-S", str(FIXTURE), *words], "era": era}


def bench(folder: Path, toolboxes: dict[str, dict[str, Any]], *, mode: str = "proxy") -> Path:
    boxes = {name: {"mcpServers": servers} for name, servers in toolboxes.items()}
    return written(folder, {"toolMode": mode, "toolboxes": boxes})


def opened(config: Path, era: str, *boxes: str) -> RawHost:
    """A host that is yet to be entered; `begin` opens the conversation and these toolboxes."""
    return RawHost(config, modern=era == MODERN)


def begin(host: RawHost, *boxes: str) -> RawHost:
    if not host.modern:
        host.initialize()
    for box in boxes:
        host.open(box)
    return host


def names(result: Message, member: str, key: str = "name") -> list[str]:
    return [item[key] for item in result[member]]


def use(host: RawHost, box: str, server: str, tool: str, **arguments: Any) -> Any:
    """What a tool of the fixture said."""
    wish = {"tool": {"toolbox": box, "server": server, "tool": tool}, "arguments": arguments}
    return json.loads(host.call("use_tool", wish)["content"][0]["text"])


def seen(host: RawHost, box: str, server: str, method: str) -> list[Message]:
    """The parameters of every such request that the server has got."""
    return [one["params"] for one in use(host, box, server, "stats") if one["method"] == method]
