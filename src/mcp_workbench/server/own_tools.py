"""Results of our own tools as text: `search_tools`, `read_result`, short forms of `open_toolbox`.

A tool is described at the requested level of detail, from untrusted input. Sessions load this module with the first
such request; `search` and `cost` print the same text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import msgspec

from mcp_workbench.core.catalogue import Definition, OpenedToolbox, read_object, tool_info_json
from mcp_workbench.core.errors import shown_name
from mcp_workbench.core.raw_json import TOO_COMPLEX
from mcp_workbench.core.spec import Detail, ServerAddress, Snapshot
from mcp_workbench.gateway.result_budget import (
    KeptResults,
    how_to_read_on,
    shortened,
    text_blocks,
)
from mcp_workbench.gateway.script_extra import has_scripts
from mcp_workbench.schema.signature import (
    MARK,
    arguments_shape,
    first_sentence,
    name_text,
    one_line,
    short_signature,
    spelled,
    value_shape,
    whole_signature,
)
from mcp_workbench.search.queries import MOST_NAMED, FoundTool, Query, SearchResult, Siblings
from mcp_workbench.server.own_definitions import MOST_HITS, USUAL_HITS, Json
from mcp_workbench.server.parse import NonEmpty
from mcp_workbench.server.text import TimeSlice, in_turns, name_list, text_result
from mcp_workbench.server.wrong_arguments import (
    LOWEST,
    read_last,
    refuse_long,
    wanted_part,
    whole_number,
    wrong_reading,
)

if TYPE_CHECKING:
    from mcp_workbench.gateway.skill_search import FoundSkill
    from mcp_workbench.gateway.views import View

ServerTools = tuple[ServerAddress, tuple[Definition, ...]]
MOST_SIBLINGS = 20  # names of each server
MOST_DESCRIBED = 200  # characters of a skill's description
MOST_STRANGE = 8  # words without a match
AROUND = 200  # characters before a match in a long result
LONGEST_RETURNED = 120  # characters of what a tool returns, in a signature
_REASON = 120  # characters; open_toolbox shows all of them
MOST_READ = 256 << 10  # bytes of a definition that is described
PARAMETER_DEPTH = 4
MOST_PARAMETERS = 200  # lines about the parameters of one tool
SHORTENED = (
    '… is shortened: search_tools {"query": "toolbox/server/tool", "detail": "full"} shows it whole'
)
HINTS = {
    "readOnlyHint": "read-only",
    "destructiveHint": "destructive",
    "idempotentHint": "idempotent",
    "openWorldHint": "open world",
}
_AS = {"full": "in full", "signature": "as signatures", "names": "by name"}


# search_tools


class _Search(msgspec.Struct):
    query: NonEmpty
    toolbox: NonEmpty | None = None
    server: NonEmpty | None = None
    limit: Any = None
    detail: Detail | None = None


_read_search = msgspec.json.Decoder(_Search, float_hook=float).decode


async def search_tools(
    view: View,
    arguments: msgspec.Raw,
    report: Callable[[int, int, str], None] | None = None,
    *,
    skills: bool,
) -> bytes:
    """The result of `search_tools`. Raises InvalidCall, or NotFound for an unknown toolbox or server.

    `report` is called as servers are read that nobody has read before. `skills`: the host can load them.
    """
    from mcp_workbench.gateway.tool_search import Reading, find

    search = _read(arguments)
    limit = search.limit or USUAL_HITS
    query = Query(search.query, search.toolbox or "", search.server or "", limit)
    result = await find(view, query, Reading(report))
    detail = search.detail or "signature"
    hits = (hit.definition for hit in result.tools)
    texts = await describe_tools(hits, detail, returns=has_scripts(view.snapshot))
    text = search_text(result, detail, view.snapshot, texts)
    if skills:
        from mcp_workbench.gateway.skill_search import find_skills

        text = "\n".join([text, *map(_skill_line, await find_skills(view, query))])
    return text_result(text)


def _skill_line(found: FoundSkill) -> str:
    description = one_line(found.skill.description)
    if len(description) > MOST_DESCRIBED:
        description = f"{description[: MOST_DESCRIBED - 1].rstrip()}…"
    return f"skill {name_text(found.skill.name)}, to be loaded from {one_line(found.address)}: {description}"


def _read(arguments: msgspec.Raw) -> _Search:
    bounds = {"limit": (1, MOST_HITS)}
    refuse_long(arguments)
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
        return "\n".join([_nothing(result, snapshot), *_unsearched(result, snapshot)])
    lines, lossy = tool_lines(_by_server(result.tools), detail, known)
    lines += [_twins(hit) for hit in result.tools if hit.twins]
    lines += [_neighbours(siblings) for siblings in result.siblings]
    lines += _doubts(result) + _left_out(result)
    return "\n".join(
        [
            _head(result, detail),
            *lines,
            *_unsearched(result, snapshot),
            *omission_note(lossy, detail),
        ]
    )


def _head(result: SearchResult, detail: Detail) -> str:
    return f"{len(result.tools)} of {_count(result.total)}, {how_to_call(detail)}"


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
    names = name_list(map(str, result.left_out))
    return [f"not shown, {MOST_NAMED} at a time: {names}"]


def _nothing(result: SearchResult, snapshot: Snapshot) -> str:
    words = f" None has: {_words(result)}." if result.strange else ""
    boxes = name_list(snapshot.toolboxes)
    if result.wordless:
        return (
            "The query has no word to look for: common words and signs do not count. "
            f"{_count(result.total)} known. Toolboxes: {boxes}"
        )
    if result.total == 0 and result.unknown:
        return f"No tools are known yet. Toolboxes: {boxes}"
    english = (
        " The tools are described in English: try other English words." if result.in_english else ""
    )
    known = f"{_count(result.total)} that are known"
    return f"No tool fits, of {known}.{words}{english} Toolboxes: {boxes}"


def _words(result: SearchResult) -> str:
    shown = ", ".join(_strange(word, result.close) for word in result.strange[:MOST_STRANGE])
    more = len(result.strange) - MOST_STRANGE
    return f"{shown} (+{more})" if more > 0 else shown


def _strange(word: str, close: dict[str, tuple[str, ...]]) -> str:
    instead = " or ".join(map(one_line, close.get(word, ())))
    return f"{one_line(word)} (searched for {instead})" if instead else one_line(word)


def _unsearched(result: SearchResult, snapshot: Snapshot) -> list[str]:
    """Servers whose tools were not searched: an empty result does not mean that they have none."""
    failed, starting = "not available", "being read, for the next search"
    later, lazy = (
        "not read yet (the next search reads them)",
        "not read yet (open_toolbox reads them)",
    )
    groups: dict[str, list[str]] = {failed: [], starting: [], later: [], lazy: []}
    for server in result.unknown:
        name = str(server.address)
        if server.starting:
            groups[starting].append(name)
        elif server.reason:
            groups[failed].append(f"{name} ({_reason(server.reason)})")
        elif snapshot.toolboxes[server.address.toolbox].discover == "eager":
            groups[later].append(name)
        else:
            groups[lazy].append(name)
    return [f"{state}: {name_list(names)}" for state, names in groups.items() if names]


def _reason(text: str) -> str:
    text = one_line(text)
    return text if len(text) <= _REASON else f"{text[: _REASON - 1].rstrip()}…"


# read_result


class _Reading(msgspec.Struct, frozen=True):
    handle: NonEmpty
    offset: Any = None  # the beginning
    length: Any = None  # the budget of the result
    find: NonEmpty | None = None
    lines: str | None = None
    context: Any = None
    select: str | None = None

    @property
    def around(self) -> int | None:
        """Lines around each match; None if that is no number."""
        return whole_number(0 if self.context is None else self.context, LOWEST)


_read_reading = msgspec.json.Decoder(_Reading, float_hook=float).decode


async def read_result(store: KeptResults, owner: object, arguments: msgspec.Raw) -> bytes:
    """The requested part of a result that was cut, in a block of its own, and where to read on."""
    refuse_long(arguments)
    try:
        reading = read_last(_read_reading, arguments)
    except msgspec.ValidationError:
        reading = None
    offset = whole_number(0 if reading is None or reading.offset is None else reading.offset, 0)
    length = whole_number(1 if reading is None or reading.length is None else reading.length, 1)
    around = None if reading is None else reading.around
    if reading is None or offset is None or length is None or around is None:
        raise wrong_reading(arguments, "handle", {"offset": (0, 0), "length": (1, 0)})
    projection = wanted_part(reading.select, reading.lines, around)
    kept = await store.find(owner, reading.handle)
    if projection is not None:
        from mcp_workbench.gateway.projected_results import projected_text

        texts = await in_turns(projected_text(projection, kept, store))
        return text_blocks([text for text in texts if text])
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
    end = min(
        start + ((kept.budget or len(kept.text)) if reading.length is None else length),
        len(kept.text),
    )
    place = f"characters {start} to {end} of {len(kept.text)}"
    rest = (
        how_to_read_on(len(kept.text) - end, reading.handle, end)
        if end < len(kept.text)
        else "the end"
    )
    return text_blocks([kept.text[start:end], f"{place}; {rest}"])


# open_toolbox


def opened_text(opened: OpenedToolbox, detail: Detail, known: ToolTexts | None = None) -> str:
    """The result of `open_toolbox` at a level of detail below the contract's."""
    count = sum(len(server.tools) for server in opened.servers)
    box = opened.spec
    title = f"{box.name}: {one_line(box.description)}".removesuffix(": ").rstrip(".")
    head = f"{title}. {_count(count)} {_AS[detail]}, {how_to_call(detail)}"
    servers = ((server.address, server.tools) for server in opened.servers)
    lines, lossy = tool_lines(servers, detail, known)
    lines += [f"unavailable: {u.server} ({one_line(u.reason)})" for u in opened.unavailable]
    lines += [f"warning: {one_line(warning)}" for warning in opened.warnings]
    if box.detail != "schema":
        lines.append('detail "schema" gives whole definitions')
    return "\n".join([head, *lines, *omission_note(lossy, detail)])


