"""What an answer of `search_tools` costs: some are made, one for each of some tools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mcp_workbench.core.catalogue import Catalogue, Definition, read_object
from mcp_workbench.core.reports import OpenedToolbox
from mcp_workbench.core.signature import first_sentence
from mcp_workbench.core.spec import Snapshot
from mcp_workbench.core.tokens import tokens
from mcp_workbench.search.index import Index
from mcp_workbench.search.query import Knowledge, KnownServer, Query, Search
from mcp_workbench.search.words import Words
from mcp_workbench.surface.search_tools import told

MOST_ASKED = 100  # searches for the tools of one toolbox


def search_costs(snapshot: Snapshot, boxes: Sequence[OpenedToolbox]) -> dict[str, list[int]]:
    """Of each toolbox: tokens of the answers to what its tools say that they are for."""
    known = {one.spec.address: one for box in boxes for one in _known(box)}
    words = Words()
    index = Index(words)
    for address, one in known.items():
        index.put(address, one.visible(), one.about, weigh=False)
    index.fill()
    search = Search(index, Knowledge(known, ()), words, None)
    return {
        box.spec.name: [
            tokens(told(search.find(Query(wish)), "signature", snapshot)) for wish in _wishes(box)
        ]
        for box in boxes
    }


def _known(box: OpenedToolbox) -> Iterator[KnownServer]:
    for server in box.servers:
        spec = box.spec.servers[server.address.server]
        yield KnownServer(spec, box.spec, Catalogue({tool.name: tool for tool in server.tools}))


def _wishes(box: OpenedToolbox) -> list[str]:
    """What somebody may ask for: the first sentences of tools, of very many every second or so."""
    tools = [tool for server in box.servers for tool in server.tools]
    return [_wish(tool) for tool in tools[:: -(-len(tools) // MOST_ASKED) or 1]]


def _wish(tool: Definition) -> str:
    description = read_object(tool.raw).get("description")
    return first_sentence(description if isinstance(description, str) else "") or tool.name
