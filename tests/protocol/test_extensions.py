"""What hosts and servers declare of extensions, and what of it goes on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcp_workbench.core.apps import EXTENSION as APPS
from mcp_workbench.core.raw_json import Members
from mcp_workbench.core.skills import EXTENSION as SKILLS
from mcp_workbench.protocol.extensions import (
    MOST,
    MOST_BYTES,
    TASKS,
    declares_others,
    is_known,
    passed_on,
    read_extensions,
    told,
    without_tasks,
)
from tests.kit.results import Json, raw

PAGES = {"mimeTypes": ["text/html;profile=mcp-app"]}


def members(values: Json) -> Members:
    return {name: raw(value) for name, value in values.items()}


def plain(found: Members) -> dict[str, Any]:
    return {name: json.loads(bytes(value)) for name, value in found.items()}


MANY: dict[str, object] = {f"{number:02}": {} for number in range(MOST)}
LARGE = "a" * (MOST_BYTES - len("x") - 2)  # with its quotes


@pytest.mark.parametrize(
    ("extensions", "read"),
    [
        ({"a": {}, "b": 5}, True),
        (MANY, True),
        ({**MANY, "x": {}}, False),
        ({"x": LARGE}, True),
        ({"x": LARGE, "y": 1}, False),
        ({"xy": LARGE}, False),
        ([], False),
        (None, False),
    ],
    ids=["two", "many", "too many", "large", "another", "too large", "a list", "null"],
)
def test_extensions_are_read_unless_they_are_odd_or_too_many(
    extensions: object, read: bool
) -> None:
    found = read_extensions(members({"extensions": extensions, "roots": {}}))

    assert plain(found) == (extensions if read else {})


def test_extensions_with_ways_of_their_own_are_not_passed_on() -> None:
    assert plain(passed_on(members({APPS: {}, TASKS: {}, SKILLS: {}, "a/b": 1}))) == {"a/b": 1}
    assert read_extensions({}) == {}


@pytest.mark.parametrize(
    ("method", "known"),
    [("tools/call", True), ("ping", True), ("tasks", True), ("skill/x", False), ("a/tools", False)],
)
def test_methods_of_the_protocol_are_never_passed_on(method: str, known: bool) -> None:
    assert is_known(method) is known


@pytest.mark.parametrize(
    ("extensions", "shared", "declared"),
    [
        ({}, None, {APPS: PAGES}),
        ({APPS: {"own": 1}, "a/b": 2}, None, {APPS: {"own": 1}}),
        ({"a/b": 2, "c/d": 3}, {"a/b": {}, "e/f": {}}, {APPS: PAGES, "a/b": 2}),
    ],
)
def test_a_server_is_told_of_apps_and_of_what_it_shares_with_the_host(
    extensions: Json, shared: Json | None, declared: Json
) -> None:
    found = told(members({"roots": {}}), members(extensions), members(shared) if shared else None)

    assert plain(found) == {"roots": {}, "extensions": declared}


def test_a_call_whose_result_is_wanted_declares_no_tasks() -> None:
    without = raw({"roots": {}, "extensions": {"a/b": 1}})
    with_tasks = raw({"roots": {}, "extensions": {TASKS: {}, "a/b": 1}})

    assert without_tasks(without) is without
    assert json.loads(bytes(without_tasks(with_tasks))) == json.loads(bytes(without))


@pytest.mark.parametrize(
    ("capabilities", "others"),
    [
        ({"extensions": {APPS: {}, TASKS: {}}}, False),
        ({"extensions": {APPS: {}, "a/b": {}}}, True),
        ({"a/b": {}}, False),
        ({"extensions": ["a/b"]}, False),
        ([], False),
    ],
)
def test_a_host_that_declares_an_unknown_extension_is_known(
    capabilities: object, others: bool
) -> None:
    assert declares_others(raw(capabilities)) is others
