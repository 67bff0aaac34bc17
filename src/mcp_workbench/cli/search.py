"""`search`: finds tools by what they do, with the ranking and the text that an agent gets."""

from __future__ import annotations

from typing import Any

import click

from mcp_workbench.cli.servers import run
from mcp_workbench.cli.settings import DONE, FAILED, Settings, global_options
from mcp_workbench.cli.terminal import ProgressLine, plain, say, say_json
from mcp_workbench.core.spec import Detail, Snapshot
from mcp_workbench.gateway.gateway import Gateway
from mcp_workbench.gateway.search import find, known_tools
from mcp_workbench.search.query import Query, SearchResult
from mcp_workbench.server.own_tools import search_text
from mcp_workbench.server.tool_definitions import MOST_HITS


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
    snapshot = settings.snapshot()
    settings.open_log()
    line = ProgressLine(wanted=settings.talkative)
    try:
        results = run(_results(snapshot, Query(" ".join(words), toolbox, server, limit), line))
    finally:
        line.clear()
    if settings.json:
        say_json(_document(results))
    else:
        say(plain(search_text(results, detail, snapshot)))
    return DONE if results.tools else FAILED


async def _results(snapshot: Snapshot, query: Query, line: ProgressLine) -> SearchResult:
    async with Gateway(snapshot) as gateway:
        view = gateway.view
        unknown = [s for s in known_tools(view).unknown if query.covers(s.address)]
        if unknown:
            line.show(f"reading {', '.join(str(spec.address) for spec in unknown)}")
            await view.connections(unknown)
        return await find(view, query)


def _document(results: SearchResult) -> dict[str, Any]:
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
        "not_read": [str(hit.address) for hit in results.unknown],
    }