# Tools at a level of detail


class ToolText(msgspec.Struct, frozen=True):
    """A tool as text; `lossy` if its signature is shortened."""

    text: str
    lossy: bool


ToolTexts = dict[Definition, ToolText]


async def describe_tools(
    tools: Iterable[Definition], detail: Detail, *, returns: bool = False
) -> ToolTexts:
    """Describe these tools, in time slices: long definitions take a while to read.

    `returns`: signatures say what is returned, as scripts get it.
    """
    texts: ToolTexts = {}
    time_slice = TimeSlice()
    for tool in tools if detail in ("full", "signature") else ():
        texts[tool] = full_text(tool) if detail == "full" else signature_line(tool, returns=returns)
        await time_slice.yield_if_over()
    return texts


def tool_lines(
    servers: Iterable[ServerTools], detail: Detail, known: ToolTexts | None = None
) -> tuple[list[str], bool]:
    """The tools by server as lines of text, and whether any of them is shortened.

    `known` are texts that were made before.
    """
    lines: list[str] = []
    lossy = False
    for address, tools in servers:
        if detail == "names":
            lines.append(f"{address}: {', '.join(name_text(tool.name) for tool in tools)}")
            continue
        lines.append(f"# {address}")
        if detail == "schema":
            lines += [tool_info_json(tool, address).decode() for tool in tools]
            continue
        for tool in tools:
            described = known[tool] if known else _tool_text(tool, detail)
            lines.append(described.text)
            lossy |= described.lossy
    return lines, lossy


