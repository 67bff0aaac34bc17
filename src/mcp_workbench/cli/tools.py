"""`tools` and `search`: the tools of the toolboxes, listed or ranked by what they do.

`tools` works from the cache where it can; what `search` needs besides is loaded when it runs.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec

from mcp_workbench.cli.completion import complete_tool
from mcp_workbench.cli.servers import (
    cached_or_asked,
    news,
    refresh_option,
    show_cached,
    show_unreached,
    with_last_lists,
)
from mcp_workbench.cli.settings import DONE, FAILED, Settings, global_options, variable
from mcp_workbench.cli.terminal import (
    ProgressLine,
    about,
    cut,
    number,
    plain,
    say,
    say_json,
    screen_width,
    table,
)
from mcp_workbench.core.catalogue import ServerReport, ToolInfo, listed_tokens
from mcp_workbench.core.errors import InvalidCall, empty_component, no_tool
from mcp_workbench.core.spec import Detail, ServerAddress, Snapshot, ToolIdentifier
from mcp_workbench.schema.document import as_object
from mcp_workbench.schema.signature import AMPLE, arguments_shape, first_sentence, signature_within

if TYPE_CHECKING:
    from mcp_workbench.search.queries import Query, SearchResult

WIDEST = 64  # characters of a signature; `--schema` has all of it
NARROWEST = 20  # the same, however narrow the terminal is
GAP = 2  # columns between two of a table
MOST_HITS = 20  # as `search_tools` allows; its module is slow to load
_NAMED = "write TOOLBOX, TOOLBOX/SERVER or TOOLBOX/SERVER/TOOL; mcp-workbench tools lists them all"
_CLAIMS = {True: "yes", False: "no", None: "-"}


@click.command()
@click.argument(
    "which", metavar="[TOOLBOX[/SERVER[/TOOL]]]", default="", shell_complete=complete_tool
)
@click.option(
    "--schema",
    is_flag=True,
    help="Whole definitions, as the servers give them.",
    **variable("TOOLS_SCHEMA"),
)
@refresh_option("TOOLS")
@global_options
@click.pass_obj
def tools(settings: Settings, which: str, *, schema: bool, refresh: bool) -> int:
    """Show what the toolboxes hold.

    Servers that were connected within a day are not started: the list is from the cache. For a server
    that can't be reached, the last list is shown, however old it is.

    Each server is shown with its state: ready, or why not. ≈TOKENS is about what a tool's definition
    costs a model if it is listed directly. READ-ONLY is what the tool declares, - if it declares
    nothing. Lines are as wide as the terminal. Exit status 4 if a server can't be reached.

    \b
    Examples:
      mcp-workbench tools
      mcp-workbench tools demo/basics
      mcp-workbench tools demo/basics/add --schema
    """
    snapshot = settings.snapshot()
    toolbox, server, tool = _parts(which)
    addresses = _addresses(snapshot, toolbox, server)
    reports = cached_or_asked(settings, snapshot, addresses, refresh=refresh)
    if not refresh:
        reports = with_last_lists(snapshot, reports)
    infos = [info for report in reports for info in report.tools if tool in ("", info.name)]
    if tool and not infos and not reports[0].reason:
        known = [info.name for info in reports[0].tools]
        raise no_tool(ToolIdentifier(toolbox, server, tool), known)
    if settings.json:
        say_json(_tools_document(infos, reports))
    elif schema:
        say_json([info.definition for info in infos], pretty=True)
    else:
        _print(settings, infos, alone=bool(tool))
        _print_states(settings, reports)
        show_cached(settings, reports)
    return show_unreached(settings, reports)


def _parts(which: str) -> tuple[str, str, str]:
    parts = which.removesuffix("/").split("/", 2)
    for field, part in zip(("toolbox", "server", "tool"), parts, strict=False):
        if not part and which:
            raise InvalidCall(empty_component(field), hint=_NAMED)
    toolbox, server, tool = (*parts, "", "")[:3]
    return toolbox, server, tool


def _addresses(snapshot: Snapshot, toolbox: str, server: str) -> list[ServerAddress]:
    boxes = [snapshot.toolbox(toolbox)] if toolbox else list(snapshot.toolboxes.values())
    if server:
        return [boxes[0].server(server).address]
    return [spec.address for box in boxes for spec in box.servers.values()]


def _print(settings: Settings, infos: list[ToolInfo], *, alone: bool) -> None:
    if not infos:
        return
    for line in tool_lines(infos, screen_width()):
        say(line)
    if alone:
        say(f"\n{plain(infos[0].description)}\n{plain(signature(infos[0]))}")
    elif settings.talkative:
        total = sum(map(tokens, infos))
        count = f"{number(len(infos))} tool{'' if len(infos) == 1 else 's'}"
        say(f"{count}, {about(total)} tokens with each listed directly", err=True)


def tool_lines(infos: list[ToolInfo], width: int | None) -> list[str]:
    """Returns a line per tool, each of at most `width` columns; with None, descriptions are whole."""
    servers = [f"{info.toolbox_name}/{info.source_server}" for info in infos]
    sizes = [number(tokens(info)) for info in infos]
    claims = [_CLAIMS[read_only(info)] for info in infos]
    about_them = [first_sentence(info.description) for info in infos]
    used = max(map(len, (*servers, "SERVER"))) + max(map(len, (*sizes, "≈TOKENS")))
    room = None if width is None else width - used - len("READ-ONLY") - 4 * GAP
    wanted = WIDEST if room is None else room - max(map(len, about_them))
    widest = WIDEST if room is None else max(min(WIDEST, max(wanted, room // 2)), NARROWEST)
    signatures = [cut(signature(info, widest), widest) for info in infos]
    head = ("SERVER", "TOOL", "READ-ONLY", "≈TOKENS", "DESCRIPTION")
    rows = [head, *zip(servers, signatures, claims, sizes, about_them, strict=True)]
    lines = table(rows, right=frozenset({3}))
    return lines if width is None else [cut(line, width) for line in lines]


def _print_states(settings: Settings, reports: list[ServerReport]) -> None:
    """Prints the state of each server that was asked, on stderr."""
    # Without a terminal, each has been reported when it was ready.
    wanted = settings.talkative and sys.stderr.isatty()
    for report in (r for r in reports if r.age is None) if wanted else ():
        count = f"{number(len(report.tools))} tools, {number(report.hidden)} hidden"
        state = "not available" if report.reason else f"ready, {report.revision}, {count}"
        say(plain(f"{report.address}: {state}, {report.seconds:.1f} s"), err=True)


def _tools_document(infos: list[ToolInfo], reports: list[ServerReport]) -> dict[str, Any]:
    unreached = [report for report in reports if report.reason]
    return {
        "tools": [
            {
                "toolbox": info.toolbox_name,
                "server": info.source_server,
                "tool": info.name,
                "readOnly": read_only(info),
                "tokens": tokens(info),
                "characters": characters(info),
                "signature": signature(info),
                "definition": info.definition,
            }
            for info in infos
        ],
        "servers": [
            {
                "toolbox": r.address.toolbox,
                "server": r.address.server,
                "state": "failed" if r.reason else "ready",
                "revision": r.revision,
                "hidden": r.hidden,
                "processes": r.processes,
            }
            for r in reports
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


# Columns of the list


def signature(tool: ToolInfo, most: int = AMPLE) -> str:
    """Returns the signature that agents get, shortened if it has more characters than `most`."""
    return signature_within(most, tool.name, arguments_shape(tool.input_schema)).text


def tokens(tool: ToolInfo) -> int:
    """Returns an estimate of what the tool costs a model if it is listed directly, as in `cost`."""
    return listed_tokens(tool.definition)


def characters(tool: ToolInfo) -> int:
    """Returns the length of the definition as compact JSON."""
    return len(msgspec.json.encode(tool.definition).decode())


def read_only(tool: ToolInfo) -> bool | None:
    """Returns what the tool declares; None if it declares nothing."""
    hint = as_object(tool.definition.get("annotations")).get("readOnlyHint")
    return hint if isinstance(hint, bool) else None


# The search


@click.command()
@click.argument("words", metavar="QUERY...", nargs=-1, required=True)
@click.option("--toolbox", metavar="NAME", default="", help="Look in this toolbox only.")
@click.option("--server", metavar="NAME", default="", help="Look in servers of this name only.")
@click.option(
    "--limit",
    type=click.IntRange(1, MOST_HITS),
    default=5,
    show_default=True,
    help="How many tools to show.",
)
@click.option(
    "--detail",
    type=click.Choice(["names", "signature", "full", "schema"]),
    default="signature",
    show_default=True,
    help="How much to tell of each.",
)
@global_options
@click.pass_obj
def search(  # noqa: PLR0913 - each of them an option
    settings: Settings,
    words: tuple[str, ...],
    toolbox: str,
    server: str,
    limit: int,
    detail: Detail,
) -> int:
    """Find tools by what they do, ranked as an agent gets them.

    \b
    mcp-workbench search add two numbers
    mcp-workbench search demo/basics/add --detail full

    Servers whose tools are not known are started and asked. Exit status 1 if nothing fits.
    """
    from mcp_workbench.app import run_interruptible
    from mcp_workbench.search.queries import Query
    from mcp_workbench.server.own_tools import search_text

    snapshot = settings.snapshot()
    settings.open_log()
    line = ProgressLine(wanted=settings.talkative)
    try:
        query = Query(" ".join(words), toolbox, server, limit)
        results = run_interruptible(_search_results(snapshot, query, line))
    finally:
        line.clear()
    if settings.json:
        say_json(_search_document(results))
    else:
        say(plain(search_text(results, detail, snapshot)))
    return DONE if results.tools else FAILED


async def _search_results(snapshot: Snapshot, query: Query, line: ProgressLine) -> SearchResult:
    from mcp_workbench.gateway.tool_search import Reading, find
    from mcp_workbench.gateway.workbench import Gateway

    def report(_progress: int, _total: int, text: str) -> None:
        nonlocal reading
        reading = text

    reading, wait = "", snapshot.limits.open_wait
    async with Gateway(snapshot) as gateway:
        with line.waiting(lambda: reading):
            results = await find(gateway.view, query, Reading(report, lazy=True, wait=wait))
    # What is still being read ends with this command.
    late = f"no answer within {wait:g} s"
    unknown = (
        msgspec.structs.replace(server, starting=False, reason=late) if server.starting else server
        for server in results.unknown
    )
    return msgspec.structs.replace(results, unknown=tuple(unknown))


def _search_document(results: SearchResult) -> dict[str, Any]:
    return {
        "tools": [
            {
                "toolbox": hit.tool.toolbox,
                "server": hit.tool.server,
                "tool": hit.tool.tool,
                "score": round(hit.score, 4),
            }
            for hit in results.tools
        ],
        "siblings": [
            {"toolbox": s.address.toolbox, "server": s.address.server, "tools": list(s.names)}
            for s in results.siblings
        ],
        "looked_at": results.total,
        "strange_words": list(results.strange),
        "close_words": {word: list(words) for word, words in results.close.items()},
        "not_read": [str(hit.address) for hit in results.unknown],
    }
