"""`import` and `add` move literal secrets into the store, and `install --replace` knows them there."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.config import jsonc
from mcp_workbench.config.secret_store import SecretStore
from tests.kit.command import READS, Person, newcomer
from tests.kit.config import argv

if sys.platform == "win32":
    pytest.skip("there are no pseudo-terminals here", allow_module_level=True)

from tests.kit.terminal import terminal

VALUE = "ghp_0123456789abcdefghij"
NAME = "GITHUB_TOKEN"


def server(value: str = VALUE) -> dict[str, Any]:
    command, *args = argv()
    return {"command": command, "args": args, "env": {NAME: value}}


def in_cursor(person: Person, **servers: dict[str, Any]) -> Path:
    path = person.home / ".cursor/mcp.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


@pytest.fixture
def ada(tmp_path: Path) -> Person:
    person = newcomer(tmp_path)
    in_cursor(person, github=server())
    return person


def config(person: Person) -> dict[str, Any]:
    return jsonc.parse(person.config.read_text())


def stored(person: Person) -> dict[str, Any]:
    store = SecretStore(str(person.home / ".mcp-workbench"))
    return dict(store.read(store.names()))


def given(person: Person, where: str = "default/github") -> str:
    done = person.types("call", f"{where}/env", "--json")
    assert done.status == 0, done.err
    return json.loads(done.data["content"][0]["text"])["env"][NAME]


def test_imported_servers_work_at_once(ada: Person) -> None:
    done = ada.types("import", "--yes", "--secrets", "store", **READS)

    assert done.status == 0, done.err
    assert VALUE not in done.out + done.err + ada.config.read_text()
    assert config(ada)["secrets"] == {NAME: "store"}
    assert stored(ada) == {NAME: VALUE}
    assert "export" not in done.err
    assert "default: 1 server" in done.err
    assert given(ada) == VALUE


def test_a_second_import_adds_nothing(ada: Person) -> None:
    ada.types("import", "--yes", "--secrets", "store")
    before = ada.config.read_text()

    done = ada.types("import", "--yes", "--secrets", "store", "--json")

    assert [one["state"] for one in done.data["servers"]] == ["there"]
    assert ada.config.read_text() == before


def test_without_the_option_nothing_changes(ada: Person) -> None:
    done = ada.types("import", "--yes", "--json")

    assert (done.data["stored"], "secrets" in config(ada)) == (False, False)
    assert stored(ada) == {}


def test_a_dry_run_stores_nothing_and_shows_no_value(ada: Person) -> None:
    done = ada.types("import", "--dry-run", "--secrets", "store")

    assert f'"{NAME}": "store"' in done.out
    assert VALUE not in done.out + done.err
    assert stored(ada) == {}


def test_a_name_with_another_value_in_the_store_is_not_reused(ada: Person) -> None:
    ada.types("secret", "set", NAME, stdin="of-another-account")

    ada.types("import", "--yes", "--secrets", "store")

    assert config(ada)["secrets"] == {f"GITHUB_{NAME}": "store"}
    assert stored(ada) == {NAME: "of-another-account", f"GITHUB_{NAME}": VALUE}
    assert given(ada) == VALUE


def test_a_terminal_offers_the_store(ada: Person) -> None:
    env = ada.environ(TERM="xterm", NO_COLOR="1")
    with terminal("import", cwd=ada.folder, env=env) as screen:
        screen.expect("move it there? [Y/n]")
        screen.type("\n")
        screen.expect("write this? [y/N]")
        screen.type("y\n")
        assert screen.rest() == 0

    assert VALUE not in screen.screen
    assert stored(ada) == {NAME: VALUE}


def test_a_no_leaves_it_to_variables(ada: Person) -> None:
    env = ada.environ(TERM="xterm", NO_COLOR="1")
    with terminal("import", cwd=ada.folder, env=env) as screen:
        screen.expect("move it there? [Y/n]")
        screen.type("n\n")
        screen.expect("write this? [y/N]")
        screen.type("y\n")
        assert screen.rest() == 0

    assert f"export {NAME}=…" in screen.screen
    assert stored(ada) == {}


def test_add_moves_a_literal_secret(tmp_path: Path) -> None:
    person = newcomer(tmp_path)
    command = ["--env", f"{NAME}={VALUE}", "--", *argv()]

    done = person.types("add", "github", "--yes", "--secrets", "store", *command)

    assert done.status == 0, done.err
    assert VALUE not in done.out + done.err
    assert f"in the encrypted store: {NAME}   (mcp-workbench secret list)" in done.err
    assert stored(person) == {NAME: VALUE}
    assert given(person) == VALUE


def test_a_server_that_is_not_added_leaves_nothing_in_the_store(tmp_path: Path) -> None:
    person = newcomer(tmp_path)
    command = ["--env", f"{NAME}={VALUE}", "--", "no-such-program"]

    done = person.types("add", "github", "--yes", "--secrets", "store", *command)

    assert done.status == 4
    assert VALUE not in done.out + done.err
    assert stored(person) == {}


def test_a_server_whose_secret_is_in_our_store_is_ours(ada: Person) -> None:
    ada.types("import", "--yes", "--secrets", "store")

    done = ada.types("install", "cursor", "--replace", "--yes")

    assert done.status == 0, done.err
    assert VALUE not in done.out + done.err
    entries = json.loads((ada.home / ".cursor/mcp.json").read_text())["mcpServers"]
    assert list(entries) == ["workbench"]
    assert NAME not in json.dumps(entries)


def test_another_value_than_the_stored_one_is_another_account(ada: Person) -> None:
    ada.types("import", "--yes", "--secrets", "store")
    ada.types("secret", "set", NAME, stdin="of-another-account")

    done = ada.types("install", "cursor", "--replace", "--yes", **{NAME: VALUE})

    entries = json.loads((ada.home / ".cursor/mcp.json").read_text())["mcpServers"]
    assert "github" in entries
    assert "another account" in done.out
    assert VALUE not in done.out + done.err


def test_a_host_need_not_pass_on_what_is_stored(ada: Person) -> None:
    ada.types("import", "--yes", "--secrets", "store")
    ada.types("install", "cursor", "--yes")

    codes = [line["code"] for line in ada.types("doctor", "--json").data["lines"]]

    assert "WB-HOST-515" not in codes