def how_to_call(detail: Detail) -> str:
    where = "behind" if detail == "names" else "under #"
    return f"{where} toolbox/server; call with use_tool"


def omission_note(lossy: bool, detail: Detail) -> list[str]:  # noqa: FBT001 - as `tool_lines` returns it
    """How to get what was left out, if anything was."""
    if not lossy:
        return []
    return [SHORTENED if detail == "signature" else '… has no short form: detail "schema" has it']


def _tool_text(tool: Definition, detail: Detail) -> ToolText:
    return full_text(tool) if detail == "full" else signature_line(tool)


@lru_cache(maxsize=4096)
def signature_line(tool: Definition, *, returns: bool = False) -> ToolText:
    """One line: the signature, the first sentence of the description, and a mark if it is destructive."""
    if len(tool.raw) > MOST_READ:
        return _undescribed(tool)
    whole = read_object(tool.raw)
    signature = short_signature(tool.name, arguments_shape(whole.get("inputSchema")))
    summary = first_sentence(_text(whole.get("description")) or _text(whole.get("title")))
    mark = " [destructive]" if _annotations(whole).get("destructiveHint") is True else ""
    output = _returned(whole.get("outputSchema")) if returns else ""
    summary = f" - {summary}" if summary else ""
    return ToolText(f"{signature.text}{output}{summary}{mark}", signature.lossy)


