"""Our own tools that call no server: `search_tools` and `read_result`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from mcp_workbench.core.names import ServerAddress
from mcp_workbench.core.spec import Detail, Snapshot
from mcp_workbench.gateway.result_budget import (
    KeptResults,
    how_to_read_on,
    shortened,
    text_blocks,
)
from mcp_workbench.schema.signature import name_text, one_line
from mcp_workbench.search.query import MOST_NAMED, FoundTool, Query, SearchResult, Siblings
from mcp_workbench.server.parse import NonEmpty, read_last, whole_number, wrong_reading
from mcp_workbench.server.text import name_list, text_result
from mcp_workbench.server.tool_definitions import MOST_HITS
from mcp_workbench.server.tool_text import (
    ServerTools,
    ToolTexts,
    describe_tools,
    how_to_call,
    omission_note,
    tool_lines,
)

if TYPE_CHECKING:
    from mcp_workbench.gateway.views import View

USUAL_HITS = 5
MOST_SIBLINGS = 20  # names of each server
MOST_STRANGE = 8  # words without a match
AROUND = 200  # characters before a match in a long result
_NAMES = 400  # characters of toolbox or server names
_REASON = 120  # characters; open_toolbox shows all of them


# search_tools


class _Search(msgspec.Struct):
    query: NonEmpty
    toolbox: NonEmpty | None = None
    server: NonEmpty | None = None
    limit: Any = None
    detail: Detail | None = None


_read_search = msgspec.json.Decoder(_Search).decode


async def search_tools(view: View, arguments: msgspec.Raw) -> bytes:
    """The result of `search_tools`. Raises InvalidCall, or NotFound for an unknown toolbox or server."""
    from mcp_workbench.gateway.search import find  # `cost` formats results without an event loop

    search = _read(arguments)
    limit = search.limit or USUAL_HITS
    result = await find(view, Query(search.query, search.toolbox or "", search.server or "", limit))
    detail = search.detail or "signature"
    texts = await describe_tools((hit.definition for hit in result.tools), detail)
    return text_result(search_text(result, detail, view.snapshot, texts))


def _read(arguments: msgspec.Raw) -> _Search:
    bounds = {"limit": (1, MOST_HITS)}
    try:
        search = read_last(_read_search, arguments)
    except msgspec.ValidationError:
        raise wrong_reading(arguments, "query", bounds) from None
    if search.limit is not None:
        search.limit = whole_number(search.limit, 1)
        if search.limit is None or search.limit > MOST_HITS:
            raise wrong_reading(arguments, "query", bounds)
    return search


def search_text(
    result: SearchResult, detail: Detail, snapshot: Snapshot, known: ToolTexts | None = None
) -> str:
    """Hits to call at once, names of their neighbours, and what the search could not cover.

    The same tools give the same text. `known` are descriptions that were made before.
    """
    if not result.tools:
        return "\n".join([_nothing(result, snapshot), *_unread(result)])
    lines, lossy = tool_lines(_by_server(result.tools), detail, known)
    lines += [_twins(hit) for hit in result.tools if hit.twins]
    lines += [_neighbours(siblings) for siblings in result.siblings]
    lines += _doubts(result) + _left_out(result)
    return "\n".join(
        [_head(result, detail), *lines, *_unread(result), *omission_note(lossy, detail)]
    )


def _head(result: SearchResult, detail: Detail) -> str:
    tools = "tool" if result.total == 1 else "tools"
    return f"{len(result.tools)} of {result.total} {tools}, {how_to_call(detail)}"


def _by_server(tools: Iterable[FoundTool]) -> list[ServerTools]:
    """Hits grouped by server; the server of the best hit comes first."""
    servers: dict[ServerAddress, list[FoundTool]] = {}
    for hit in tools:
        servers.setdefault(hit.tool.address, []).append(hit)
    return [(address, tuple(hit.definition for hit in hits)) for address, hits in servers.items()]


def _twins(hit: FoundTool) -> str:
    return f"{name_text(hit.tool.tool)} is also at {', '.join(map(str, hit.twins))}"


def _neighbours(siblings: Siblings) -> str:
    names = siblings.names
    rest = f" (+{len(names) - MOST_SIBLINGS})" if len(names) > MOST_SIBLINGS else ""
    shown = ", ".join(map(name_text, names[:MOST_SIBLINGS]))
    return f"also in {siblings.address}: {shown}{rest}"


def _doubts(result: SearchResult) -> list[str]:
    lines = ["weak match: perhaps nothing here does this"] if result.weak else []
    if result.strange:
        lines.append(f"in no tool: {_words(result)}")
    return lines


def _left_out(result: SearchResult) -> list[str]:
    if not result.left_out:
        return []
    names = name_list(map(str, result.left_out), _NAMES)
    return [f"not shown, {MOST_NAMED} at a time: {names}"]


def _nothing(result: SearchResult, snapshot: Snapshot) -> str:
    words = f" None has: {_words(result)}." if result.strange else ""
    boxes = name_list(snapshot.toolboxes, _NAMES)
    tools = "tool" if result.total == 1 else "tools"
    if result.wordless:
        return (
            "The query has no word to look for: common words and signs do not count. "
            f"{result.total} {tools} known. Toolboxes: {boxes}"
        )
    return f"No tool fits, of {result.total} {tools} that are known.{words} Toolboxes: {boxes}"


def _words(result: SearchResult) -> str:
    shown = ", ".join(one_line(word) for word in result.strange[:MOST_STRANGE])
    more = len(result.strange) - MOST_STRANGE
    return f"{shown} (+{more})" if more > 0 else shown


def _unread(result: SearchResult) -> list[str]:
    """Servers whose tools were not searched: an empty result does not mean that they have none."""
    unknown = result.unknown
    failed = [f"{server.address} ({_reason(server.reason)})" for server in unknown if server.reason]
    starting = [str(server.address) for server in unknown if server.starting]
    others = [str(s.address) for s in unknown if not (s.starting or s.reason)]
    groups = {
        "not available": failed,
        "being read, for the next search": starting,
        "not read yet (open_toolbox reads them)": others,
    }
    return [f"{state}: {name_list(names, _NAMES)}" for state, names in groups.items() if names]


def _reason(text: str) -> str:
    text = one_line(text)
    return text if len(text) <= _REASON else f"{text[: _REASON - 1].rstrip()}…"


# read_result


class _Reading(msgspec.Struct):
    handle: NonEmpty
    offset: Any = None  # the beginning
    length: Any = None  # the budget of the result
    find: NonEmpty | None = None


_read_reading = msgspec.json.Decoder(_Reading).decode


def read_result(store: KeptResults, owner: object, arguments: msgspec.Raw) -> bytes:
    """The requested part of a result that was cut, in a block of its own, and where to read on."""
    try:
        reading = read_last(_read_reading, arguments)
    except msgspec.ValidationError:
        reading = None
    offset = whole_number(0 if reading is None or reading.offset is None else reading.offset, 0)
    length = whole_number(1 if reading is None or reading.length is None else reading.length, 1)
    if reading is None or offset is None or length is None:
        raise wrong_reading(arguments, "handle", {"offset": (0, 0), "length": (1, 0)})
    kept = store.kept(owner, reading.handle)
    start = min(offset, len(kept.text))
    if reading.find is not None:
        at = kept.text.find(reading.find, start)
        if at < 0:
            return text_blocks(
                [f"'{shortened(reading.find)}' is not in this result after character {start}"]
            )
        start = max(at - AROUND, start)
    elif start == len(kept.text):
        return text_blocks(
            [f"The result ends at character {start}: there is nothing from {offset} on"]
        )
    end = min(start + (kept.budget if reading.length is None else length), len(kept.text))
    place = f"characters {start} to {end} of {len(kept.text)}"
    rest = (
        how_to_read_on(len(kept.text) - end, reading.handle, end)
        if end < len(kept.text)
        else "the end"
    )
    return text_blocks([kept.text[start:end], f"{place}; {rest}"])
