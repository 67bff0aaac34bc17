"""What hosts do with names and lists, and what `check --host` says about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.hosts.limits import LIMITS, HostLimits, long_names, problems_in, unseen_tools
from mcp_workbench.hosts.table import HOSTS
from tests.kit.command import Done, Person, newcomer
from tests.kit.config import entry, write_config

pytestmark = pytest.mark.usefixtures("forked_commands")

# The longest name of ours under an entry called `workbench`, as each host counts.
ROOM = {
    "claude-code": 48,
    "codex": 48,
    "cursor": 50,
    "gemini": 49,
    "opencode": 0,
    "vscode": 50,
    "vscode-insiders": 50,
    "zed": 64,
}


def test_every_host_with_limits_is_one_of_the_table() -> None:
    assert {id: limits.room() for id, limits in sorted(LIMITS.items())} == ROOM
    assert LIMITS.keys() <= HOSTS.keys()


@pytest.mark.parametrize(("host", "room"), [(id, room) for id, room in ROOM.items() if room])
def test_a_name_is_too_long_by_one_character(host: str, room: int) -> None:
    fits, not_quite = "a" * room, "b" * (room + 1)

    (problem,) = problems_in(HOSTS[host], [fits, not_quite])

    assert problem.name == not_quite
    assert f"{HOSTS[host].title} {LIMITS[host].effect}, since {room} are left" in problem.message


def test_a_longer_name_of_the_entry_leaves_less() -> None:
    assert not list(problems_in(HOSTS["cursor"], ["a" * 50]))
    assert list(problems_in(HOSTS["cursor"], ["a" * 50], "my-workbench"))


@pytest.mark.parametrize(
    ("host", "names", "same"),
    [
        ("claude-code", ("d__s__a.b", "d__s__a_b"), "mcp__workbench__d__s__a_b"),
        ("vscode", ("c" * 60 + "1", "c" * 60 + "2"), "mcp_workbench_" + "c" * 50),
        ("gemini", ("d__s__a/b", "d__s__a:b"), "mcp_workbench_d__s__a_b"),
    ],
)
def test_two_tools_with_one_name_are_found(host: str, names: tuple[str, str], same: str) -> None:
    (twin,) = [problem for problem in problems_in(HOSTS[host], names) if problem.is_twin]

    assert twin.message == (
        f"{HOSTS[host].title} has one name, '{same}', for the tools '{names[0]}' and '{names[1]}'"
    )


def test_without_a_host_all_of_them_count() -> None:
    (problem,) = long_names(["x" * 48, "y" * 49])

    assert problem.message == (
        f"the name '{'y' * 49}' has 49 characters: Claude Code may refuse it, Codex ends it with a hash"
    )


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_that_does_not_read_its_list_again_is_named(host: str) -> None:
    relists = LIMITS.get(host, HostLimits()).relists

    assert bool(unseen_tools(HOSTS[host])) is (relists in ("no", "sometimes"))


# The command

TOOLS = '[{"name":"a.b","inputSchema":{}},{"name":"a_b","inputSchema":{}}]'


def somebody(folder: Path, **more: Any) -> Person:
    """A person with a server whose tools have two names that some hosts write alike."""
    person = newcomer(folder)
    tools = person.folder / "tools.json"
    tools.write_text(TOOLS)
    dev = {"mcpServers": {"files": entry(f"tools={tools}")}}
    write_config(person.folder, {"toolMode": "dynamic", "toolboxes": {"dev": dev}, **more})
    return person


def codes(done: Done) -> list[str]:
    return [problem["code"] for problem in done.data["problems"]]


def test_check_names_what_the_host_would_mix_up_and_not_see(tmp_path: Path) -> None:
    person = somebody(tmp_path)

    done = person.types("check", "--connect", "--host", "codex")

    assert done.status == 0
    assert "Codex has one name, 'mcp__workbench__dev__files__a_b', for the tools" in done.err
    assert "Codex does not read its list of tools again after a toolbox was opened" in done.err
    assert "mcp-workbench install codex --toolbox NAME" in done.err


def test_check_finds_nothing_where_the_host_has_no_trouble(tmp_path: Path) -> None:
    person = somebody(tmp_path)

    assert codes(person.types("check", "--connect", "--json", "--host", "zed")) == []
    assert codes(person.types("check", "--json", "--host", "codex")) == [
        "WB-HOST-519",
        "WB-HOST-520",
    ]
    told = person.types("install", "codex", "--toolbox", "dev", "--yes", "--edit")
    assert "list of tools again" not in told.err
    assert codes(person.types("check", "--json", "--host", "codex")) == ["WB-HOST-519"]


def test_install_names_a_host_that_would_see_no_tool(tmp_path: Path) -> None:
    person = somebody(tmp_path)

    done = person.types("install", "codex", "zed", "--yes", "--edit")

    assert done.err.count("its list of tools again after a toolbox was opened") == 1
    assert "Codex does not read" in done.err


@pytest.mark.parametrize("settings", [{"toolMode": "proxy"}, {"naming": "bare"}])
def test_a_host_sees_all_that_there_is_in_other_modes(
    tmp_path: Path, settings: dict[str, str]
) -> None:
    person = somebody(tmp_path, **settings)

    assert "WB-HOST-520" not in codes(person.types("check", "--json", "--host", "codex"))


def test_an_unknown_host_is_named_with_the_nearest_one(tmp_path: Path) -> None:
    done = somebody(tmp_path).types("check", "--host", "cursr")

    assert done.status == 2
    assert "there is no host 'cursr'" in done.err
    assert "Did you mean 'cursor'?" in done.err