def _returned(schema: Any) -> str:
    """What a script gets of a tool that declares it: its shape, or of a long one the names."""
    if not isinstance(schema, dict):
        return ""
    schema = cast("Json", schema)
    properties: Any = schema.get("properties")
    names = list(cast("Json", properties)) if isinstance(properties, dict) else []
    text = spelled(value_shape(properties["result"] if names == ["result"] else schema)).text
    if len(text) > LONGEST_RETURNED and names:
        text = f"{{{name_list(map(name_text, names), LONGEST_RETURNED)}}}"
    return f" -> {text}" if len(text) <= 2 * LONGEST_RETURNED else ""


def full_text(tool: Definition) -> ToolText:
    """The whole signature and description, a line per documented parameter, and its annotations."""
    if len(tool.raw) > MOST_READ:
        return _undescribed(tool)
    whole = read_object(tool.raw)
    schema: Any = whole.get("inputSchema")
    signature = whole_signature(tool.name, arguments_shape(schema))
    output: Any = whole.get("outputSchema")
    returns = f" -> {spelled(value_shape(output)).text}" if isinstance(output, dict) else ""
    lines = [signature.text + returns]
    description = one_line(_text(whole.get("description")))
    lines += [f"  {description}"] if description else []
    for path, description in _parameters(schema, "", PARAMETER_DEPTH):
        if len(lines) > MOST_PARAMETERS:
            lines.append("  …")
            break
        lines.append(f"  {path}: {description}")
    hints = [word for hint, word in HINTS.items() if _annotations(whole).get(hint) is True]
    lines += [f"  [{', '.join(hints)}]"] if hints else []
    return ToolText("\n".join(lines), signature.lossy)


def _parameters(schema: Any, path: str, depth: int) -> Iterator[tuple[str, str]]:
    if not isinstance(schema, dict) or depth == 0:
        return
    own = cast("Json", schema)
    properties: Any = own.get("properties")
    for name, value in cast("Json", properties).items() if isinstance(properties, dict) else ():
        if not isinstance(value, dict):
            continue
        here = f"{path}{name_text(shown_name(name))}"
        description = one_line(_text(cast("Json", value).get("description")))
        if description:
            yield here, description
        yield from _parameters(value, f"{here}.", depth - 1)
        yield from _parameters(cast("Json", value).get("items"), f"{here}[].", depth - 1)


def _annotations(whole: Json) -> Json:
    annotations: Any = whole.get("annotations")
    return cast("Json", annotations) if isinstance(annotations, dict) else {}


def _undescribed(tool: Definition) -> ToolText:
    return ToolText(f"{name_text(shown_name(tool.name))}({MARK}) - {TOO_COMPLEX}", lossy=True)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _count(tools: int) -> str:
    return "1 tool" if tools == 1 else f"{tools:,} tools"
