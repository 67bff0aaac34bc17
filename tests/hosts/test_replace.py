"""`install --replace` takes away only what is served here, and `uninstall` puts it back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.config import jsonc
from mcp_workbench.core.spec import HttpEndpoint, ServerAddress, ServerSpec, StdioCommand
from mcp_workbench.hosts.files import HostFile, Machine
from mcp_workbench.hosts.replacement import OwnServers, judge
from mcp_workbench.hosts.table import HOSTS
from tests.kit.command import Done, Person, newcomer
from tests.kit.config import argv


def server(name: str) -> dict[str, Any]:
    """The entry of a server that can be started; each name is another one."""
    command, *args = argv(f"says={name}")
    return {"command": command, "args": args}


TOKEN = "made-up-token-of-ada"
OTHER = "made-up-token-of-somebody-else"
SET = {"WORKSHOP_TOKEN": TOKEN}
BASICS, WORKSHOP = server("basics"), server("workshop")
TEXT = f"""{{
  // servers of mine
  "mcpServers": {{
    // the first one
    "basics": {json.dumps(BASICS)}, // fine
    "gone": {{"command": "no-such-program-anywhere"}},
    "workshop": {{
      "command": {json.dumps(WORKSHOP["command"])},
      "args": {json.dumps(WORKSHOP["args"])},
      // my own account
      "env": {{"WORKSHOP_TOKEN": "{TOKEN}"}}
    }}
  }},
  "other": 1
}}
"""
TOML = f"""# settings
model = "o5"

# the first one
[mcp_servers.basics]  # fine
command = {json.dumps(BASICS["command"])}
args = {json.dumps(BASICS["args"])} # no more

[mcp_servers.gone]
command = "no-such-program-anywhere"

