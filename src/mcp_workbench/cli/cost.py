"""`cost`: what the toolboxes cost a model, beside listing every tool directly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import msgspec

from mcp_workbench.cli.completing import complete_toolbox
from mcp_workbench.cli.render import say, say_json, table
from mcp_workbench.cli.settings import Settings, global_options
from mcp_workbench.cli.survey import survey
from mcp_workbench.cli.unreached import tell_unreached
from mcp_workbench.core.catalogue import Definition, ToolInfo
from mcp_workbench.core.reports import OpenedServer, OpenedToolbox, ServerReport
from mcp_workbench.core.spec import Snapshot, ToolboxSpec
from mcp_workbench.core.tokens import tokens
from mcp_workbench.surface.flat_tools import flat_definitions
from mcp_workbench.surface.menu import Menu
from mcp_workbench.surface.meta_tools import opened_json
from mcp_workbench.surface.texts import instructions
from mcp_workbench.workbench import Workbench

Json = dict[str, Any]

RULE = (
    "words, digits and runs of signs, counted without a vocabulary; within a few percent of o200k"
)


def _flat(opened: OpenedToolbox) -> str:
    return b",".join(flat_definitions(opened)).decode()


# What a model reads when it opens a toolbox, at each level of detail that there is.
LEVELS: dict[str, dict[str, Callable[[OpenedToolbox], str]]] = {
    "proxy": {"schema": opened_json},
    "dynamic": {"listed": _flat},
}


@click.command()
@click.argument("toolbox", metavar="[TOOLBOX]", default="", shell_complete=complete_toolbox)
@global_options
@click.pass_obj
def cost(settings: Settings, toolbox: str) -> int:
    """Show what the toolboxes cost a model, in tokens.

    DIRECT is what a host's model reads in every request where each server is listed by itself:
    name, description and schema of every tool. The next columns are what it reads once, when it
    opens the toolbox, at each level of detail. Below stands what it reads in every request.
    With TOOLBOX, its servers one by one.

    All figures are estimates (words and signs, counted without a vocabulary). Exit status 4 if a
    server can't be reached; the others are counted.

    \b
    Examples:
      mcp-workbench cost
      mcp-workbench cost demo
      mcp-workbench cost --json
    """
    snapshot = settings.snapshot()
    boxes = [snapshot.toolbox(toolbox)] if toolbox else list(snapshot.toolboxes.values())
    asked = [spec.address for box in boxes for spec in box.servers.values()]
    reports = survey(settings, snapshot, asked)
    counted = [_counted(snapshot, box, reports) for box in boxes]
    document = _document(snapshot, counted, reports)
    if settings.json:
        say_json(document)
    else:
        _tell(document, servers=bool(toolbox))
    return tell_unreached(settings, reports)


def _counted(snapshot: Snapshot, box: ToolboxSpec, reports: list[ServerReport]) -> Json:
    mine = [r for r in reports if r.address.toolbox == box.name and not r.reason]
    servers = [
        {"server": r.address.server, "tools": len(r.tools), "direct": sum(map(direct, r.tools))}
        for r in mine
    ]
    found = OpenedToolbox(box, tuple(map(_opened, mine)), ())
    levels = LEVELS[snapshot.tool_mode]
    return {
        "toolbox": box.name,
        "tools": sum(len(r.tools) for r in mine),
        "direct": sum(int(server["direct"]) for server in servers),
        "opening": {level: tokens(render(found)) for level, render in levels.items()},
        "servers": servers,
    }


def direct(tool: ToolInfo) -> int:
    """What a host's model reads of a tool: its name, its description, its schema."""
    read = {"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema}
    return tokens(msgspec.json.encode(read).decode())


def _opened(report: ServerReport) -> OpenedServer:
    tools = (Definition(t.name, msgspec.json.encode(t.definition)) for t in report.tools)
    return OpenedServer(report.address, tuple(tools))


def _document(snapshot: Snapshot, counted: list[Json], reports: list[ServerReport]) -> Json:
    menu: Json = msgspec.json.decode(Menu(Workbench(snapshot), ()).static_list(modern=False))
    keys = ("name", "description", "inputSchema")
    shown = [{key: tool.get(key) for key in keys} for tool in menu["tools"]]
    own = tokens(msgspec.json.encode(shown).decode()) + tokens(instructions(snapshot))
    return {
        "unit": "tokens",
        "rule": RULE,
        "toolMode": snapshot.tool_mode,
        "everyRequest": {"direct": sum(box["direct"] for box in counted), "workbench": own},
        "toolboxes": counted,
        "unavailable": [
            {"toolbox": r.address.toolbox, "server": r.address.server, "reason": r.reason}
            for r in reports
            if r.reason
        ],
    }


def _tell(document: Json, *, servers: bool) -> None:
    boxes: list[Json] = document["toolboxes"]
    levels = list(LEVELS[document["toolMode"]])
    rows = [("TOOLBOX", "TOOLS", "DIRECT", *(f"OPENED: {level}" for level in levels))]
    for box in boxes:
        opening = (_about(box["opening"][level]) for level in levels)
        rows.append((box["toolbox"], str(box["tools"]), _about(box["direct"]), *opening))
        for one in box["servers"] if servers else ():
            blank = [""] * len(levels)
            rows.append((f"  {one['server']}", str(one["tools"]), _about(one["direct"]), *blank))
    for line in table(rows, right=frozenset(range(1, 3 + len(levels)))):
        say(line)
    every = document["everyRequest"]
    say(
        f"\nin every request: {_about(every['direct'])} tokens with each tool listed directly, "
        f"{_about(every['workbench'])} with the workbench"
    )


def _about(count: int) -> str:
    return f"≈ {count:,}".replace(",", " ")
