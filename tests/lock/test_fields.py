"""One changed byte in any field is noticed; the order of members and white space are not (S2)."""

# What is taken apart has no types.
# pyright: basic

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from mcp_workbench.core.catalogue import read_definitions
from mcp_workbench.core.lock_states import hashes_of, launch_hash, review_list
from mcp_workbench.core.spec import (
    HttpEndpoint,
    LockedServer,
    ServerAddress,
    ServerSpec,
    StdioCommand,
)
from tests.kit.results import Message

TOOL: Message = {
    "name": "send",
    "title": "Send",
    "description": "Sends a letter",
    "inputSchema": {
        "type": "object",
        "properties": {
            "to": {"type": "string", "description": "Whom", "enum": ["anna", "bob"]},
            "count": {"type": "integer", "minimum": 1, "maximum": 9, "default": 1.5},
        },
        "required": ["to"],
        "additionalProperties": False,
    },
    "outputSchema": {"type": "object", "properties": {"sent": {"type": "boolean"}}},
    "annotations": {"title": "Send", "readOnlyHint": False, "destructiveHint": True},
    "icons": [{"src": "https://example.com/a.png", "sizes": ["48x48"]}],
    "execution": {"taskSupport": "optional"},
    "_meta": {"vendor/key": {"deep": [1, 2, {"x": None}]}},
    "x-unknown": [1, "two"],
}


def changes(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Each place of a definition, with a slightly different value for it; `...` removes it."""
    if isinstance(value, dict):
        for name, member in value.items():
            yield (*path, name), ...
            yield from changes(member, (*path, name))
        yield (*path, "added"), 1
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from changes(item, (*path, number))
        if len(value) > 1:
            yield path, value[::-1]
        yield path, [*value, "added"]
    elif isinstance(value, str):
        yield path, f"{value} "
        yield path, value[:-1] + chr(ord(value[-1]) + 1)
    elif isinstance(value, bool):
        yield path, not value
    else:
        yield path, 0 if value is None else value + 1


def changed(path: tuple[Any, ...], value: Any) -> Message:
    tool = copy.deepcopy(TOOL)
    inner: Any = tool
    for part in path[:-1]:
        inner = inner[part]
    if value is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return tool


CHANGES = [c for c in changes(TOOL) if c[0] not in (("name",), ())]


def received(text: str) -> dict[str, str]:
    """The hashes of a list with one tool, as a server has sent it."""
    definitions, complaints = read_definitions([msgspec.Raw(text.encode())])
    assert not complaints
    return hashes_of({name: one.raw for name, one in definitions.items()})


@pytest.mark.parametrize("level", ["pin", "review"])
def test_every_change_of_every_field_is_blocked(level: Any) -> None:
    entry = LockedServer(lists={"tools": received(json.dumps(TOOL))})
    caught = 0
    for path, value in CHANGES:
        review = review_list(level, entry, "tools", received(json.dumps(changed(path, value))))
        assert review.blocked == {"send": "changed"}, path
        caught += 1
    print(f"{level}: {caught} of {len(CHANGES)} changes caught")
    assert caught == len(CHANGES) > 70


@pytest.mark.parametrize("level", ["pin", "review"])
def test_order_and_white_space_are_no_change(level: Any) -> None:
    entry = LockedServer(lists={"tools": received(json.dumps(TOOL))})
    backwards = dict(reversed(TOOL.items()))
    backwards["inputSchema"] = dict(reversed(TOOL["inputSchema"].items()))

    for text in (
        json.dumps(TOOL, indent=4),
        json.dumps(TOOL, separators=(",", ":")),
        json.dumps(TOOL, sort_keys=True),
        json.dumps(backwards, indent="\t"),
    ):
        review = review_list(level, entry, "tools", received(text))
        assert review.blocked == {}
        assert review.states == {"send": "recorded"}


def server(**target: Any) -> ServerSpec:
    kind = HttpEndpoint if "url" in target else StdioCommand
    return ServerSpec(ServerAddress("dev", "s"), kind(**target))


def test_a_launch_line_is_its_texts_and_the_names_of_variables_and_headers() -> None:
    one = server(command="npx", args=("-y", "a"), env=(("TOKEN", "1"),), folder="/here")
    same = server(command="npx", args=("-y", "a"), env=(("TOKEN", "2"),), folder="/there")
    others = [
        server(command="npm", args=("-y", "a"), env=(("TOKEN", "1"),)),
        server(command="npx", args=("a", "-y"), env=(("TOKEN", "1"),)),
        server(command="npx", args=("-y", "a", ""), env=(("TOKEN", "1"),)),
        server(command="npx", args=("-y", "a"), env=(("KEY", "1"),)),
        server(command="npx", args=("-y", "a"), env=(("TOKEN", "1"),), cwd="sub"),
        server(command="npx", args=("-y", "a"), env=(("TOKEN", "1"),), inherit=("*",)),
        server(url="https://example.com/mcp", headers=(("X", "1"),)),
        server(url="https://example.com/mcp", headers=(("Y", "1"),)),
        server(url="https://example.com/other", headers=(("X", "1"),)),
    ]

    hashes = [launch_hash(other) for other in (one, *others)]
    assert launch_hash(one) == launch_hash(same)
    assert len(set(hashes)) == len(hashes)
