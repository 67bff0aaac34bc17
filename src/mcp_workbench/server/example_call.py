"""The example in the instructions: a call of a tool that exists, if one is known.

No server is started for it. Every agent reads the instructions, so no text of a server is in them: a name has
letters and digits, and a value is a placeholder, a number, or a word that the schema allows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple, cast

from mcp_workbench.core.apps import is_for_model
from mcp_workbench.core.catalogue import Definition, KnownCatalogue, read_object
from mcp_workbench.core.spec import ServerSpec, Snapshot, ToolIdentifier

Recall = Callable[[ServerSpec], KnownCatalogue | None]  # what a server offered last time

MOST_SERVERS = 8  # that are looked at for a tool; reading what is known of one takes time
MOST_TOOLS = 100  # of one server
MOST_BYTES = 16 << 10  # of one definition
MOST_ARGUMENTS = 3
LONGEST_NAME = 100  # characters of toolbox and server together
_is_word = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}").fullmatch
_reads = re.compile(
    r"(get|list|read|search|find|fetch|query|show|describe|view|count)([_.\-A-Z]|$)"
).match
_OF_TYPE: dict[str, Any] = {
    "integer": 1,
    "number": 1,
    "boolean": True,
    "array": [],
    "object": {},
    "null": None,
}


class ExampleCall(NamedTuple):
    """A call that the instructions show."""

    tool: ToolIdentifier
    arguments: dict[str, Any]


def example_call(snapshot: Snapshot, recall: Recall) -> ExampleCall | None:
    """Returns a call of a tool of the first server that is known; one that only reads, if there is any.

    The demo has an example of its own.
    """
    for spec in _servers(snapshot) if snapshot.origin else ():
        known = recall(spec)
        calls = [] if known is None else list(_calls(spec, known.catalogue.tools.values()))
        if calls:
            return min(calls, key=lambda ranked: ranked[0])[1]
    return None


def _servers(snapshot: Snapshot) -> list[ServerSpec]:
    servers = [spec for box in snapshot.toolboxes.values() for spec in box.servers.values()]
    short = [s for s in servers if len(s.address.toolbox) + len(s.address.server) <= LONGEST_NAME]
    return short[:MOST_SERVERS]


def _calls(spec: ServerSpec, tools: Iterable[Definition]) -> Iterator[tuple[int, ExampleCall]]:
    """Yields the tools that can be an example, each with its rank: the lowest is the best."""
    for tool in islice((tool for tool in tools if spec.tools.shows(tool.name)), MOST_TOOLS):
        if not _is_word(tool.name) or len(tool.raw) > MOST_BYTES or not is_for_model(tool.raw):
            continue
        definition = read_object(tool.raw)
        rank = _rank(tool.name, _object(definition.get("annotations")))
        arguments = _arguments(_object(definition.get("inputSchema")))
        if rank is not None and arguments is not None:
            address = spec.address
            identifier = ToolIdentifier(address.toolbox, address.server, tool.name)
            yield 10 * rank + abs(len(arguments) - 1), ExampleCall(identifier, arguments)


def _rank(name: str, annotations: dict[str, Any]) -> int | None:
    """None for a tool that may destroy something: nobody should try that first."""
    if annotations.get("readOnlyHint") is True:
        return 0
    if _reads(name):
        return 1
    return None if annotations.get("destructiveHint") is True else 2


def _arguments(schema: dict[str, Any]) -> dict[str, Any] | None:
    """The required arguments; None if they are too many, or can't be shown."""
    names = _list(schema.get("required"))
    properties = _object(schema.get("properties"))
    if len(names) > MOST_ARGUMENTS or not all(map(_is_name, names)):
        return None
    return {name: _value(name, _object(properties.get(name))) for name in names}


def _value(name: str, schema: dict[str, Any]) -> Any:
    kind, least, placeholder = schema.get("type"), schema.get("minimum"), f"<{name}>"
    if "enum" in schema:
        words = _list(schema["enum"])
        return next((word for word in words if _is_name(word) or _is_small(word)), placeholder)
    if kind in ("integer", "number") and _is_small(least):
        return least
    return _OF_TYPE.get(kind, placeholder) if isinstance(kind, str) else placeholder


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and _is_word(value) is not None


def _is_small(value: Any) -> bool:
    return isinstance(value, int) and abs(value) < 1_000_000


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
