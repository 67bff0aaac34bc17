"""A home with the files of every host: import, check, install into all, undo all. Nothing is left."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from mcp_workbench.config import jsonc
from mcp_workbench.hosts.table import HOSTS
from tests.hosts.samples import FILES, SECRETS, tree, write_home
from tests.kit.command import Done, Person, newcomer

WRITTEN = [host.id for host in HOSTS.values() if not host.import_only]
VARIABLES = {"POSTGRES_URL", "GITHUB_PERSONAL_ACCESS_TOKEN", "X_FIGMA_TOKEN", "LINEAR_API_KEY"}


@pytest.fixture
def person(tmp_path: Path) -> Person:
    person = newcomer(tmp_path)
    write_home(person.home, person.folder)
    return person


def tells_no_secret(*runs: Done) -> bool:
    shown = "".join(run.out + run.err for run in runs)
    return not [name for name, secret in SECRETS.items() if secret in shown]


def test_there_is_a_sample_of_every_host() -> None:
    assert set(FILES) == set(HOSTS) - {"roo"}  # which has nothing in a home folder


@pytest.mark.parametrize("replace", [[], ["--replace"]], ids=["beside", "instead"])
def test_the_whole_road_and_back_again(person: Person, replace: list[str]) -> None:
    before = tree(person.home)

    imported = person.types("import", "--yes")
    checked = person.types("check")
    installed = person.types("install", "--all", "--yes", *replace)
    in_between = tree(person.home)
    listed = person.types("undo", "--list", "--json").data
    back = person.types("undo", "--all")

    runs = (imported, checked, installed, back)
    assert [run.status for run in runs] == [0, 0, 0, 0]
    assert tells_no_secret(*runs)
    assert [record["command"] for record in listed] == ["import", "install"]
    assert len(listed[1]["files"]) == len(WRITTEN)
    changed = {name for name in before if in_between[name] != before[name]}
    assert changed == {FILES[host][0] for host in WRITTEN}
    after = {k: v for k, v in tree(person.home).items() if not k.startswith(".mcp-workbench")}
    assert after == before
    assert not person.config.exists()


def test_an_import_brings_every_server_once(person: Person) -> None:
    data = person.types("import", "--yes", "--json").data
    text = person.config.read_text("utf-8")
    boxes = json.loads(text)["toolboxes"]
    servers = [name for box in boxes.values() for name in box["mcpServers"]]

    assert data["written"]
    assert len(servers) == len(set(servers))
    assert data["undo"] == 1
    assert {"basics", "github", "local", "figma", "docs", "search", "files", "files-crush"} <= set(
        servers
    )
    assert not {"events", "pipe", "extension", "other", "breeze"} & set(servers)
    assert {line["variable"] for line in data["variables"]} >= VARIABLES
    assert not [secret for secret in SECRETS.values() if secret in text]
    assert person.config.stat().st_mode & 0o777 == 0o600
    assert person.types("import", "--json", "--dry-run").data["changes"] == []  # nothing is new


def test_every_host_finds_our_entry_where_it_looks(person: Person) -> None:
    person.types("import", "--yes")
    person.types("install", "--all", "--yes")

    for host in map(HOSTS.__getitem__, WRITTEN):
        text = (person.home / FILES[host.id][0]).read_text("utf-8")
        value = tomllib.loads(text) if host.format == "toml" else jsonc.parse(text)
        for key in (*host.keys, "workbench"):
            value = value[key]
        words: list[str] = [*value["command"]] if host.id == "opencode" else [value["command"]]
        words += value.get("args", [])
        assert Path(words[0]).is_absolute()
        assert Path(words[0]).exists()
        assert words[-3:] == ["serve", "--config", str(person.config)]


def test_a_second_install_changes_nothing_and_uninstall_takes_it_out(person: Person) -> None:
    before = tree(person.home)
    person.types("import", "--yes")
    person.types("install", "--all", "--yes")

    again = person.types("install", "--all", "--yes")
    out = person.types("uninstall", "--all", "--yes")

    assert again.out.count("there already") == len(WRITTEN)
    assert out.status == 0
    after = {k: v for k, v in tree(person.home).items() if not k.startswith(".mcp-workbench")}
    assert after == before  # every sample has entries, so taking ours out leaves no trace


def test_what_we_keep_for_undo_is_for_nobody_else(person: Person) -> None:
    person.types("import", "--yes")
    person.types("install", "cursor", "--yes")

    kept = tree(person.home / ".mcp-workbench")

    assert len(kept) == 5
    assert {mode for mode, data in kept.values() if data is None} == {0o700}
    assert {mode for mode, data in kept.values() if data is not None} == {0o600}
