"""`cost`: the tokens that the toolboxes cost a model, beside listing every tool directly."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import click
import msgspec

from mcp_workbench.cli.completion import complete_toolbox
from mcp_workbench.cli.servers import cached_or_asked, refresh_option, show_cached, show_unreached
from mcp_workbench.cli.settings import Settings, attach_option, global_options
from mcp_workbench.cli.terminal import about, number, say, say_json, table
from mcp_workbench.core.apps import is_for_model
from mcp_workbench.core.catalogue import (
    Catalogue,
    Definition,
    OpenedServer,
    OpenedToolbox,
    ServerReport,
    ToolInfo,
    estimate_tokens,
    listed_tokens,
    read_object,
)
from mcp_workbench.core.spec import Snapshot, ToolboxSpec
from mcp_workbench.schema.signature import first_sentence
from mcp_workbench.search.index import Index, Search
from mcp_workbench.search.queries import Query, SearchableServer, SearchScope, Words
from mcp_workbench.server.example_call import example_call
from mcp_workbench.server.flat_tools import flat_definitions
from mcp_workbench.server.own_definitions import own_definitions
from mcp_workbench.server.own_tools import opened_text, search_text
from mcp_workbench.server.session_tools import opened_json
from mcp_workbench.server.text import instructions
from mcp_workbench.upstream.cache import CatalogueCache

Json = dict[str, Any]

RULE = (
    "words, digits and runs of signs, counted without a vocabulary; within a few percent of o200k"
)
MAX_QUERIES = 100  # searches for the tools of one toolbox


def _flat(opened: OpenedToolbox) -> str:
    return b",".join(flat_definitions(opened)).decode()


# What a model reads when it opens a toolbox, at each level of detail.
LEVELS: dict[str, dict[str, Callable[[OpenedToolbox], str]]] = {
    "proxy": {
        "names": partial(opened_text, detail="names"),
        "signature": partial(opened_text, detail="signature"),
        "full": partial(opened_text, detail="full"),
        "schema": opened_json,
    },
    "dynamic": {"listed": _flat},
}


@click.command()
@click.argument("toolbox", metavar="[TOOLBOX]", default="", shell_complete=complete_toolbox)
@refresh_option("COST")
@attach_option("COST")
@global_options
@click.pass_obj
def cost(settings: Settings, toolbox: str, *, refresh: bool) -> int:
    """Show what the toolboxes cost a model, in tokens.

    DIRECT is what a host's model reads in every request where each server is listed by itself:
    name, description and schema of every tool. OPENED is what it reads once, when it opens the
    toolbox, at each level of detail; SEARCHED the answer to a search for one of the tools, on
    average. The last line is what it reads in every request. With TOOLBOX, its servers one by one.

    All figures are estimates (words and signs, counted without a vocabulary). Servers that were
    connected within a day are not started. Exit status 4 if a server can't be reached; the others
    are counted.

    \b
    Examples:
      mcp-workbench cost
      mcp-workbench cost demo
      mcp-workbench cost --json
    """
    snapshot = settings.snapshot()
    boxes = [snapshot.toolbox(toolbox)] if toolbox else list(snapshot.toolboxes.values())
    asked = [spec.address for box in boxes for spec in box.servers.values()]
    reports = cached_or_asked(settings, snapshot, asked, refresh=refresh)
    counted = _counted(snapshot, boxes, reports)
    document = _document(snapshot, counted, reports)
    if settings.json:
        say_json(document)
    else:
        _print(document, servers=bool(toolbox))
        show_cached(settings, reports)
    return show_unreached(settings, reports)


def _counted(
    snapshot: Snapshot, boxes: list[ToolboxSpec], reports: list[ServerReport]
) -> list[Json]:
    reached = [r for r in reports if not r.reason]
    opened = [OpenedToolbox(box, tuple(_servers(box, reached)), ()) for box in boxes]
    searches = search_costs(snapshot, opened) if snapshot.tool_mode == "proxy" else {}
    return [_one(snapshot, box, reached, searches.get(box.spec.name, [])) for box in opened]


def _one(
    snapshot: Snapshot, opened: OpenedToolbox, reached: list[ServerReport], searches: list[int]
) -> Json:
    box = opened.spec
    servers = [
        {"server": r.address.server, "tools": len(_for_model(r)), "direct": _direct(r)}
        for r in reached
        if r.address.toolbox == box.name
    ]
    levels = LEVELS[snapshot.tool_mode]
    return {
        "toolbox": box.name,
        "tools": sum(int(server["tools"]) for server in servers),
        "direct": sum(int(server["direct"]) for server in servers),
        "detail": box.detail,
        "opening": {level: estimate_tokens(render(opened)) for level, render in levels.items()},
        "searching": _summed_up(searches),
        "servers": servers,
    }


def _summed_up(answers: list[int]) -> Json | None:
    if not answers:
        return None
    mean = round(sum(answers) / len(answers))
    return {"answers": len(answers), "mean": mean, "most": max(answers)}


def _direct(report: ServerReport) -> int:
    return sum(listed_tokens(tool.definition) for tool in _for_model(report))


def _for_model(report: ServerReport) -> list[ToolInfo]:
    """Returns the tools that a model reads: those for apps alone cost nothing."""
    return [t for t in report.tools if is_for_model(msgspec.json.encode(t.definition))]


def _servers(box: ToolboxSpec, reports: list[ServerReport]) -> Iterator[OpenedServer]:
    for report in reports:
        if report.address.toolbox == box.name:
            tools = (Definition(t.name, msgspec.json.encode(t.definition)) for t in report.tools)
            yield OpenedServer(report.address, tuple(tools)).for_model()


def _document(snapshot: Snapshot, counted: list[Json], reports: list[ServerReport]) -> Json:
    menu_cost = sum(map(listed_tokens, own_definitions(snapshot)))
    example = example_call(snapshot, CatalogueCache(os.environ).recall)
    instruction_cost = estimate_tokens(instructions(snapshot, example=example))
    return {
        "unit": "tokens",
        "rule": RULE,
        "toolMode": snapshot.tool_mode,
        "everyRequest": {
            "direct": sum(box["direct"] for box in counted),
            "workbench": menu_cost + instruction_cost,
            "menu": menu_cost,
            "instructions": instruction_cost,
        },
        "toolboxes": counted,
        "unavailable": [
            {"toolbox": r.address.toolbox, "server": r.address.server, "reason": r.reason}
            for r in reports
            if r.reason
        ],
    }


def _print(document: Json, *, servers: bool) -> None:
    boxes: list[Json] = document["toolboxes"]
    first, *others = levels = list(LEVELS[document["toolMode"]])
    searched = ["SEARCHED"] if document["toolMode"] == "proxy" else []
    rows: list[tuple[str, ...]] = [
        ("TOOLBOX", "TOOLS", "DIRECT", f"OPENED: {first}", *others, *searched)
    ]
    for box in boxes:
        opening = (about(box["opening"][level]) for level in levels)
        answer = [about(box["searching"]["mean"]) if box["searching"] else "-"] if searched else []
        rows.append((box["toolbox"], number(box["tools"]), about(box["direct"]), *opening, *answer))
        for server in box["servers"] if servers else ():
            blank = [""] * (len(levels) + len(searched))
            rows.append(
                (f"  {server['server']}", number(server["tools"]), about(server["direct"]), *blank)
            )
    for line in table(rows, right=frozenset(range(1, len(rows[0])))):
        say(line)
    every = document["everyRequest"]
    say(
        f"\nin every request: {about(every['direct'])} tokens with each tool listed directly, "
        f"{about(every['workbench'])} with the workbench (menu {about(every['menu'])}, "
        f"instructions {about(every['instructions'])})"
    )


def search_costs(snapshot: Snapshot, boxes: Sequence[OpenedToolbox]) -> dict[str, list[int]]:
    """Returns, for each toolbox, the tokens of search results for the purposes of its tools."""
    known = {server.spec.address: server for box in boxes for server in _known(box)}
    words = Words()
    index = Index(words)
    for address, server in known.items():
        index.put(address, server.visible(), server.about, weigh=False)
    index.fill()
    search = Search(index, SearchScope(known, ()), words, None)
    return {
        box.spec.name: [
            estimate_tokens(search_text(search.find(Query(query)), "signature", snapshot))
            for query in _queries(box)
        ]
        for box in boxes
    }


def _known(box: OpenedToolbox) -> Iterator[SearchableServer]:
    for server in box.servers:
        spec = box.spec.servers[server.address.server]
        yield SearchableServer(
            spec, box.spec, Catalogue({tool.name: tool for tool in server.tools})
        )


def _queries(box: OpenedToolbox) -> list[str]:
    """Returns queries: the first sentences of tools, a sample of them if there are very many."""
    tools = [tool for server in box.servers for tool in server.tools]
    return [_query(tool) for tool in tools[:: -(-len(tools) // MAX_QUERIES) or 1]]


def _query(tool: Definition) -> str:
    description = read_object(tool.raw).get("description")
    return first_sentence(description if isinstance(description, str) else "") or tool.name
