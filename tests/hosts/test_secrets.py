"""Secrets in the files of hosts: found, replaced by variables, and never shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_workbench.hosts.edit_toml import put
from mcp_workbench.hosts.plan import Change, diff
from mcp_workbench.hosts.read import HostServer
from mcp_workbench.hosts.secrets import Vault, is_secret, masked

SECRET = st.text(st.sampled_from('abcXYZ019-_./+=$%{}"\\ü '), min_size=3).map(
    lambda text: f"7q{text}7q"
)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("API_KEY", "x"),
        ("github_token", "abc"),
        ("X-Auth", "abc"),
        ("PGPASSWORD", "pw"),
        ("GH_PAT", "abc"),
        ("DATABASE", "postgres://u:p@host/db"),
        ("ANYTHING", "ghp_0123456789abcdef"),
        ("Authorization", "Bearer abc"),
    ],
)
def test_these_are_secrets(name: str, value: str) -> None:
    assert is_secret(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("API_KEY", "${API_KEY}"),
        ("Authorization", "Bearer ${T}"),
        ("KEY_FILE", "/etc/key.pem"),
        ("AUTH_TYPE", "oauth"),
        ("TOKEN", ""),
        ("USE_AUTH", "true"),
        ("PATH", "/usr/bin"),
        ("DATABASE", "postgres://localhost/db"),
        ("COMPATIBLE", "yes please"),
    ],
)
def test_these_are_none(name: str, value: str) -> None:
    assert not is_secret(name, value)


@pytest.mark.parametrize(
    ("entry", "ours"),
    [
        ({"headers": {"Authorization": "Bearer abc"}}, {"headers": {"Authorization": "Bearer ${S_TOKEN}"}}),
        ({"headers": {"X-Api-Key": "abc"}}, {"headers": {"X-Api-Key": "${X_API_KEY}"}}),
        ({"args": ["--api-key=abc", "x"]}, {"args": ["--api-key=${S_API_KEY}", "x"]}),
        ({"args": ["--token", "abc", "x"]}, {"args": ["--token", "${S_TOKEN}", "x"]}),
        ({"args": ["--verbose", "abc"]}, {"args": ["--verbose", "abc"]}),
        ({"args": ["--header", "Authorization: Bearer abc"]}, {"args": ["--header", "Authorization: Bearer ${S_TOKEN}"]}),
        ({"args": ["mysql://u:p@h/d"]}, {"args": ["${S_URL}"]}),
        ({"url": "https://h/mcp?api_key=abc&x=1"}, {"url": "https://h/mcp?api_key=${S_API_KEY}&x=1"}),
        ({"url": "https://u:p@h/mcp"}, {"url": "https://${S_LOGIN}@h/mcp"}),
        ({"url": "https://h/@scope/mcp"}, {"url": "https://h/@scope/mcp"}),
    ],
)  # fmt: skip
def test_a_variable_stands_in_its_place(entry: dict[str, Any], ours: dict[str, Any]) -> None:
    vault = Vault()

    assert vault.cleaned(HostServer("s", "cursor", "f", entry), "s") == ours
    assert bool(vault.taken) == (entry != ours)


def test_two_values_never_share_a_variable_and_one_value_has_one() -> None:
    vault = Vault(frozenset({"TAKEN"}))

    names = [
        vault.variable("KEY", "a", "1"),
        vault.variable("KEY", "b", "2"),
        vault.variable("KEY", "c", "1"),
        vault.variable("TAKEN", "d", "3"),
    ]

    assert names == ["KEY", "B_KEY", "KEY", "D_TAKEN"]


def places(secret: str) -> dict[str, Any]:
    """Everywhere that a secret may stand in an entry."""
    return {
        "command": "x",
        "args": ["--token", secret, f"--password={secret}", f"https://u:{secret}@h"],
        "env": {"ANY": secret, "API_KEY": secret},
        "headers": {"X": f"Bearer {secret}"},
        "api_key": secret,
    }


@given(SECRET)
@settings(deadline=None)
def test_a_preview_shows_no_secret(secret: str) -> None:
    entry = places(secret.replace("/", "").replace(" ", "").replace("${", ""))
    text = json.dumps({"mcpServers": {"a": entry}}, indent=2, ensure_ascii=False)

    assert "7q" not in masked(text, "json")
    assert "7q" not in masked(json.dumps({"mcpServers": {"a": entry}}), "json")
    assert "7q" not in masked(put("", ("mcp_servers", "a"), entry), "toml")
    assert "7q" not in masked(put("", ("mcp_servers",), {"a": entry}), "toml")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LOG_LEVEL", "debug"),
        ("REGION", "eu-west-1"),
        ("PORT", "8080"),
        ("TZ", "Europe/Paris"),
        ("ROOT", "/home/ada/notes"),
        ("API", "https://api.example.com:8443/v1"),
        ("Accept", "application/json"),
    ],
)
def test_a_preview_shows_what_is_plainly_no_secret(name: str, value: str) -> None:
    for key in ("env", "headers"):
        text = json.dumps({"mcpServers": {"a": {key: {name: value}}}})
        assert masked(text, "json") == text
    text = f'[mcp_servers.a.env]\n{name} = "{value}"\n'
    assert masked(text, "toml") == text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ANY", "9fK2mQ7xT4"),
        ("ANY", "3f9c0e5d-1b2c-4d5e-8f90-a1b2c3d4e5f6"),
        ("ANY", "qwertyuiopasdfghjk"),
        ("ANY", "open sesame"),
        ("ANY", "Bearer abc"),
        ("PASSPHRASE", "sesame"),
        ("PIN", "1234"),
        ("API_KEY", "debug"),
        ("HOOK", "https://hooks.example.com/services/T0A1B2/zz9"),
    ],
)
def test_a_preview_hides_what_may_be_one(name: str, value: str) -> None:
    text = json.dumps({"mcpServers": {"a": {"env": {name: value}}}})
    assert value not in masked(text, "json")
    assert value not in masked(f'[mcp_servers.a.env]\n{name} = "{value}"\n', "toml")


def test_a_preview_shows_what_changes_and_where() -> None:
    lines = [f'  "k{n}": {n},' for n in range(10_000)]
    old = "{\n" + "\n".join(lines) + '\n  "env": {"T": "abc"}\n}\n'
    new = old.replace('"k5000": 5000', '"k5000": 1')
    change = Change("", Path("f"), "json", old.encode(), new.encode())

    assert diff(change) == [
        "@@ line 4999 @@",
        '   "k4997": 4997,',
        '   "k4998": 4998,',
        '   "k4999": 4999,',
        '-  "k5000": 5000,',
        '+  "k5000": 1,',
        '   "k5001": 5001,',
        '   "k5002": 5002,',
        '   "k5003": 5003,',
    ]
