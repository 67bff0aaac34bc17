"""`add` as a person meets it: every kind of source, checked by connecting, with secrets kept out."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.config import jsonc
from tests.hosts.samples import demo, tree
from tests.kit.command import Person, newcomer, serving
from tests.kit.config import argv, config_file, entry

pytestmark = pytest.mark.usefixtures("forked_commands")

DEMO = (sys.executable, "-P", "-m", "mcp_workbench.demo", "basics")
LEAN = argv()  # starts in a third of the time
SECRET = "sk-value-that-nobody-may-see"


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return newcomer(tmp_path)


def own_config(person: Person) -> Path:
    return person.home / ".config" / "mcp-workbench" / "config.json"


def lean() -> dict[str, Any]:
    return {"command": LEAN[0], "args": list(LEAN[1:])}


def servers(file: Path, toolbox: str = "default") -> dict[str, Any]:
    value: Any = jsonc.parse(file.read_text())
    return value["toolboxes"][toolbox]["mcpServers"]


@pytest.mark.parametrize("name", ["0001 (copy).json", "1x.json", "9" * 40 + ".json"])
def test_a_copy_in_the_journal_of_changes_is_no_change(person: Person, name: str) -> None:
    journal = person.home / ".mcp-workbench" / "journal"
    journal.mkdir(0o700, parents=True)
    (journal / name).write_text("{}")

    done = person.types("add", "basics", "--yes", "--no-check", "--", *DEMO)

    assert done.status == 0
    assert "undo: mcp-workbench undo 1" in done.err
    assert person.types("undo").status == 0


def test_a_command_is_tried_and_then_written_where_every_folder_finds_it(person: Person) -> None:
    done = person.types("add", "basics", "--yes", "--", *DEMO)

    assert done.status == 0
    assert "✔ default/basics: demo-basics 1.0.0, 4 tools" in done.err
    assert "written   undo: mcp-workbench undo 1" in done.err
    assert servers(own_config(person)) == {"basics": demo()}
    assert own_config(person).stat().st_mode & 0o777 == 0o600
    elsewhere = Person(person.home, person.home)
    assert elsewhere.types("call", "default/basics/add", "a:=2", "b:=3").out == "5\n"
    assert elsewhere.types("undo").status == 0
    assert not own_config(person).parent.exists()


def test_options_of_the_command_are_its_own(person: Person) -> None:
    done = person.types(
        *(
            "add",
            "it",
            "--no-check",
            "--yes",
            "--",
            "npx",
            "-y",
            "pkg",
            "--json",
            '{"a": 1}',
            "--",
            "-q",
        )
    )

    assert done.status == 0
    assert servers(own_config(person))["it"] == {
        "command": "npx",
        "args": ["-y", "pkg", "--json", '{"a": 1}', "--", "-q"],
    }


def test_a_server_that_does_not_answer_is_not_written(person: Person) -> None:
    before = tree(person.home)

    done = person.types("add", "gone", "--yes", "--", "no-such-command")

    assert done.status == 4
    assert "error: server 'gone' is not available, so nothing was written" in done.err
    assert "command not found: no-such-command" in done.err
    assert "with --no-check" in done.err
    assert not own_config(person).exists()
    failure = person.types("add", "gone", "--yes", "--json", "--", "no-such-command")
    assert json.loads(failure.err.splitlines()[-1])["code"] == "WB-CONN-101"
    assert person.types("add", "gone", "--yes", "--no-check", "--", "no-such-command").status == 0
    assert "gone" in servers(own_config(person))
    assert before != tree(person.home)


def test_secrets_become_variables_and_the_check_has_their_values(
    person: Person, tmp_path: Path
) -> None:
    """The server behind the URL wants a token: only with the value does the check succeed."""
    behind = config_file(tmp_path, {"a": entry()})
    token = "token-that-nobody-may-see"
    with serving(behind, env={"MCP_WORKBENCH_HTTP_TOKEN": token}) as port:
        header = f"Authorization: Bearer {token}"
        done = person.types("add", "issues", port.url, "--header", header, "--yes")
        wrong = person.types("add", "other", port.url, "--header", header + "x", "--yes")

    assert (done.status, wrong.status) == (0, 4)
    assert servers(own_config(person)) == {
        "issues": {"url": port.url, "headers": {"Authorization": "Bearer ${ISSUES_TOKEN}"}}
    }
    assert "  export ISSUES_TOKEN=…" in done.err
    for text in (done.out, done.err, wrong.out, wrong.err, own_config(person).read_text()):
        assert token not in text


def test_secrets_of_a_command_become_variables(person: Person) -> None:
    more = ("--env", f"API_KEY={SECRET}", "-e", "PLAIN=1", "-e", "HERE")

    done = person.types("add", "basics", *more, "--yes", "--", *LEAN, HERE="x")

    assert done.status == 0, done.err
    assert servers(own_config(person))["basics"]["env"] == {
        "API_KEY": "${API_KEY}",
        "PLAIN": "1",
        "HERE": "${HERE}",
    }
    assert "env.API_KEY is a literal secret, so ${API_KEY} stands there instead" in done.out
    assert "  export API_KEY=…" in done.err
    assert SECRET not in done.out + done.err + own_config(person).read_text()
    again = person.types("add", "basics", *more, "--yes", "--", *LEAN, HERE="x")
    assert (again.status, "basics: there already" in again.out) == (0, True)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (["it"], json.dumps(lean())),
        ([], json.dumps({"name": "it", **lean()})),
        ([], json.dumps({"mcpServers": {"it": lean()}})),
        ([], json.dumps({"it": lean()})),
        (["it"], json.dumps({"other": lean()})),
    ],
)
def test_json_in_every_form_that_hosts_use(person: Person, name: list[str], text: str) -> None:
    done = person.types("add", *name, "--json", text, "--yes")

    assert (done.status, servers(own_config(person))) == (0, {"it": lean()}), done.err


def test_json_of_our_own_keeps_every_key(person: Person) -> None:
    ours = {**demo(), "toolFilters": ["add"], "scope": "session", "timeout": 5}

    done = person.types("add", "it", json.dumps(ours), "--yes", "--json")

    assert done.data["servers"][0]["tools"] == 1
    assert done.data["written"] is True
    assert servers(own_config(person)) == {"it": ours}


def test_the_file_of_the_folder_is_used_and_its_comments_stay(person: Person) -> None:
    text = '{\n  // mine\n  "toolboxes": {\n    "dev": {"mcpServers": {}},  // empty\n  },\n}\n'
    person.config.write_text(text)

    assert person.types("add", "basics", "--yes", "--", *LEAN).status == 0

    assert not own_config(person).exists()
    assert servers(person.config, "dev") == {"basics": lean()}
    assert "// mine" in person.config.read_text()
    assert "// empty" in person.config.read_text()
    person.types("add", "two", "--toolbox", "home", "--yes", "--", *LEAN)
    assert servers(person.config, "home") == {"two": lean()}
    several = person.types("add", "three", "--yes", "--", *LEAN)
    assert (several.status, "fix: name one: --toolbox dev|home" in several.err) == (2, True)
    person.types("undo", "--all")
    assert person.config.read_text() == text


def test_a_name_is_replaced_only_on_request(person: Person) -> None:
    person.types("add", "it", "--yes", "--no-check", "--", "one")

    done = person.types("add", "it", "--yes", "--no-check", "--json", '{"command": "two"}')
    assert (done.status, "WB-HOST-516" in done.err) == (2, True)

    person.types("add", "it", "--replace", "--yes", "--no-check", "--", "two")
    assert servers(own_config(person)) == {"it": {"command": "two"}}
    person.types("undo")
    assert servers(own_config(person)) == {"it": {"command": "one"}}


def test_a_program_of_this_folder_is_written_with_its_path(person: Person) -> None:
    (person.folder / "server.sh").write_text("")
    (person.folder / "data.txt").write_text("")

    done = person.types("add", "it", "--no-check", "--yes", "--", "./server.sh", "data.txt")

    assert servers(own_config(person))["it"]["command"] == str(person.folder / "server.sh")
    assert "! it: 'data.txt' means a place in the folder" in done.out


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "name the server"),
        (["time"], "name the server"),
        (["a b", "--", "x"], "a server can't be called 'a b'"),
        (["x", "--header", "a: b", "--", "x"], "--header and --type belong to a URL"),
        (["x", "https://example.com", "--env", "A=b"], "--env belongs to a command"),
        (["x", "--env", "A B=c", "--", "x"], "'A B' is not the name of a variable"),
        (["x", "https://example.com", "--header", "nothing"], "a header has no name or no value"),
        (["x", "--", "mcp-workbench", "serve"], "that is this program"),
        (["--json", '{"command": "x"}'], "the server has no name"),
        (["x", "--json", '{"command": 5, "url": 6}'], "there are no servers in it"),
        (["x", "--json", '{"command": "x", "args": 5}'], "must be a list"),
        (["x", "--json", '{"command": "x", "args": "y", "env": {"A": 1}}'], "must be a list"),
        (["--json", "[1]"], "the JSON of a server must be an object"),
        (["x", "--json", " [1]"], "the JSON of a server must be an object"),
        (["x", "--json", '"text"'], "the JSON of a server must be an object"),
        (["x", "--user", "--config", "a.json", "--", "x"], "--user can't stand together"),
    ],
)
def test_a_mistake_is_named_and_nothing_is_written(
    person: Person, words: list[str], reason: str
) -> None:
    done = person.types("add", *words, "--yes")

    assert (done.status, reason in done.err) == (2, True), done.err
    assert tree(person.home) == tree(person.home / "nothing")


def test_without_an_entry_behind_it_json_asks_for_json(person: Person) -> None:
    done = person.types("add", "--json", "x")

    assert done.failure["message"] == "name the server, and say what it is"


def test_a_url_names_its_server(person: Person) -> None:
    person.types("add", "https://mcp.linear.app/mcp", "--no-check", "--yes")

    assert servers(own_config(person)) == {"linear": {"url": "https://mcp.linear.app/mcp"}}


def test_without_a_yes_only_the_preview_is_shown(person: Person) -> None:
    done = person.types("add", "gone", "--", "no-such-command")
    dry = person.types("add", "gone", "--dry-run", "--", "no-such-command")

    assert (done.status, dry.status) == (2, 0)
    assert '+        "gone": {' in dry.out
    assert "nothing was written" not in done.err + dry.err  # it was not even started
    assert not own_config(person).exists()


def test_a_file_of_another_user_is_not_changed(person: Person) -> None:
    """A folder that others can write to stands for it: the rules are the same."""
    person.config.write_text('{"mcpServers": {}}')
    person.folder.chmod(0o777)

    done = person.types("add", "it", "--no-check", "--yes", "--json", '{"command": "x"}')

    assert (done.status, "WB-CONF-009" in done.err) == (2, True)
    assert person.config.read_text() == '{"mcpServers": {}}'
