"""Configurations: server entries and files as people write them, specs and snapshots as the program reads them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from mcp_workbench.core.spec import (
    HttpEndpoint,
    Limits,
    ServerAddress,
    ServerSpec,
    Snapshot,
    StdioCommand,
    ToolboxSpec,
    ToolIdentifier,
    ToolMode,
)
from tests.kit.results import Json
from tests.kit.servers import APPS, FIXTURE, OFFERS, QUICK


def lean(script: str, *args: str) -> tuple[str, ...]:
    """The arguments of Python for a script that needs the standard library alone: it starts in half the time."""
    return ("-E", "-S", script, *args)


def argv(*flags: str) -> tuple[str, ...]:
    """The command line of the fixture server."""
    return (sys.executable, *lean(FIXTURE, *flags))


def spec(
    server: str, *flags: str, toolbox: str = "dev", env: Any = (), **settings: Any
) -> ServerSpec:
    """A server that is the fixture with these flags; legacy unless they or `era` say otherwise."""
    command, *args = argv(*flags)
    settings.setdefault("era", "legacy")
    target = StdioCommand(command, tuple(args), tuple(dict(env).items()))
    return ServerSpec(ServerAddress(toolbox, server), target, **settings)


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
    """The identifier of a tool, for `Workbench.use_tool`."""
    return ToolIdentifier(toolbox, server, name)


def entry(*flags: str, **more: Any) -> dict[str, Any]:
    """A server entry of a configuration file, for the fixture; legacy unless told otherwise."""
    command, *args = argv(*flags)
    return {"command": command, "args": list(args), "era": "legacy", **more}


def program_entry(script: str, *args: str, **more: Any) -> Json:
    """The entry of a server that is this program, which needs the standard library alone."""
    return {"command": sys.executable, "args": [*lean(script, *args)], **more}


def config_file(folder: Path, servers: dict[str, Any], **more: Any) -> Path:
    """A file with these servers in the toolbox `dev`."""
    dev = {"description": "Development toolbox", "mcpServers": servers}
    return write_config(folder, {"toolboxes": {"dev": dev}, **more})


def demo_server(name: str = "basics", **more: Any) -> Json:
    """The entry of a server of the demo that the program brings along."""
    return {"command": sys.executable, "args": ["-m", "mcp_workbench.demo", name], **more}


def write_config(folder: Path, config: Json | str, name: str = "workbench-config.json") -> Path:
    """This configuration in this folder, readable by its owner alone."""
    path = folder / name
    path.write_text(config if isinstance(config, str) else json.dumps(config, indent=2), "utf-8")
    path.chmod(0o600)
    return path


def toolbox(name: str = "dev", /, **servers: Json) -> Json:
    """A configuration with one toolbox."""
    return {"toolboxes": {name: {"mcpServers": servers}}}


def url_spec(url: str, server: str = "s", **settings: Any) -> ServerSpec:
    """A server at this URL."""
    headers = settings.pop("headers", (("X-Token", "${TOKEN}"),))
    target = HttpEndpoint(url, headers, settings.pop("transport", "http"))
    settings.setdefault("connect_timeout", 10.0)
    return ServerSpec(ServerAddress("dev", server), target, **settings)


def url_entry(url: str, **more: Any) -> dict[str, Any]:
    """A server entry for a URL."""
    return {"url": url, "connectTimeout": 15, **more}


def offers_entry(name: str, era: str, *flags: str) -> dict[str, Any]:
    """The entry of a server that offers prompts and resources too, of this era."""
    words = [name, *(["modern"] if era == "modern" else []), *flags]
    return {"command": sys.executable, "args": [*lean(OFFERS, *words)], "era": era}


def apps_entry(name: str, era: str, *flags: str, **more: Any) -> dict[str, Any]:
    """The entry of a server with an app, of this era."""
    words = [name, *(["modern"] if era == "modern" else []), *flags]
    return {"command": sys.executable, "args": [*lean(APPS, *words)], "era": era, **more}


def quick_entry(name: str, *words: str, **more: Any) -> dict[str, Any]:
    """The entry of the server for long runs."""
    args = [*lean(QUICK, name, *words)]
    return {"command": sys.executable, "args": args, "era": "legacy", **more}
