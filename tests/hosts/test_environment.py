"""An imported server keeps the environment that its host gave it, or the output says what it loses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.samples import FILES
from tests.kit.command import Person, newcomer

SET = {"AWS_PROFILE": "work", "SSH_AUTH_SOCK": "/run/agent", "EDITOR": "vi"}


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return newcomer(tmp_path)


def has(person: Person, host: str, **servers: dict[str, Any]) -> None:
    file = person.home / FILES[host][0]
    file.parent.mkdir(parents=True, exist_ok=True)
    key = {"zed": "context_servers", "vscode": "servers"}.get(host, "mcpServers")
    file.write_text(json.dumps({key: servers}))
    file.chmod(0o600)


def imported(person: Person) -> dict[str, Any]:
    return json.loads(person.config.read_text())["toolboxes"]["default"]["mcpServers"]


@pytest.mark.parametrize("host", ["claude-code", "vscode", "zed"])
def test_of_a_host_that_passes_everything_on_everything_is_inherited(
    person: Person, host: str
) -> None:
    has(person, host, aws={"type": "stdio", "command": "aws-mcp"})

    done = person.types("import", host, "--yes", **SET)

    assert imported(person)["aws"] == {"command": "aws-mcp", "inheritEnv": True}
    assert 'so "inheritEnv" stands in these entries: aws' in done.out
    assert "AWS_PROFILE" not in done.out


def test_a_secret_of_one_server_is_not_inherited_by_the_others(person: Person) -> None:
    token = {"GITHUB_TOKEN": "ghp_0123456789abcdef0123456789abcdef0123"}
    has(person, "claude-code", aws={"command": "aws-mcp"}, hub={"command": "hub-mcp", "env": token})

    person.types("import", "claude-code", "--yes")

    servers = imported(person)
    assert servers["aws"] == {"command": "aws-mcp", "inheritEnv": ["*", "!GITHUB_TOKEN"]}
    assert servers["hub"]["env"] == {"GITHUB_TOKEN": "${GITHUB_TOKEN}"}


def test_nor_by_those_of_a_later_import(person: Person) -> None:
    token = {"GITHUB_TOKEN": "ghp_0123456789abcdef0123456789abcdef0123"}
    has(person, "cursor", hub={"command": "hub-mcp", "env": token})
    has(person, "claude-code", aws={"command": "aws-mcp"})
    person.types("import", "cursor", "--yes")

    person.types("import", "claude-code", "--yes")

    assert imported(person)["aws"]["inheritEnv"] == ["*", "!GITHUB_TOKEN"]


def test_of_gemini_what_looks_like_a_secret_is_not_inherited(person: Person) -> None:
    has(person, "gemini", aws={"command": "aws-mcp"})

    person.types("import", "gemini", "--yes")

    assert imported(person)["aws"]["inheritEnv"][:2] == ["*", "!*TOKEN*"]


def test_a_host_that_passes_little_on_loses_nothing(person: Person) -> None:
    has(person, "claude-desktop", aws={"command": "aws-mcp"})

    done = person.types("import", "claude-desktop", "--yes", **SET)

    assert imported(person)["aws"] == {"command": "aws-mcp"}
    assert "AWS_PROFILE" not in done.out


def test_of_a_host_of_which_that_is_not_known_the_loss_is_named(person: Person) -> None:
    has(person, "cursor", aws={"command": "aws-mcp"})

    done = person.types("import", "cursor", "--dry-run", **SET)
    data = person.types("import", "cursor", "--yes", "--json", **SET).data

    assert (
        "Cursor may have passed on AWS_PROFILE, SSH_AUTH_SOCK, which servers here do not get; "
        'write "inheritEnv": ["AWS_PROFILE"] in the entry of a server that needs it'
    ) in done.out
    assert data["notInherited"] == ["AWS_PROFILE", "SSH_AUTH_SOCK"]
    assert imported(person)["aws"] == {"command": "aws-mcp"}


def test_a_url_inherits_nothing(person: Person) -> None:
    has(person, "claude-code", issues={"type": "http", "url": "https://example.com/mcp"})

    person.types("import", "claude-code", "--yes")

    assert imported(person)["issues"] == {"url": "https://example.com/mcp"}


def test_a_host_passes_on_what_a_server_inherits_by_name(person: Person) -> None:
    entry = {"command": "aws-mcp", "inheritEnv": ["AWS_PROFILE", "KUBE*", "!X"]}
    person.config.write_text(json.dumps({"mcpServers": {"aws": entry}}))
    has(person, "cursor")

    person.types("install", "cursor", "--yes")

    file = json.loads((person.home / FILES["cursor"][0]).read_text())
    assert file["mcpServers"]["workbench"]["env"] == {"AWS_PROFILE": "${env:AWS_PROFILE}"}
