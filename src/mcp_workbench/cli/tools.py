"""`tools`: what the toolboxes hold, as the servers told it last time or tell it now."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from mcp_workbench.cli.recalled import news, recalled_or_asked, tell_recalled
from mcp_workbench.cli.render import Trouble, plain, say, say_json, table, told
from mcp_workbench.cli.settings import DONE, UNREACHABLE, Settings, global_options
from mcp_workbench.cli.signature import read_only, signature, tokens
from mcp_workbench.core.catalogue import ToolInfo
from mcp_workbench.core.errors import InvalidCall, empty_component, no_tool
from mcp_workbench.core.names import ServerAddress, ToolIdentifier
from mcp_workbench.core.reports import ServerReport
from mcp_workbench.core.spec import Snapshot

WIDEST = 64  # characters of a signature; `--schema` has all of it
_CLAIMS = {True: "yes", False: "no", None: "-"}


@click.command()
@click.argument("which", metavar="[TOOLBOX[/SERVER[/TOOL]]]", default="")
@click.option("--schema", is_flag=True, help="Whole definitions, as the servers give them.")
@click.option("--refresh", is_flag=True, help="Ask the servers, whatever is known of them.")
@global_options
@click.pass_obj
def tools(settings: Settings, which: str, *, schema: bool, refresh: bool) -> int:
    """Show what the toolboxes hold.

    Servers that were connected within a day are not started: what they offered then is shown.

    ≈TOKENS is about what a definition costs a model: its bytes divided by four. READ-ONLY is what
    the tool claims of itself, - where it claims nothing.
    """
    snapshot = settings.snapshot()
    toolbox, server, tool = _parts(which)
    addresses = _addresses(snapshot, toolbox, server)
    reports = recalled_or_asked(settings, snapshot, addresses, refresh=refresh)
    found = [info for report in reports for info in report.tools if tool in ("", info.name)]
    if tool and not found and not reports[0].reason:
        known = [info.name for info in reports[0].tools]
        raise no_tool(ToolIdentifier(toolbox, server, tool), known)
    if settings.json:
        say_json(_document(found, reports))
    elif schema:
        say_json([info.definition for info in found], pretty=True)
    else:
        _tell(settings, found, alone=bool(tool))
        tell_recalled(settings, reports)
    return _status(settings, reports)


def _parts(which: str) -> tuple[str, str, str]:
    parts = which.removesuffix("/").split("/", 2)
    for field, part in zip(("toolbox", "server", "tool"), parts, strict=False):
        if not part and which:
            raise InvalidCall(empty_component(field))
    toolbox, server, tool = (*parts, "", "")[:3]
    return toolbox, server, tool


def _addresses(snapshot: Snapshot, toolbox: str, server: str) -> list[ServerAddress]:
    boxes = [snapshot.toolbox(toolbox)] if toolbox else list(snapshot.toolboxes.values())
    if server:
        return [boxes[0].server(server).address]
    return [spec.address for box in boxes for spec in box.servers.values()]


def _tell(settings: Settings, found: list[ToolInfo], *, alone: bool) -> None:
    if not found:
        return
    head = ("SERVER", "TOOL", "READ-ONLY", "≈TOKENS")
    rows = [head, *map(_row, found)]
    for line in table(rows, right=frozenset({3})):
        say(line)
    if alone:
        say(f"\n{plain(found[0].description)}\n{plain(signature(found[0]))}")
    elif settings.talkative:
        total = sum(map(tokens, found))
        count = f"{len(found)} tool{'' if len(found) == 1 else 's'}"
        say(f"{count}, ≈{total} tokens for a host that lists them all", err=True)


def _row(info: ToolInfo) -> tuple[str, ...]:
    text = signature(info, types=False)
    short = text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"
    server = f"{info.toolbox_name}/{info.source_server}"
    return (server, short, _CLAIMS[read_only(info)], str(tokens(info)))


def _document(found: list[ToolInfo], reports: list[ServerReport]) -> dict[str, Any]:
    unreached = [report for report in reports if report.reason]
    return {
        "tools": [
            {
                "toolbox": info.toolbox_name,
                "server": info.source_server,
                "tool": info.name,
                "readOnly": read_only(info),
                "tokens": tokens(info),
                "definition": info.definition,
            }
            for info in found
        ],
        "unavailable": [
            {"toolbox": r.address.toolbox, "server": r.address.server, "reason": r.reason}
            for r in unreached
        ],
        "cached": [
            {"toolbox": r.address.toolbox, "server": r.address.server, "seconds": round(r.age)}
            for r in reports
            if r.age is not None
        ],
        "changed": [
            {
                "toolbox": r.address.toolbox,
                "server": r.address.server,
                **msgspec.to_builtins(r.change),
            }
            for r in news(reports)
        ],
    }


def _status(settings: Settings, reports: list[ServerReport]) -> int:
    """Tell which servers are missing from the answer."""
    unreached = [report for report in reports if report.reason]
    for report in unreached if not settings.json else ():
        message = f"server '{report.address.server}' in toolbox '{report.address.toolbox}' is not available"
        trouble = Trouble("WB-CONN-101", message, cause=(report.reason,))
        say(told(trouble), err=True, color=settings.color)
    return UNREACHABLE if unreached else DONE
