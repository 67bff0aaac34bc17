"""Tools in words, at every level of detail. All of it is one block of text, made of foreign input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, cast

import msgspec

from mcp_workbench.core.catalogue import Definition, read_object, tool_info_json
from mcp_workbench.core.errors import shown_name
from mcp_workbench.core.names import ServerAddress
from mcp_workbench.core.reports import OpenedToolbox
from mcp_workbench.core.shape import arguments_shape, value_shape
from mcp_workbench.core.signature import (
    MARK,
    first_sentence,
    name_text,
    one_line,
    short_signature,
    spelled,
    whole_signature,
)
from mcp_workbench.core.spec import Detail
from mcp_workbench.core.steps import TOO_COMPLEX
from mcp_workbench.surface.long_answers import Turns

Json = dict[str, Any]

SHORTENED = (
    '… is shortened: search_tools {"query": "toolbox/server/tool", "detail": "full"} shows it whole'
)
HINTS = {
    "readOnlyHint": "read-only",
    "destructiveHint": "destructive",
    "idempotentHint": "idempotent",
    "openWorldHint": "open world",
}
MOST_READ = 256 << 10  # bytes of a definition that is put in words
PARAMETER_DEPTH = 4
MOST_PARAMETERS = 200  # lines about the parameters of one tool
_AS = {"full": "in full", "signature": "as signatures", "names": "by name"}

Shelf = tuple[ServerAddress, tuple[Definition, ...]]


class Line(msgspec.Struct, frozen=True):
    """A tool in words; `lossy` where its signature is not all there is."""

    text: str
    lossy: bool


Lines = dict[Definition, Line]


async def in_words(tools: Iterable[Definition], detail: Detail) -> Lines:
    """The lines of these tools. Everybody else has a turn in between: they may be long to read."""
    lines: Lines = {}
    turns = Turns()
    for tool in tools if detail in ("full", "signature") else ():
        lines[tool] = _line(tool, detail)
        await turns.next()
    return lines


def _line(tool: Definition, detail: Detail) -> Line:
    return full_form(tool) if detail == "full" else signature_line(tool)


def listed(
    shelves: Iterable[Shelf], detail: Detail, known: Lines | None = None
) -> tuple[list[str], bool]:
    """Tools, each server's under its name, and whether any of them was shortened.

    `known` are lines that were made before.
    """
    lines: list[str] = []
    lossy = False
    for address, tools in shelves:
        if detail == "names":
            lines.append(f"{address}: {', '.join(name_text(tool.name) for tool in tools)}")
            continue
        lines.append(f"# {address}")
        if detail == "schema":
            lines += [tool_info_json(tool, address).decode() for tool in tools]
            continue
        for tool in tools:
            line = known[tool] if known else _line(tool, detail)
            lines.append(line.text)
            lossy |= line.lossy
    return lines, lossy


def how_to_call(detail: Detail) -> str:
    where = "behind" if detail == "names" else "under #"
    return f"{where} toolbox/server; call with use_tool"


def unsaid(lossy: bool, detail: Detail) -> list[str]:  # noqa: FBT001 - as `listed` says it
    """How to get what was left out, where something was."""
    if not lossy:
        return []
    return [SHORTENED if detail == "signature" else '… has no short form: detail "schema" has it']


def opened_in_words(opened: OpenedToolbox, detail: Detail, known: Lines | None = None) -> str:
    """The answer of `open_toolbox` at a level below the contract's."""
    count = sum(len(server.tools) for server in opened.servers)
    box = opened.spec
    about = f"{box.name}: {one_line(box.description)}".removesuffix(": ").rstrip(".")
    head = f"{about}. {count} {_plural('tool', count)} {_AS[detail]}, {how_to_call(detail)}"
    lines, lossy = listed(((one.address, one.tools) for one in opened.servers), detail, known)
    lines += [f"unavailable: {u.server} ({one_line(u.reason)})" for u in opened.unavailable]
    lines += [f"warning: {one_line(warning)}" for warning in opened.warnings]
    if box.detail != "schema":
        lines.append('detail "schema" gives whole definitions')
    return "\n".join([head, *lines, *unsaid(lossy, detail)])


@lru_cache(maxsize=4096)
def signature_line(tool: Definition) -> Line:
    """One line: the signature, what the tool is for, and a warning where it claims to destroy."""
    if len(tool.raw) > MOST_READ:
        return _unread(tool)
    whole = read_object(tool.raw)
    signature = short_signature(tool.name, arguments_shape(whole.get("inputSchema")))
    said = first_sentence(_text(whole.get("description")) or _text(whole.get("title")))
    warned = " [destructive]" if _annotations(whole).get("destructiveHint") is True else ""
    return Line(f"{signature.text}{f' - {said}' if said else ''}{warned}", signature.lossy)


def _unread(tool: Definition) -> Line:
    return Line(f"{name_text(shown_name(tool.name))}({MARK}) - {TOO_COMPLEX}", lossy=True)


def full_form(tool: Definition) -> Line:
    """The whole signature and description, a line per documented parameter, and its claims."""
    if len(tool.raw) > MOST_READ:
        return _unread(tool)
    whole = read_object(tool.raw)
    schema: Any = whole.get("inputSchema")
    signature = whole_signature(tool.name, arguments_shape(schema))
    output: Any = whole.get("outputSchema")
    returns = f" -> {spelled(value_shape(output)).text}" if isinstance(output, dict) else ""
    lines = [signature.text + returns]
    lines += [f"  {said}" for said in (one_line(_text(whole.get("description"))),) if said]
    for path, said in _parameters(schema, "", PARAMETER_DEPTH):
        if len(lines) > MOST_PARAMETERS:
            lines.append("  …")
            break
        lines.append(f"  {path}: {said}")
    claims = [word for hint, word in HINTS.items() if _annotations(whole).get(hint) is True]
    lines += [f"  [{', '.join(claims)}]"] if claims else []
    return Line("\n".join(lines), signature.lossy)


def _parameters(schema: Any, path: str, depth: int) -> Iterator[tuple[str, str]]:
    if not isinstance(schema, dict) or depth == 0:
        return
    own = cast("Json", schema)
    listed: Any = own.get("properties")
    for name, value in cast("Json", listed).items() if isinstance(listed, dict) else ():
        if not isinstance(value, dict):
            continue
        here = f"{path}{name_text(shown_name(name))}"
        said = one_line(_text(cast("Json", value).get("description")))
        if said:
            yield here, said
        yield from _parameters(value, f"{here}.", depth - 1)
        yield from _parameters(cast("Json", value).get("items"), f"{here}[].", depth - 1)


def _annotations(whole: Json) -> Json:
    found: Any = whole.get("annotations")
    return cast("Json", found) if isinstance(found, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"
