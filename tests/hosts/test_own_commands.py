"""A host's own command: used where it is there, watched, and never trusted blindly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.hosts.samples import FILES, demo, tree, write_home
from tests.kit.command import Person, newcomer

CODEX = FILES["codex"][0]
# Commands that misbehave in the ways that commands do.
FAULTS = {
    "fails": 'echo "the disk is full" >&2; exit 3',
    "lies": "exit 0",
    "half": 'echo "[mcp_servers.half]" >> "$HOME/.codex/config.toml"; exit 1',
}
OBEYS = (
    '[ "$*" = "mcp remove workbench" ] && { cp "$HOME/before" "$HOME/.codex/config.toml"; exit; }\n'
    'cp "$HOME/.codex/config.toml" "$HOME/before"\n'
    'printf \'\\n[mcp_servers.%s]\\ncommand = "%s"\\n\' "$3" "$5" >> "$HOME/.codex/config.toml"'
)


@pytest.fixture
def person(tmp_path: Path) -> Person:
    person = newcomer(tmp_path)
    write_home(person.home, person.folder, ("cursor", "codex"))
    person.types("import", "-", "--yes", stdin=json.dumps({"mcpServers": {"basics": demo()}}))
    return person._replace(path=f"{tmp_path}/bin:/usr/bin:/bin")


def give_codex(person: Person, script: str) -> None:
    program = person.home.parent / "bin" / "codex"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_it_writes_and_undo_brings_every_byte_back(person: Person) -> None:
    give_codex(person, OBEYS)
    before = (person.home / CODEX).read_bytes()

    installed = person.types("install", "codex", "--yes")
    in_between = (person.home / CODEX).read_text()
    undone = person.types("undo")

    assert "$ codex mcp add workbench -- " in installed.out
    assert in_between.count("[mcp_servers.workbench]") == 1
    assert "args" not in in_between.split("[mcp_servers.workbench]")[1]  # as this host wrote it
    assert undone.out.count("byte for byte") == 1
    assert (person.home / CODEX).read_bytes() == before


def test_it_takes_out_what_it_put_in(person: Person) -> None:
    give_codex(person, OBEYS)
    before = (person.home / CODEX).read_bytes()
    person.types("install", "codex", "--yes")

    done = person.types("uninstall", "codex", "--yes")

    assert "$ codex mcp remove workbench" in done.out
    assert (person.home / CODEX).read_bytes() == before


def test_the_file_can_be_edited_all_the_same(person: Person) -> None:
    give_codex(person, FAULTS["fails"])

    done = person.types("install", "codex", "--yes", "--edit")

    assert done.status == 0
    assert "$ codex" not in done.out
    assert "[mcp_servers.workbench]" in (person.home / CODEX).read_text()


def test_variables_to_hand_on_are_more_than_it_can_write(person: Person) -> None:
    give_codex(person, FAULTS["fails"])
    person.types("import", "cursor", "--yes")

    done = person.types("install", "codex", "--yes")

    assert done.status == 0
    assert 'env_vars = ["GITHUB_PERSONAL_ACCESS_TOKEN"' in (person.home / CODEX).read_text()


@pytest.mark.parametrize("fault", FAULTS)
def test_one_that_fails_leaves_the_file_as_it_was(person: Person, fault: str) -> None:
    give_codex(person, FAULTS[fault])
    before = tree(person.home)

    done = person.types("install", "codex", "--yes")

    assert done.status == 1
    assert "the host's own command 'codex' failed" in done.err
    assert "WB-HOST-504" in done.err
    assert "--edit" in done.err
    assert ("the disk is full" in done.err) == (fault == "fails")
    assert tree(person.home) == before


def test_what_was_done_before_a_failure_can_be_undone(person: Person) -> None:
    give_codex(person, FAULTS["fails"])
    before = tree(person.home)

    done = person.types("install", "cursor", "codex", "--yes")

    assert done.status == 1
    assert "mcp-workbench undo 2 takes back what was done before it" in done.err
    assert "workbench" in json.loads((person.home / FILES["cursor"][0]).read_text())["mcpServers"]
    assert person.types("undo", "2").status == 0
    hosts = {k: v for k, v in tree(person.home).items() if ".mcp-workbench" not in k}
    assert hosts == {k: v for k, v in before.items() if ".mcp-workbench" not in k}
