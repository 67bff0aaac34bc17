"""What needs approval: by name, by what a tool declares, and where the configuration says it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench import ConfigError, load_config
from mcp_workbench.core.approve_rules import GET, READ, approve_rule
from tests.kit.config import entry, write_config


def definition(**annotations: Any) -> bytes:
    return json.dumps({"name": "t", "annotations": annotations}).encode()


SILENT = b'{"name":"t"}'
READS = definition(readOnlyHint=True)
ADDS = definition(destructiveHint=False)
ODD = [
    b'{"name":"t","annotations":null}',
    b'{"name":"t","annotations":7}',
    b'{"name":"t","annotations":{"readOnlyHint":"true","destructiveHint":"false"}}',
    b'{"name":"t","annotations":{"readOnlyHint":1,"destructiveHint":0}}',
    b"not JSON",
]


@pytest.mark.parametrize(
    ("declared", "destructive", "writes"),
    [
        (SILENT, True, True),
        (READS, False, False),
        (ADDS, False, True),
        (definition(readOnlyHint=False), True, True),
        (definition(destructiveHint=True), True, True),
        (definition(readOnlyHint=True, destructiveHint=True), False, False),
        *((odd, True, True) for odd in ODD),
    ],
)
def test_what_a_tool_does_not_declare_has_the_default_of_the_specification(
    declared: bytes, *, destructive: bool, writes: bool
) -> None:
    assert approve_rule(("destructive",)).applies_to_tool("t", declared) is destructive
    assert approve_rule(("writes",)).applies_to_tool("t", declared) is writes


@pytest.mark.parametrize(
    ("entries", "asked"),
    [
        ((), []),
        (("*",), ["read_a", "delete_a", "destructive"]),
        (("delete_*",), ["delete_a"]),
        (("!read_*",), ["delete_a", "destructive"]),
        (("*", "!delete_a"), ["read_a", "destructive"]),
        (("destructive", "!delete_*"), ["destructive"]),
        (("destructive", "read_a"), ["read_a", "delete_a", "destructive"]),
        (("resource:*", "prompt:*"), []),
        (("DELETE_*",), []),
    ],
)
def test_names_follow_the_globs_of_tool_filters(entries: tuple[str, ...], asked: list[str]) -> None:
    """A tool that is named like one of the words is included by it."""
    declared = {"read_a": READS, "delete_a": SILENT, "destructive": READS}
    rule = approve_rule(entries)

    assert [name for name, raw in declared.items() if rule.applies_to_tool(name, raw)] == asked


def test_resources_and_prompts_have_patterns_of_their_own() -> None:
    rule = approve_rule(("*", "resource:file:///etc/*", "!resource:*.md", "!prompt:hello"))

    assert rule.applies_to_name(READ, "file:///etc/passwd")
    assert not rule.applies_to_name(READ, "file:///etc/readme.md")
    assert not rule.applies_to_name(READ, "file:///home")
    assert rule.applies_to_name(GET, "other")
    assert not rule.applies_to_name(GET, "hello")
    assert not approve_rule(("*",)).may_apply(READ, READ, b"")
    assert not approve_rule(("*", "resource:*")).may_apply("completion/complete", "", b"")


def approve(folder: Path, **places: Any) -> Any:
    """`approve` of the one server, as read from a file that has it in these places."""
    server, box, top = (
        {"approve": places[key]} if key in places else {} for key in ("server", "box", "top")
    )
    boxes = {"dev": {"mcpServers": {"a": {**entry(), **server}}, **box}}
    file = write_config(folder, {"toolboxes": boxes, **top})
    return load_config(file).toolbox("dev").server("a").approve


EVERYTHING = ("*", "resource:*", "prompt:*")


@pytest.mark.parametrize(
    ("places", "read"),
    [
        ({}, ()),
        ({"top": True}, EVERYTHING),
        ({"top": "writes", "box": "destructive"}, ("destructive",)),
        ({"top": "writes", "box": True, "server": ["x"]}, ("x",)),
        ({"top": True, "server": False}, ()),
        ({"box": True, "server": []}, ()),
    ],
)
def test_the_nearest_place_counts(
    tmp_path: Path, places: dict[str, Any], read: tuple[str, ...]
) -> None:
    assert approve(tmp_path, **places) == read


@pytest.mark.parametrize(
    "wrong", ["delete_*", "Destructive", 1, None, {}, [""], ["!"], ["resource:"], ["${X}"], [True]]
)
@pytest.mark.parametrize("place", ["server", "box", "top"])
def test_what_is_misspelled_is_an_error_and_nothing_is_served(
    tmp_path: Path, wrong: Any, place: str
) -> None:
    with pytest.raises(ConfigError, match=r"approve"):
        approve(tmp_path, **{place: wrong})
