"""From a host that signs in by itself to the workbench: import, log in, take the entry away."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import Any

import pytest

from tests.kit.authorization_server import (
    PERSON,
    AuthorizationServer,
    ProtectedServer,
    authorization_server,
    protected_server,
)
from tests.kit.command import READS, newcomer

pytestmark = [pytest.mark.peers, pytest.mark.usefixtures("workplace")]

CLIENT: dict[str, Any] = {
    "client_id": "registered-for-cursor",
    "token_endpoint_auth_method": "none",
    "application_type": "native",
    "redirect_uris": ["http://127.0.0.1/callback"],
    "grant_types": ["authorization_code", "refresh_token"],
}


@pytest.fixture
def issuer(workplace: object) -> Iterator[AuthorizationServer]:
    with authorization_server(clients=[CLIENT], registration=False) as server:
        yield server


@pytest.fixture
def server(issuer: AuthorizationServer) -> Iterator[ProtectedServer]:
    with protected_server(issuer.issuer, "mcp") as running:
        yield running


def test_an_entry_that_its_host_signs_in_to_goes_after_a_login_here(
    tmp_path: Path, issuer: AuthorizationServer, server: ProtectedServer
) -> None:
    """The authorization server registers nobody: only the client of the host's entry gets in."""
    person = newcomer(tmp_path)
    cursor = person.home / ".cursor/mcp.json"
    cursor.parent.mkdir()
    theirs = {"url": server.url, "auth": {"CLIENT_ID": CLIENT["client_id"]}}
    cursor.write_text(json.dumps({"mcpServers": {"hub": theirs}}))
    cursor.chmod(0o600)

    imported = person.types("import", "--yes", **READS)
    assert imported.status == 0, imported.err
    assert "  mcp-workbench login default/hub\n" in imported.err
    config = json.loads(person.config.read_text())
    hub = config["toolboxes"]["default"]["mcpServers"]["hub"]
    hub["auth"]["allowedOrigins"] = [issuer.origin]  # it is on this machine
    person.config.write_text(json.dumps(config))

    kept = person.types("install", "cursor", "--replace", "--yes")
    assert "fix: mcp-workbench login default/hub" in kept.out + kept.err
    assert "hub" in json.loads(cursor.read_text())["mcpServers"]

    signed_in = person.types("login", "default/hub", BROWSER=quote(str(PERSON)), PERSON="alice")
    assert signed_in.status == 0, signed_in.err
    assert person.types("install", "cursor", "--replace", "--yes").status == 0
    assert list(json.loads(cursor.read_text())["mcpServers"]) == ["workbench"]
    assert (
        json.loads(person.types("call", "default/hub/whoami").out)["client"]
        == "registered-for-cursor"
    )
