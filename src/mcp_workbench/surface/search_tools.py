"""The answer of `search_tools`: hits to call at once, names of what stands beside them, and doubts."""

from __future__ import annotations

from collections.abc import Iterable

from mcp_workbench.core.names import ServerAddress
from mcp_workbench.core.signature import name_text, one_line
from mcp_workbench.core.spec import Detail, Snapshot
from mcp_workbench.search.query import MOST_NAMED, Found, FoundTool, Siblings
from mcp_workbench.surface.detail import Lines, Shelf, how_to_call, listed, unsaid
from mcp_workbench.surface.texts import name_list

MOST_SIBLINGS = 20  # names of each server
MOST_STRANGE = 8  # words without a match
_NAMES = 400  # characters of toolbox or server names
_REASON = 120  # characters; open_toolbox has all of them


def told(found: Found, detail: Detail, snapshot: Snapshot, known: Lines | None = None) -> str:
    """The answer in words; the same words for the same tools."""
    if not found.tools:
        return "\n".join([_nothing(found, snapshot), *_unread(found)])
    lines, lossy = listed(_shelves(found.tools), detail, known)
    lines += [_twins(one) for one in found.tools if one.twins]
    lines += [_also(one) for one in found.siblings]
    lines += _doubts(found) + _left_out(found)
    return "\n".join([_head(found, detail), *lines, *_unread(found), *unsaid(lossy, detail)])


def _head(found: Found, detail: Detail) -> str:
    tools = "tool" if found.total == 1 else "tools"
    return f"{len(found.tools)} of {found.total} {tools}, {how_to_call(detail)}"


def _shelves(tools: Iterable[FoundTool]) -> list[Shelf]:
    """Grouped by server; the server of the best hit comes first."""
    shelves: dict[ServerAddress, list[FoundTool]] = {}
    for one in tools:
        shelves.setdefault(one.tool.address, []).append(one)
    return [(at, tuple(one.definition for one in ones)) for at, ones in shelves.items()]


def _twins(one: FoundTool) -> str:
    return f"{name_text(one.tool.tool)} is also at {', '.join(map(str, one.twins))}"


def _also(siblings: Siblings) -> str:
    names = siblings.names
    rest = f" (+{len(names) - MOST_SIBLINGS})" if len(names) > MOST_SIBLINGS else ""
    shown = ", ".join(map(name_text, names[:MOST_SIBLINGS]))
    return f"also in {siblings.address}: {shown}{rest}"


def _doubts(found: Found) -> list[str]:
    lines = ["weak match: perhaps nothing here does this"] if found.weak else []
    if found.strange:
        lines.append(f"in no tool: {_words(found)}")
    return lines


def _left_out(found: Found) -> list[str]:
    if not found.left_out:
        return []
    names = name_list(map(str, found.left_out), _NAMES)
    return [f"not shown, {MOST_NAMED} at a time: {names}"]


def _nothing(found: Found, snapshot: Snapshot) -> str:
    words = f" None has: {_words(found)}." if found.strange else ""
    boxes = name_list(snapshot.toolboxes, _NAMES)
    tools = "tool" if found.total == 1 else "tools"
    if found.wordless:
        return (
            "The query has no word to look for: common words and signs do not count. "
            f"{found.total} {tools} known. Toolboxes: {boxes}"
        )
    return f"No tool fits, of {found.total} {tools} that are known.{words} Toolboxes: {boxes}"


def _words(found: Found) -> str:
    shown = ", ".join(one_line(word) for word in found.strange[:MOST_STRANGE])
    more = len(found.strange) - MOST_STRANGE
    return f"{shown} (+{more})" if more > 0 else shown


def _unread(found: Found) -> list[str]:
    """Servers that could not be looked at, so that nobody takes what is missing for what is not."""
    failed = [f"{one.address} ({_reason(one.reason)})" for one in found.unknown if one.reason]
    starting = [str(one.address) for one in found.unknown if one.starting]
    others = [str(o.address) for o in found.unknown if not (o.starting or o.reason)]
    told = {
        "not available": failed,
        "being read, for the next search": starting,
        "not read yet (open_toolbox reads them)": others,
    }
    return [f"{what}: {name_list(names, _NAMES)}" for what, names in told.items() if names]


def _reason(text: str) -> str:
    text = one_line(text)
    return text if len(text) <= _REASON else f"{text[: _REASON - 1].rstrip()}…"
