"""Which calls a person must approve before they are sent (`approve` in the configuration).

An entry of the list is a glob for names of tools, `resource:` and a glob for URIs, `prompt:` and a glob for names of
prompts, or one of two words that stand for what a tool's annotations say. `!` before a glob excludes what it matches.
"""

from functools import lru_cache

import msgspec

from mcp_workbench.core.call_request import TOOLS_CALL
from mcp_workbench.core.spec import ToolFilter, tool_filter

DESTRUCTIVE, WRITES = "destructive", "writes"
WORDS = (DESTRUCTIVE, WRITES)
RESOURCE, PROMPT = "resource:", "prompt:"
READ, GET = "resources/read", "prompts/get"


class ApproveRule(msgspec.Struct, frozen=True):
    """The list of one server, by what its entries are about."""

    words: tuple[str, ...]
    tools: ToolFilter
    resources: ToolFilter
    prompts: ToolFilter

    def may_apply(self, method: str, tool: str, definition: bytes) -> bool:
        """Returns whether calls of this tool, or some requests of this method, need approval."""
        if method == TOOLS_CALL:
            return self.applies_to_tool(tool, definition)
        filters = {READ: self.resources, GET: self.prompts}
        return method in filters and bool(filters[method].include)

    def applies_to_tool(self, name: str, definition: bytes) -> bool:
        """Returns whether calls of this tool need approval; `definition` is as its server lists it."""
        if self.tools.shows(name):
            return True
        excluded = not ToolFilter(exclude=self.tools.exclude).shows(name)
        if not self.words or excluded:
            return False
        hints = _hints(definition)
        return (WRITES in self.words and hints.writes) or hints.destroys

    def idle(self, tools: tuple[str, ...]) -> list[str]:
        """Returns the patterns for tools that match none of these, as the file spells them."""
        return [pattern for pattern in self.tools.idle(tools) if pattern not in WORDS]

    def applies_to_name(self, method: str, name: str) -> bool:
        """Returns whether this resource, by its URI, or this prompt needs approval."""
        return (self.resources if method == READ else self.prompts).shows(name)


@lru_cache(256)
def approve_rule(entries: tuple[str, ...]) -> ApproveRule:
    """Returns the rule for the list of a server."""
    resources, prompts = _of(RESOURCE, entries), _of(PROMPT, entries)
    tools = tuple(entry for entry in entries if not _plain(entry).startswith((RESOURCE, PROMPT)))
    words = tuple(word for word in WORDS if word in tools)
    return ApproveRule(words, tool_filter(tools), tool_filter(resources), tool_filter(prompts))


def _plain(entry: str) -> str:
    return entry.removeprefix("!")


def _of(kind: str, entries: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the entries of this kind, without its prefix."""
    chosen = (entry for entry in entries if _plain(entry).startswith(kind))
    return tuple(entry.replace(kind, "", 1) for entry in chosen)


# What a tool declares. What it leaves out, or spells wrongly, has the default of the specification.


class _Hints(msgspec.Struct, frozen=True):
    read_only: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="readOnlyHint")
    destructive: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="destructiveHint")

    @property
    def writes(self) -> bool:
        return bytes(self.read_only) != b"true"

    @property
    def destroys(self) -> bool:
        return self.writes and bytes(self.destructive) != b"false"


class _Tool(msgspec.Struct, frozen=True):
    annotations: _Hints | None = None


def _hints(definition: bytes) -> _Hints:
    try:
        return msgspec.json.decode(definition, type=_Tool).annotations or _Hints()
    except (msgspec.DecodeError, RecursionError):
        return _Hints()
