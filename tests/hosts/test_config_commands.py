"""`init`, `remove`, `enable`, `disable` and `list` as a person meets them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.hosts.samples import demo, tree
from tests.kit.command import Person, newcomer

COMMENTED = """{
  // all of my work
  "toolboxes": {
    "dev": {
      "mcpServers": {
        "basics": %(basics)s,  // keep me
        "other": {"command": "other-server", "args": ["--token", "value-that-nobody-may-see"]},
      },
    },
    "home": {"mcpServers": {"basics": %(basics)s, "site": {"url": "https://example.com/mcp"}}},
  },
}
"""


@pytest.fixture
def person(tmp_path: Path) -> Person:
    person = newcomer(tmp_path)
    person.config.write_text(COMMENTED % {"basics": json.dumps(demo())})
    return person


def own_config(person: Person) -> Path:
    return person.home / ".config" / "mcp-workbench" / "config.json"


@pytest.mark.parametrize("user", [False, True])
def test_init_writes_a_commented_file_that_every_command_accepts(
    tmp_path: Path, user: bool
) -> None:
    person = newcomer(tmp_path)
    file = own_config(person) if user else person.config

    done = person.types("init", "--toolbox", "dev", *(["--user"] if user else []))

    assert (done.status, done.out.split()[1:]) == (
        0,
        [
            "~/.config/mcp-workbench/config.json" if user else "workbench-config.json",
            *["undo:", "mcp-workbench", "undo", "1"],
        ],
    )
    assert "// A toolbox is a named group of servers" in file.read_text()
    checked = person.types("check", "--json").data
    assert (checked["config"], checked["toolboxes"]) == (str(file), 1)
    assert [problem["message"] for problem in checked["problems"]] == [
        "toolbox 'dev' has no server"
    ]
    assert person.types("undo").status == 0
    assert not file.exists()
    assert not own_config(person).parent.exists()


def test_init_never_replaces_a_file(person: Person) -> None:
    before = tree(person.folder)

    done = person.types("init", "--json")

    assert (done.status, done.failure["code"]) == (2, "WB-HOST-517")
    assert tree(person.folder) == before


def test_a_folder_that_others_can_write_to_is_no_place_for_it(tmp_path: Path) -> None:
    person = newcomer(tmp_path)
    person.folder.chmod(0o777)

    done = person.types("init")

    assert "it will be refused: its folder" in done.err


def test_remove_leaves_everything_else_as_it_was(person: Person) -> None:
    before = person.config.read_text()

    done = person.types("remove", "other", "--yes")

    assert (done.status, "✔ removed dev/other" in done.err) == (0, True)
    line = next(line for line in before.splitlines() if '"other"' in line)
    assert person.config.read_text() == before.replace(f"{line}\n", "")
    assert "value-that-nobody-may-see" not in done.out
    person.types("undo")
    assert person.config.read_text() == before


def test_a_name_in_two_toolboxes_needs_its_toolbox(person: Person) -> None:
    done = person.types("remove", "basics", "--yes")
    assert done.status == 2
    assert "fix: name one of: dev/basics, home/basics" in done.err

    wrong = person.types("remove", "othr", "--yes", "--json").failure
    assert (wrong["code"], wrong["fix"]) == ("WB-CLI-003", "Did you mean 'other'?")

    assert person.types("remove", "home/basics", "--yes", "--json").data["servers"] == [
        "home/basics"
    ]


def test_a_disabled_server_is_listed_but_not_served(person: Person) -> None:
    before = person.config.read_text()

    person.types("disable", "dev/basics", "site", "--yes")

    listed = person.types("list", "--json").data
    assert [(s["toolbox"], s["server"], s["enabled"]) for s in listed] == [
        ("dev", "basics", False),
        ("dev", "other", True),
        ("home", "basics", True),
        ("home", "site", False),
    ]
    assert "// keep me" in person.config.read_text()
    assert person.types("tools", "dev/basics").status == 2
    again = person.types("disable", "dev/basics")  # nothing to confirm
    assert (again.status, again.out) == (0, "dev/basics: disabled already\n")

    person.types("enable", "dev/basics", "home/site", "--yes")
    assert person.config.read_text() == before


def test_without_a_yes_nothing_happens(person: Person) -> None:
    before = tree(person.folder)
    for command in ("remove", "disable"):
        done = person.types(command, "other")
        assert (done.status, "WB-HOST-503" in done.err) == (2, True)
        assert person.types(command, "other", "--dry-run").status == 0
    assert tree(person.folder) == before


def test_the_list_shows_what_is_started_without_secrets(person: Person) -> None:
    done = person.types("list")

    rows = [line.split() for line in done.out.splitlines()]
    assert rows[2][:5] == ["dev/other", "enabled", "other-server", "--token", "[hidden]"]
    assert rows[4] == ["home/site", "enabled", "https://example.com/mcp"]
    assert done.err == "4 servers   workbench-config.json\n"
    assert person.types("list", "home", "--json").data[0]["server"] == "basics"


def test_without_a_file_there_is_nothing_to_change(tmp_path: Path) -> None:
    person = newcomer(tmp_path)

    assert person.types("remove", "basics", "--json").failure["code"] == "WB-HOST-509"
    done = person.types("list")
    assert "no configuration file was found, so this is the built-in demo" in done.err
    assert "demo/basics" in done.out


def test_servers_of_the_file_are_completed_disabled_ones_too(person: Person) -> None:
    person.types("disable", "site", "--yes")

    done = person.types(_MCP_WORKBENCH_COMPLETE="enable\nsi")

    assert done.out.split() == ["plain", "site"]
