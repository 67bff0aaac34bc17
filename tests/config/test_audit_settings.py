"""`audit` in the configuration: on, off, required, or in detail."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.config.audit_settings import LogUnusable, audit_key, audit_path
from mcp_workbench.config.load import load_config
from mcp_workbench.config.validate import validate
from mcp_workbench.core.spec import AuditSettings
from tests.kit.config import write_config

SERVERS = {"a": {"command": "x"}, "b": {"command": "x", "auditArguments": True}}


def settings(value: Any) -> AuditSettings | None:
    snapshot, findings = validate({"mcpServers": SERVERS, "audit": value}, {}, "/folder")
    assert findings == []
    return snapshot.audit


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (False, None),
        (True, AuditSettings()),
        ("required", AuditSettings(required=True)),
        ({}, None),
        ({"required": True}, AuditSettings("", "/folder", required=True)),
        (
            {"file": "calls", "maxBytes": 65536, "files": 2},
            AuditSettings("calls", "/folder", 65536, 2),
        ),
    ],
)
def test_what_it_may_be(value: Any, expected: AuditSettings | None) -> None:
    assert settings(value) == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("yes", 'must be true, false, "required" or an object, not "yes"'),
        (1, 'must be true, false, "required" or an object, not a number'),
        ({"file": ""}, "must not be empty"),
        ({"maxBytes": 1000}, "must be a whole number from 65536 up, not 1000"),
        ({"files": 0}, "must be a whole number from 1 up, not 0"),
        ({"arguments": "all"}, "must be true or false, not a string"),
    ],
)
def test_what_it_may_not_be(value: Any, message: str) -> None:
    _, findings = validate({"mcpServers": SERVERS, "audit": value}, {})

    assert [finding.message for finding in findings] == [message]
    assert findings[0].path[0] == "audit"


@pytest.mark.parametrize(("arguments", "expected"), [(False, [False, True]), (True, [True, True])])
def test_a_server_s_entry_decides_about_arguments(arguments: bool, expected: list[bool]) -> None:
    value = {"mcpServers": SERVERS, "audit": {"arguments": arguments, "files": 5}}
    servers = validate(value, {})[0].toolboxes["default"].servers

    assert [servers[name].audit_arguments for name in "ab"] == expected


def test_the_file_is_beside_the_configuration_or_in_the_state_folder(tmp_path: Path) -> None:
    value = {"mcpServers": SERVERS, "audit": {"file": "${WHERE}/calls"}}
    given = load_config(write_config(tmp_path, value)).audit
    assert given is not None
    home = {"MCP_WORKBENCH_HOME": str(tmp_path / "home")}

    assert audit_path(given, {"WHERE": "logs"}) == str(tmp_path / "logs" / "calls")
    assert audit_path(given, {"WHERE": "/var"}) == "/var/calls"
    assert audit_path(AuditSettings(), home) == str(tmp_path / "home" / "audit" / "calls.jsonl")
    with pytest.raises(LogUnusable, match="variable WHERE is not set"):
        audit_path(given, {})
    with pytest.raises(LogUnusable, match="there is no folder"):
        audit_path(AuditSettings(), {})
    assert not (tmp_path / "home").exists()


def test_the_key_is_made_once_and_is_private(tmp_path: Path) -> None:
    home = {"MCP_WORKBENCH_HOME": str(tmp_path / "home")}
    key = audit_key(home)

    assert audit_key(home) == key
    assert len(key) == 32
    file = tmp_path / "home" / "audit" / "key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    file.write_bytes(b"short")
    with pytest.raises(OSError, match="damaged"):
        audit_key(home)