# the end
[tui]
notifications = true
"""


@pytest.fixture
def ada(tmp_path: Path) -> Person:
    """Her servers are in Cursor, and imported."""
    person = newcomer(tmp_path)
    written(person, ".cursor/mcp.json", TEXT)
    assert person.types("import", "--yes").status == 0
    return person


def written(person: Person, name: str, text: str) -> Path:
    path = person.home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def cursor(person: Person) -> Path:
    return person.home / ".cursor/mcp.json"


def servers(path: Path) -> dict[str, Any]:
    return jsonc.parse(path.read_text())["mcpServers"]


def reasons(done: Done, host: str = "cursor") -> dict[str, str]:
    return {entry["server"]: entry["reason"] for entry in done.data["kept"].get(host, [])}


# What goes, and what stays


def test_an_entry_goes_only_if_its_server_was_connected_here(ada: Person) -> None:
    done = ada.types("install", "cursor", "--replace", "--yes", **SET)

    assert done.status == 0
    assert list(servers(cursor(ada))) == ["gone", "workbench"]
    assert "\ncursor keeps:\n! gone: default/gone is not available: command not found" in done.out
    assert "default/basics: ready (" in done.err
    assert TOKEN not in done.out + done.err


def test_what_goes_and_what_stays_is_data_as_well(ada: Person) -> None:
    before = cursor(ada).read_text()

    done = ada.types("install", "cursor", "--replace", "--dry-run", "--json", **SET)

    assert done.data["removed"] == {"cursor": ["basics", "workshop"]}
    assert list(reasons(done)) == ["gone"]
    assert not done.data["written"]
    assert cursor(ada).read_text() == before


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({}, "variable WORKSHOP_TOKEN is not set and has no default"),
        ({"WORKSHOP_TOKEN": OTHER}, "env.WORKSHOP_TOKEN is not the same in default/workshop"),
    ],
    ids=["not set", "another"],
)
def test_an_entry_with_another_account_than_ours_stays(
    ada: Person, variables: dict[str, str], reason: str
) -> None:
    done = ada.types("install", "cursor", "--replace", "--yes", "--json", **variables)

    assert done.data["removed"] == {"cursor": ["basics"]}
    assert reasons(done)["workshop"].startswith(reason)
    assert servers(cursor(ada))["workshop"]["env"] == SET
    assert not [secret for secret in (TOKEN, OTHER) if secret in done.out + done.err]


def test_of_two_accounts_each_is_compared_with_its_own(ada: Person) -> None:
    """The second account alone is in the file, so its variable would be called like that of the first."""
    two = {
        name: WORKSHOP | {"env": {"API_KEY": key}}
        for name, key in (("home", TOKEN), ("work", OTHER))
    }
    source = json.dumps({"mcpServers": two})
    assert ada.types("import", "-", "--yes", "--toolbox", "two", stdin=source).status == 0
    written(ada, ".cursor/mcp.json", json.dumps({"mcpServers": {"work": two["work"]}}))
    install = ("install", "cursor", "--replace", "--json", "--dry-run")

    wrong = ada.types(*install, API_KEY=TOKEN, WORK_API_KEY="a-third-value")
    right = ada.types(*install, API_KEY=TOKEN, WORK_API_KEY=OTHER)

    assert reasons(wrong)["work"].startswith("env.API_KEY is not the same in two/")
    assert right.data["removed"] == {"cursor": ["work"]}


def test_what_is_not_ours_stays_and_is_named(ada: Person) -> None:
    ada.types("disable", "basics", "--yes")
    text = json.dumps(
        {
            "mcpServers": {
                "basics": BASICS,
                "new": {"command": "unheard-of"},
                "helped": {"url": "https://example.com/mcp", "headersHelper": "x"},
            }
        }
    )
    written(ada, ".cursor/mcp.json", text)

    done = ada.types("install", "cursor", "--replace", "--yes", "--json")

    assert reasons(done) == {
        "basics": "default/basics is disabled",
        "new": "no server that the host gets from here is the same   fix: mcp-workbench import cursor",
        "helped": "its headers come from the host's own 'headersHelper'",
    }
    assert list(servers(cursor(ada))) == ["basics", "new", "helped", "workbench"]


def test_a_host_that_passes_no_variables_on_keeps_what_needs_one(ada: Person) -> None:
    path = written(ada, ".lmstudio/mcp.json", TEXT)
    install = ("install", "lmstudio", "--replace", "--yes", "--json")

    done = ada.types(*install, **SET)

    assert reasons(done, "lmstudio")["workshop"].startswith(
        "LM Studio passes no variables on, and default/workshop needs WORKSHOP_TOKEN"
    )
    value = jsonc.parse(path.read_text())
    value["mcpServers"]["workbench"]["env"] = SET
    path.write_text(json.dumps(value))
    assert ada.types(*install, **SET).data["removed"] == {"lmstudio": ["workshop"]}


def test_a_value_that_our_entry_overrides_is_another_account(ada: Person) -> None:
    ada.types("install", "cursor", "--yes", **SET)
    value = jsonc.parse(cursor(ada).read_text())
    value["mcpServers"]["workbench"]["env"]["WORKSHOP_TOKEN"] = OTHER
    cursor(ada).write_text(json.dumps(value))

    done = ada.types("install", "cursor", "--replace", "--yes", "--json", **SET)

    assert (
        reasons(done)["workshop"]
        == "our entry 'workbench' gives WORKSHOP_TOKEN another value there"
    )


def verdict(
    entry: dict[str, Any], target: StdioCommand | HttpEndpoint, host: str = "cursor", **environ: str
) -> str:
    """The server that stands for an entry, or why there is none."""
    known = HOSTS[host]
    file = HostFile(known, Path("/home/ada/mcp.json"), "user")
    machine = Machine(Path("/home/ada"), Path("/work"), environ)
    own = OwnServers([ServerSpec(ServerAddress("dev", "it"), target)], {}, environ)
    (one,) = judge(file, json.dumps({known.keys[0]: {"it": entry}}), own, {}, machine)
    return one.reason.partition(",")[0] or str(one.server)


IT = StdioCommand("it")
URL = "https://example.com/mcp"
BEARER = (("Authorization", "Bearer ${T}"),)


@pytest.mark.parametrize(
    ("entry", "target", "expected"),
    [
        ({"command": "it"}, IT, "dev/it"),
        ({"command": "it", "cwd": "/x"}, IT, "cwd is not the same in dev/it"),
        (
            {"command": "it", "env": {"HOST": "a"}},
            StdioCommand("it", env=(("HOST", "b"),)),
            "env.HOST is not the same in dev/it",
        ),
        ({"command": "it", "env": {"HOST": "a"}}, IT, "env.HOST is not the same in dev/it"),
        ({"command": "it"}, StdioCommand("it", env=(("DEBUG", "1"),)), "dev/it"),
        (
            {"command": "it"},
            StdioCommand("it", env=(("API_KEY", "${T}"),)),
            "env.API_KEY is not the same in dev/it",
        ),
        (
            {"command": "it", "args": ["--token", "t"]},
            StdioCommand("it", ("--token", "${T}")),
            "dev/it",
        ),
        (
            {"command": "it", "args": ["--token", "x"]},
            StdioCommand("it", ("--token", "${T}")),
            "args[1] is not the same in dev/it",
        ),
        (
            {"command": "it", "args": ["--token", "${env:GONE}"]},
            StdioCommand("it", ("--token", "${T}")),
            "variable GONE is not set and has no default (args[1]; fix: export GONE=…   or write ${GONE:-})",
        ),
        ({"url": f"{URL}/"}, HttpEndpoint(URL), "dev/it"),
        (
            {"url": URL, "headers": {"authorization": "Bearer t"}},
            HttpEndpoint(URL, BEARER),
            "dev/it",
        ),
        (
            {"url": URL, "headers": {"Authorization": "Bearer x"}},
            HttpEndpoint(URL, BEARER),
            "headers.authorization is not the same in dev/it",
        ),
        (
            {"url": URL},
            HttpEndpoint(URL, BEARER),
            "headers.authorization is not the same in dev/it",
        ),
        (
            {"url": f"{URL}?key=x"},
            HttpEndpoint(f"{URL}?key=${{T}}"),
            "url is not the same in dev/it",
        ),
        (
            {"command": "it", "envFile": ".env"},
            IT,
            "its variables are in .env",
        ),
        (
            {"command": "it", "env": {"API_KEY": "${input:key}"}},
            StdioCommand("it", env=(("API_KEY", "${KEY}"),)),
            "only the host knows the value of ${input:key}",
        ),
    ],
)
def test_an_account_is_all_that_a_server_is_given(
    entry: dict[str, Any], target: StdioCommand | HttpEndpoint, expected: str
) -> None:
    assert verdict(entry, target, T="t", KEY="k") == expected


def test_what_a_host_lets_its_servers_inherit_counts() -> None:
    """Claude Code gives its servers every variable, and Cursor does not say."""
    ours = StdioCommand("it", env=(("API_KEY", "${API_KEY}"),))

    assert verdict({"command": "it"}, ours, "claude-code", API_KEY="k") == "dev/it"
    assert verdict({"command": "it"}, ours, API_KEY="k").startswith("env.API_KEY is not the same")


# Putting back


def test_uninstall_puts_back_what_was_removed_byte_for_byte(ada: Person) -> None:
    codex = written(ada, ".codex/config.toml", TOML)
    ada.types("install", "cursor", "codex", "--replace", "--yes", **SET)
    assert "basics" not in codex.read_text() + cursor(ada).read_text()

    done = ada.types("uninstall", "cursor", "codex", "--restore", "--yes")

    assert done.status == 0
    assert cursor(ada).read_text() == TEXT
    assert codex.read_text() == TOML
    assert (
        "✔ Removed from Cursor. Put back in Cursor: basics, workshop. Restart Cursor." in done.err
    )
    assert TOKEN not in done.out + done.err


def test_without_the_flag_the_hint_names_the_change_that_removed_them(ada: Person) -> None:
    ada.types("install", "cursor", "--yes")  # 2
    ada.types("install", "cursor", "--replace", "--yes", **SET)  # 3

    done = ada.types("uninstall", "cursor", "--yes")  # 4
    data = ada.types("uninstall", "cursor", "--dry-run", "--json").data

    assert "undo: mcp-workbench undo 4\n" in done.err
    assert (
        "! cursor is without basics, workshop, which `install --replace` has removed   "
        "fix: mcp-workbench uninstall cursor --restore, or mcp-workbench undo 3\n"
    ) in done.err
    assert data["notRestored"] == {"cursor": {"servers": ["basics", "workshop"], "undo": [3]}}
    ada.types("undo", "3")
    assert cursor(ada).read_text() == TEXT


def test_they_can_be_put_back_later_and_once_only(ada: Person) -> None:
    ada.types("install", "cursor", "--replace", "--yes", **SET)
    ada.types("uninstall", "cursor", "--yes")

    later = ada.types("uninstall", "cursor", "--restore", "--yes")
    text = cursor(ada).read_text()
    cursor(ada).write_text('{"mcpServers": {}}')
    again = ada.types("uninstall", "cursor", "--restore", "--yes", "--json")

    assert later.err.startswith("✔ Put back in Cursor: basics, workshop. Restart Cursor.\n")
    assert text == TEXT
    assert (again.data["restored"], again.data["written"]) == ({}, False)


def test_an_entry_that_was_made_since_is_never_overwritten(ada: Person) -> None:
    ada.types("install", "cursor", "--replace", "--yes", **SET)
    value = jsonc.parse(cursor(ada).read_text())
    value["mcpServers"]["basics"] = {"command": "another"}
    cursor(ada).write_text(json.dumps(value, indent=2))

    done = ada.types("uninstall", "cursor", "--restore", "--yes")

    assert servers(cursor(ada))["basics"] == {"command": "another"}
    assert servers(cursor(ada))["workshop"]["env"] == SET
    assert "! basics: it is not the one that was removed" in done.out


def test_a_file_that_has_changed_keeps_its_changes_and_gets_the_comments(ada: Person) -> None:
    ada.types("install", "cursor", "--replace", "--yes", **SET)
    text = cursor(ada).read_text()
    cursor(ada).write_text(
        text.replace('"other": 1', '"other": 2').replace(
            '"gone"', '"mine": {"url": "x"},\n    "gone"'
        )
    )

    ada.types("uninstall", "cursor", "--restore", "--yes")

    expected = TEXT.replace('"other": 1', '"other": 2')
    assert cursor(ada).read_text() == expected.replace(
        '"gone"', '"mine": {"url": "x"},\n    "gone"'
    )


def test_putting_back_can_be_undone(ada: Person) -> None:
    ada.types("install", "cursor", "--replace", "--yes", **SET)
    before = cursor(ada).read_text()
    ada.types("uninstall", "cursor", "--restore", "--yes")

    assert ada.types("undo").status == 0

    assert cursor(ada).read_text() == before
    assert ada.types("undo").status == 0
    assert cursor(ada).read_text() == TEXT
