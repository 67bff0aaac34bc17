"""Toolboxes, their names and their servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.core.spec import ServerAddress
from tests.config.scenes import load, problems

NAME_RULE = (
    "Toolbox and server names should contain only alphanumeric characters, hyphens, and underscores"
)


def test_the_same_server_may_stand_in_several_toolboxes(tmp_path: Path) -> None:
    box = {"mcpServers": {"fs": {"command": "x"}}}
    snapshot = load(tmp_path, {"toolboxes": {"a": box, "b": box}})

    assert snapshot.toolbox("a").server("fs").address == ServerAddress("a", "fs")
    assert snapshot.toolbox("b").server("fs").address == ServerAddress("b", "fs")


@pytest.mark.parametrize("name", ["", "a b", "a.b", "ä", "a/b", "a\n", "名"])
def test_a_name_with_other_characters_is_an_error_with_its_path(tmp_path: Path, name: str) -> None:
    box = {"mcpServers": {name: {"command": "x"}}}

    toolbox, server = problems(tmp_path, {"toolboxes": {name: box}})

    assert toolbox.message == server.message == NAME_RULE
    assert toolbox.path.startswith("toolboxes[")
    assert server.path.startswith(f"{toolbox.path}.mcpServers[")
    assert toolbox.fix.startswith("rename it, for example '")


@pytest.mark.parametrize("name", ["a", "A-1_b", "_a", "-", "0"])
def test_letters_digits_hyphens_and_underscores_make_a_name(tmp_path: Path, name: str) -> None:
    box = {"mcpServers": {name: {"command": "x"}}}

    assert load(tmp_path, {"toolMode": "dynamic", "toolboxes": {name: box}}).warnings == ()


@pytest.mark.parametrize(
    ("name", "fault", "better"),
    [
        ("dev__old", "contains '__'", "dev-old"),
        ("dev_", "ends with '_'", "dev"),
        ("_", "ends with '_'", "main"),
    ],
)
def test_names_that_dynamic_mode_can_not_split(
    tmp_path: Path, name: str, fault: str, better: str
) -> None:
    content = {"toolboxes": {name: {"mcpServers": {name: {"command": "x"}}}}}

    toolbox, server = problems(tmp_path, {"toolMode": "dynamic", **content})
    assert toolbox.message == f"toolbox name {fault}"
    assert server.message == f"server name {fault}"
    assert toolbox.fix == f"rename it, for example '{better}'"

    in_proxy_mode = load(tmp_path, content).warnings
    assert [w.message for w in in_proxy_mode] == [
        f"toolbox name {fault}, which dynamic mode refuses",
        f"server name {fault}, which dynamic mode refuses",
    ]


def test_a_missing_description_is_empty(tmp_path: Path) -> None:
    assert load(tmp_path, {"toolboxes": {"a": {"mcpServers": {}}}}).toolbox("a").description == ""


def test_a_file_that_is_only_servers_is_one_toolbox_called_default(tmp_path: Path) -> None:
    snapshot = load(tmp_path, {"mcpServers": {"fs": {"command": "x"}}})

    assert list(snapshot.toolboxes) == ["default"]
    assert snapshot.toolbox("default").server("fs").place == "mcpServers.fs"


def test_both_shapes_in_one_file_are_an_error(tmp_path: Path) -> None:
    [problem] = problems(
        tmp_path,
        {
            "mcpServers": {"a": {"command": "x"}},
            "toolboxes": {"b": {"mcpServers": {"a": {"command": "x"}}}},
        },
    )

    assert (problem.path, problem.code) == ("mcpServers", "WB-CONF-015")
    assert problem.fix == "move these servers into one of the toolboxes"


@pytest.mark.parametrize("content", [{}, {"toolMode": "proxy"}, {"servers": {}}])
def test_a_file_without_servers_is_an_error(tmp_path: Path, content: dict[str, Any]) -> None:
    [problem] = problems(tmp_path, content)

    assert problem.message == "neither 'toolboxes' nor 'mcpServers'"
    assert ("VS Code" in problem.fix) is ("servers" in content)


@pytest.mark.parametrize(
    ("content", "path"),
    [
        ({"toolboxes": {}}, "toolboxes"),
        ({"mcpServers": {}}, "mcpServers"),
        ({"toolboxes": {"a": {"mcpServers": {}}}}, "toolboxes.a.mcpServers"),
    ],
)
def test_what_is_empty_is_a_warning(tmp_path: Path, content: dict[str, Any], path: str) -> None:
    [warning] = load(tmp_path, content).warnings

    assert (warning.path, warning.code) == (path, "WB-CONF-017")
