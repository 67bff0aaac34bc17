"""Clients that prove themselves with a private key, at a real authorization server that knows the public one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.authorization_server import (
    AuthorizationServer,
    ProtectedServer,
    authorization_server,
    protected_server,
)
from tests.kit.clock import eventually
from tests.kit.private_keys import key_file, pem, private_key, public_keys
from tests.peers.test_sign_in import Place

pytestmark = [pytest.mark.peers, pytest.mark.usefixtures("workplace")]

KEYS = {algorithm: private_key(algorithm) for algorithm in ("RS256", "ES256", "EdDSA")}
REDIRECT = "http://127.0.0.1/callback"  # of a native client: any port will do


def clients() -> Iterator[dict[str, Any]]:
    """One for each kind of key, for programs and for people."""
    for algorithm, key in KEYS.items():
        proof = {"token_endpoint_auth_method": "private_key_jwt", "jwks": public_keys(key)}
        machine = {"grant_types": ["client_credentials"], "response_types": []}
        yield {"client_id": f"robot-{algorithm}", "redirect_uris": [], **machine, **proof}
        person = {"grant_types": ["authorization_code", "refresh_token"]}
        native = {"application_type": "native", "redirect_uris": [REDIRECT]}
        yield {"client_id": f"desk-{algorithm}", **native, **person, **proof}


@pytest.fixture(scope="module")
def issuer(workplace: object) -> Iterator[AuthorizationServer]:
    with authorization_server(clients=list(clients()), accessTokenSeconds=4) as server:
        yield server


@pytest.fixture(scope="module")
def server(issuer: AuthorizationServer) -> Iterator[ProtectedServer]:
    with protected_server(issuer.issuer, "mcp") as running:
        yield running


def place(
    folder: Path, issuer: AuthorizationServer, server: ProtectedServer, id: str, **more: Any
) -> Place:
    key_file(folder, KEYS[id.partition("-")[2]])
    return Place(folder, issuer, server.url, clientId=id, privateKey="client-key.pem", **more)


@pytest.mark.parametrize("algorithm", KEYS)
def test_a_machine_signs_in_with_its_key(
    tmp_path: Path, issuer: AuthorizationServer, server: ProtectedServer, algorithm: str
) -> None:
    id = f"robot-{algorithm}"
    robot = place(tmp_path, issuer, server, id, grant="client_credentials")
    assert robot.whoami()["client"] == id
    [stored] = robot.home.glob("credentials/*.json")
    assert b"PRIVATE KEY" not in stored.read_bytes()


def test_a_person_signs_in_through_a_client_with_a_key_and_it_lasts(
    tmp_path: Path, issuer: AuthorizationServer, server: ProtectedServer
) -> None:
    desk = place(tmp_path, issuer, server, "desk-ES256")
    done = desk.run("login", "dev/p")
    assert done.returncode == 0, done.stderr
    refreshed = {"client": "desk-ES256", "grant": "refresh_token"}

    def called_after_a_refresh() -> bool:
        assert desk.whoami()["sub"] == "alice"
        return issuer.count("token", **refreshed) > 0

    eventually(called_after_a_refresh, "the token is refreshed with an assertion")
    assert issuer.count("refused", client="desk-ES256") == 0
    assert "revoked" in desk.run("logout", "dev/p").stdout


def test_a_key_that_the_server_does_not_know_is_refused(
    tmp_path: Path, issuer: AuthorizationServer, server: ProtectedServer
) -> None:
    robot = place(tmp_path, issuer, server, "robot-ES256", grant="client_credentials")
    (tmp_path / "client-key.pem").write_bytes(pem(private_key("ES256")))
    done = robot.run("login", "dev/p")
    assert done.returncode == 1
    assert "WB-AUTH-003" in done.stderr
    assert json.loads(robot.run("check", "--json").stdout)["signIns"] == []


def test_a_call_says_why_the_key_can_not_be_used(
    tmp_path: Path, issuer: AuthorizationServer, server: ProtectedServer
) -> None:
    robot = place(tmp_path, issuer, server, "robot-ES256", grant="client_credentials")
    (tmp_path / "client-key.pem").unlink()
    done = robot.run("call", "dev/p/whoami")
    assert done.returncode != 0
    assert "client-key.pem can't be read (No such file or directory)" in done.stderr
