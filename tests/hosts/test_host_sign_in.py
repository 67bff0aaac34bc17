"""Servers that a host signs in to by itself: what is carried over, and that a login is needed here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.config.validate import validate
from mcp_workbench.core.spec import AuthSettings, HttpEndpoint
from mcp_workbench.hosts.files import Machine
from mcp_workbench.hosts.host_sign_in import has_no_credential
from mcp_workbench.hosts.read import read_entry
from mcp_workbench.hosts.table import HOSTS
from tests.hosts.test_replace import verdict
from tests.kit.command import READS, HttpCommand, Person, newcomer, serving
from tests.kit.config import config_file, entry

pytestmark = pytest.mark.usefixtures("forked_commands")

AROUND = Machine(Path("/home/ada"), Path("/home/ada/work"), {})
URL = "https://mcp.example.com/mcp"
SECRET = "client-secret-that-nobody-may-see"
REDIRECT = "its client must allow the redirect address {}, which login uses here"
ANY_PORT = REDIRECT.format("http://127.0.0.1/callback")


@pytest.mark.parametrize(
    ("host", "raw", "auth", "notes"),
    [
        (
            "claude-code",
            {"oauth": {"clientId": "it", "callbackPort": 8080, "scopes": "read write"}},
            {"clientId": "it", "redirectPort": 8080, "scopes": ["read", "write"]},
            [REDIRECT.format("http://127.0.0.1:8080/callback")],
        ),
        ("vscode", {"oauth": {"clientId": "it"}}, {"clientId": "it"}, [ANY_PORT]),
        (
            "cursor",
            {"auth": {"CLIENT_ID": "it", "CLIENT_SECRET": "${env:S}", "scopes": ["read"]}},
            {"clientId": "it", "clientSecret": "${S}", "scopes": ["read"]},
            [ANY_PORT],
        ),
        (
            "codex",
            {"scopes": ["a"], "oauth": {"client_id": "it", "callback_url": "http://127.0.0.1:99/callback"}},
            {"clientId": "it", "redirectPort": 99, "scopes": ["a"]},
            [REDIRECT.format("http://127.0.0.1:99/callback")],
        ),
        (
            "gemini",
            {"type": "http", "oauth": {"enabled": True, "clientId": "it", "tokenUrl": "https://a/t"}},
            {"clientId": "it"},
            ["not carried: oauth.tokenUrl", ANY_PORT],
        ),
        ("opencode", {"oauth": {"scope": "a b"}}, {"scopes": ["a", "b"]}, []),
        ("opencode", {"oauth": False}, None, []),
        ("copilot", {"oauthClientId": "it", "oauthPublicClient": True}, {"clientId": "it"}, [ANY_PORT]),
        ("kiro", {"oauth": {"redirectUri": "http://example.com:9/x"}}, None, ["not carried: oauth.redirectUri"]),
        ("cursor", {"auth": {"CLIENT_ID": 7}}, None, ["not carried: auth.CLIENT_ID"]),
    ],
)  # fmt: skip
def test_what_an_entry_says_about_signing_in_is_carried_over(
    host: str, raw: dict[str, Any], auth: dict[str, Any] | None, notes: list[str]
) -> None:
    found = read_entry("s", {"url": URL, **raw}, HOSTS[host], "f", AROUND)

    assert found.entry.get("auth") == auth
    assert list(found.notes) == notes
    _, problems = validate({"mcpServers": {"s": found.entry}}, {"S": "x"})
    assert [problem.code for problem in problems] == []


@pytest.mark.parametrize(
    ("ours", "expected"),
    [
        ({"url": URL}, True),
        ({"url": URL, "headers": {"X-Team": "a"}}, True),
        ({"url": URL, "headers": {"Authorization": "Bearer x"}}, False),
        ({"url": URL, "headers": {"x-api-key": "x"}}, False),
        ({"url": "https://ada:pw@mcp.example.com/mcp"}, False),
        ({"command": "x"}, False),
    ],
)
def test_a_host_may_sign_in_where_no_credential_is_sent(
    ours: dict[str, Any], expected: bool
) -> None:
    assert has_no_credential(ours) == expected


def test_a_client_of_another_name_may_be_another_account() -> None:
    ours = HttpEndpoint(URL, auth=AuthSettings("mine"))
    theirs = {"url": URL, "auth": {"CLIENT_ID": "theirs"}}

    assert verdict({**theirs, "auth": {"CLIENT_ID": "mine"}}, ours) == "dev/it"
    assert verdict(theirs, ours).startswith("auth.clientId is not the same in dev/it")


# With a server that answers 401


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return newcomer(tmp_path)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory, forked_commands: None) -> Path:
    return config_file(tmp_path_factory.mktemp("served"), {"a": entry()})


@pytest.fixture(scope="module")
def guarded(config: Path) -> Iterator[HttpCommand]:
    with serving(config, env={"MCP_WORKBENCH_HTTP_TOKEN": "t" * 32}) as port:
        yield port


@pytest.fixture(scope="module")
def open_to_all(config: Path) -> Iterator[HttpCommand]:
    with serving(config) as port:
        yield port


def has(person: Person, **servers: dict[str, Any]) -> Path:
    file = person.home / ".cursor/mcp.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"mcpServers": servers}))
    file.chmod(0o600)
    return file


def test_import_keeps_a_server_that_wants_a_login_and_says_the_command(
    person: Person, guarded: HttpCommand
) -> None:
    client = {"CLIENT_ID": "it", "CLIENT_SECRET": SECRET}
    has(person, hub={"url": guarded.url, "auth": client})

    done = person.types("import", "--yes", **READS)

    assert done.status == 0, done.err
    assert (
        "these want a login here, as in their hosts:\n  mcp-workbench login default/hub\n"
    ) in done.err
    assert "doctor" not in done.err
    [hub] = json.loads(person.config.read_text())["toolboxes"]["default"]["mcpServers"].values()
    assert hub["auth"] == {"clientId": "it", "clientSecret": "${HUB_CLIENT_SECRET}"}
    assert SECRET not in done.out + done.err + person.config.read_text()
    again = person.types("import", "--yes", **READS)
    assert "hub (there already)" in again.out


def test_import_as_json_has_the_command(person: Person, guarded: HttpCommand) -> None:
    has(person, hub={"url": guarded.url})

    done = person.types("import", "--yes", "--json", **READS)

    [hub] = done.data["servers"]
    assert hub["login"] == "mcp-workbench login default/hub"
    assert hub["tools"] is None


def test_without_a_check_import_names_servers_that_may_want_a_login(person: Person) -> None:
    token = {"Authorization": "Bearer ${T}"}
    has(person, hub={"url": URL}, fixed={"url": f"{URL}/2", "headers": token})

    done = person.types("import", "--yes", "--no-check")

    assert (
        "these may want a login here, if their hosts sign in to them:\n"
        "  mcp-workbench login default/hub\n"
    ) in done.err
    assert "login default/fixed" not in done.err


def test_add_writes_a_server_that_wants_a_login_and_says_the_command(
    person: Person, guarded: HttpCommand
) -> None:
    done = person.types("add", "hub", guarded.url, "--yes")

    assert done.status == 0, done.err
    assert "default/hub: it wants a login: mcp-workbench login default/hub" in done.err
    assert "written   undo: mcp-workbench undo 1" in done.err
    document = person.types("add", "other", f"{guarded.url}?x=1", "--yes", "--json").data
    assert [s["login"] for s in document["servers"]] == ["mcp-workbench login default/other"]


def test_a_host_keeps_a_server_that_nobody_has_signed_in_to_here(
    person: Person, guarded: HttpCommand
) -> None:
    file = has(person, hub={"url": guarded.url})
    before = file.read_text()
    person.types("import", "--yes")

    done = person.types("install", "cursor", "--replace", "--yes", "--json")

    assert done.status == 0
    assert done.data["kept"]["cursor"] == [
        {
            "server": "hub",
            "reason": "its host signs in to it, and nobody has signed in here   "
            "fix: mcp-workbench login default/hub",
        }
    ]
    kept = json.loads(file.read_text())["mcpServers"]
    assert kept["hub"] == json.loads(before)["mcpServers"]["hub"]


@pytest.mark.parametrize("signs_in", [False, True])
def test_a_server_that_asks_nobody_goes_unless_the_host_says_that_it_signs_in(
    person: Person, open_to_all: HttpCommand, signs_in: bool
) -> None:
    more = {"auth": {"CLIENT_ID": "it"}} if signs_in else {}
    file = has(person, hub={"url": open_to_all.url, **more})
    person.types("import", "--yes")

    done = person.types("install", "cursor", "--replace", "--yes")

    assert done.status == 0
    assert ("hub" in json.loads(file.read_text())["mcpServers"]) == signs_in
