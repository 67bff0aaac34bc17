"""Tools as text, at every level of detail. Each result is one text block, made from untrusted input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, cast

import msgspec

from mcp_workbench.core.catalogue import Definition, OpenedToolbox, read_object, tool_info_json
from mcp_workbench.core.errors import shown_name
from mcp_workbench.core.names import ServerAddress
from mcp_workbench.core.raw_json import TOO_COMPLEX
from mcp_workbench.core.spec import Detail
from mcp_workbench.schema.shape import arguments_shape, value_shape
from mcp_workbench.schema.signature import (
    MARK,
    first_sentence,
    name_text,
    one_line,
    short_signature,
    spelled,
    whole_signature,
)
from mcp_workbench.server.long_answers import TimeSlice

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
MOST_READ = 256 << 10  # bytes of a definition that is described
PARAMETER_DEPTH = 4
MOST_PARAMETERS = 200  # lines about the parameters of one tool
_AS = {"full": "in full", "signature": "as signatures", "names": "by name"}

ServerTools = tuple[ServerAddress, tuple[Definition, ...]]


class ToolText(msgspec.Struct, frozen=True):
    """A tool as text; `lossy` if its signature is shortened."""

    text: str
    lossy: bool


ToolTexts = dict[Definition, ToolText]


async def describe_tools(tools: Iterable[Definition], detail: Detail) -> ToolTexts:
    """Describe these tools, in time slices: long definitions take a while to read."""
    texts: ToolTexts = {}
    time_slice = TimeSlice()
    for tool in tools if detail in ("full", "signature") else ():
        texts[tool] = _tool_text(tool, detail)
        await time_slice.yield_if_over()
    return texts


def _tool_text(tool: Definition, detail: Detail) -> ToolText:
    return full_text(tool) if detail == "full" else signature_line(tool)


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


def opened_text(opened: OpenedToolbox, detail: Detail, known: ToolTexts | None = None) -> str:
    """The result of `open_toolbox` at a level of detail below the contract's."""
    count = sum(len(server.tools) for server in opened.servers)
    box = opened.spec
    title = f"{box.name}: {one_line(box.description)}".removesuffix(": ").rstrip(".")
    head = f"{title}. {count} {_plural('tool', count)} {_AS[detail]}, {how_to_call(detail)}"
    servers = ((server.address, server.tools) for server in opened.servers)
    lines, lossy = tool_lines(servers, detail, known)
    lines += [f"unavailable: {u.server} ({one_line(u.reason)})" for u in opened.unavailable]
    lines += [f"warning: {one_line(warning)}" for warning in opened.warnings]
    if box.detail != "schema":
        lines.append('detail "schema" gives whole definitions')
    return "\n".join([head, *lines, *omission_note(lossy, detail)])


@lru_cache(maxsize=4096)
def signature_line(tool: Definition) -> ToolText:
    """One line: the signature, the first sentence of the description, and a mark if it is destructive."""
    if len(tool.raw) > MOST_READ:
        return _unread(tool)
    whole = read_object(tool.raw)
    signature = short_signature(tool.name, arguments_shape(whole.get("inputSchema")))
    summary = first_sentence(_text(whole.get("description")) or _text(whole.get("title")))
    mark = " [destructive]" if _annotations(whole).get("destructiveHint") is True else ""
    return ToolText(f"{signature.text}{f' - {summary}' if summary else ''}{mark}", signature.lossy)


def _unread(tool: Definition) -> ToolText:
    return ToolText(f"{name_text(shown_name(tool.name))}({MARK}) - {TOO_COMPLEX}", lossy=True)


def full_text(tool: Definition) -> ToolText:
    """The whole signature and description, a line per documented parameter, and its annotations."""
    if len(tool.raw) > MOST_READ:
        return _unread(tool)
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


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"
