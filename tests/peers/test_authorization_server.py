"""The bench for signing in: a real authorization server, a person, a protected server, and the SDK's client as judge."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from mcp.shared.auth import OAuthClientInformationFull
from oauth_host import REDIRECT, SignIn, host, said

from tests.kit.authorization_server import (
    RESOURCE_SERVER,
    SDK1,
    AuthorizationServer,
    authorization_server,
    browser_variables,
    protected_server,
)
from tests.kit.authorization_server.person import NotSignedIn, sign_in
from tests.kit.clock import eventually
from tests.kit.results import MODERN

pytestmark = [pytest.mark.peers, pytest.mark.usefixtures("workplace")]

RESOURCE = "http://127.0.0.1:1/mcp"
DEVICE_CODE = "urn:ietf:params:oauth:grant-type:device_code"
DOCUMENT = "https://client.example/metadata.json"


@pytest.fixture(scope="module")
def issuer(workplace: object) -> Iterator[AuthorizationServer]:
    with authorization_server() as server:
        yield server


@pytest.mark.parametrize("mode", ["legacy", MODERN])
async def test_a_person_signs_in_and_the_server_knows_who_it_is(
    issuer: AuthorizationServer, mode: str
) -> None:
    consents = issuer.count("consent")
    registered = issuer.count("registered")
    with protected_server(issuer.issuer, "mcp") as server:
        async with host(server.url, SignIn(server.url), mode) as client:
            who = json.loads(await said(client, "whoami"))
            total = await said(client, "add", a=2, b=3)

    assert (who["sub"], who["scopes"], total) == ("alice", ["mcp"], "5")
    assert issuer.count("consent") == consents + 1
    assert issuer.count("registered") == registered + 1


async def test_the_server_may_be_one_of_version_1_and_the_issuer_may_have_a_path() -> None:
    """Version 1 adds a slash to an issuer without a path, which clients then compare with the one that has none."""
    with (
        authorization_server(path="/tenant") as issuer,
        protected_server(issuer.issuer, "mcp", python=SDK1) as server,
    ):
        async with host(server.url, SignIn(server.url), "legacy") as client:
            who = json.loads(await said(client, "whoami"))
        seen = len(server.tokens_seen())

    assert (who["sub"], who["scopes"]) == ("alice", ["mcp"])
    assert seen > 0


async def test_a_tool_may_need_one_more_scope(issuer: AuthorizationServer) -> None:
    """The client is registered before: the SDK's own registration names scopes, and is kept to them."""
    consents = issuer.count("consent")
    with protected_server(issuer.issuer, "mcp") as server:
        person = SignIn(server.url)
        metadata = person.metadata.model_dump(mode="json", exclude_none=True)
        person.storage.client = OAuthClientInformationFull(
            **metadata, client_id=register(issuer, metadata), issuer=issuer.issuer
        )
        async with host(server.url, person) as client:
            done = await said(client, "administer")
            who = json.loads(await said(client, "whoami"))

    assert (done, who["scopes"]) == ("done", ["admin", "mcp"])
    assert issuer.count("consent") == consents + 2


async def test_a_client_may_be_known_by_its_document() -> None:
    document = {
        "client_id": DOCUMENT,
        "client_name": "judge",
        "redirect_uris": [REDIRECT],
        "grant_types": ["authorization_code", "refresh_token"],
        "token_endpoint_auth_method": "none",
        "application_type": "native",
    }
    with (
        authorization_server(documents={DOCUMENT: document}, opaque=True) as issuer,
        protected_server(issuer.issuer, "mcp") as server,
    ):
        async with host(server.url, SignIn(server.url, document=DOCUMENT)) as client:
            who = json.loads(await said(client, "whoami"))
        registered = issuer.count("registered")
        asked = issuer.count("request", path="/token/introspection", status=200)

    assert (who["client"], registered) == (DOCUMENT, 0)
    assert asked > 0


async def test_a_refresh_token_that_is_used_twice_revokes_its_grant(
    issuer: AuthorizationServer,
) -> None:
    with protected_server(issuer.issuer, "mcp") as server:
        person = SignIn(server.url)
        async with host(server.url, person) as client:
            await said(client, "whoami")
        assert person.storage.tokens is not None
        assert person.storage.client is not None
        first = person.storage.tokens.refresh_token
        client_id = person.storage.client.client_id
        assert first is not None
        assert client_id is not None

        def refresh(token: str) -> dict[str, Any]:
            form = {"grant_type": "refresh_token", "refresh_token": token, "client_id": client_id}
            return issuer.request("/token", form)

        second = refresh(first)
        again = refresh(first)
        after = refresh(second["refresh_token"])

    assert second["refresh_token"] != first
    assert (again["error"], after["error"]) == ("invalid_grant", "invalid_grant")
    assert issuer.count("reused", client=client_id) == 1
    assert issuer.count("revoked", client=client_id) == 1
    assert issuer.count("token", client=client_id, grant="refresh_token") == 1


async def test_consent_may_be_refused(issuer: AuthorizationServer) -> None:
    with protected_server(issuer.issuer, "mcp") as server:
        person = SignIn(server.url, deny=True)
        with pytest.raises(BaseExceptionGroup):
            async with host(server.url, person):
                pass

    assert "error=access_denied" in person.landed
    assert issuer.count("denied", error="access_denied") == 1


def test_a_machine_gets_a_token_of_its_own(issuer: AuthorizationServer) -> None:
    token = issuer.machine_token(RESOURCE, "mcp")
    about = issuer.request("/token/introspection", {"token": token}, RESOURCE_SERVER)
    form = {"grant_type": "client_credentials", "resource": RESOURCE}
    answer = issuer.request("/token", {**form, "client_id": "machine-post", "client_secret": "no"})

    assert token.count(".") == 2
    assert about["error"] == "unsupported_token_type"  # only others are to be asked about
    assert answer["error"] == "invalid_client"
    assert issuer.count("token", grant="client_credentials") == 1


def test_a_device_is_allowed_in_by_a_person_elsewhere(issuer: AuthorizationServer) -> None:
    metadata = {
        "grant_types": [DEVICE_CODE, "refresh_token"],
        "response_types": [],
        "redirect_uris": [],
        "token_endpoint_auth_method": "none",
        "application_type": "native",
    }
    client = register(issuer, metadata)
    form = {"client_id": client, "scope": "mcp", "resource": RESOURCE}
    device = issuer.request("/device/auth", form)
    poll = {"grant_type": DEVICE_CODE, "device_code": device["device_code"], "client_id": client}
    before = issuer.request("/token", poll)
    sign_in(device["verification_uri_complete"])
    after = issuer.request("/token", poll)

    assert before["error"] == "authorization_pending"
    assert after["access_token"].count(".") == 2


def register(issuer: AuthorizationServer, metadata: dict[str, Any]) -> str:
    answer = httpx2.post(f"{issuer.issuer}/reg", json=metadata, trust_env=False)
    assert answer.status_code == 201, answer.text
    return answer.json()["client_id"]


def test_faults_begin_and_end_when_asked(issuer: AuthorizationServer) -> None:
    url = f"{issuer.issuer}/.well-known/oauth-authorization-server"
    issuer.change(faults={"/.well-known/oauth-authorization-server": {"status": 503}})
    broken = httpx2.get(url, trust_env=False)
    issuer.change(faults={})
    whole = httpx2.get(url, trust_env=False)

    assert (broken.status_code, whole.status_code) == (503, 200)
    assert whole.json()["issuer"] == issuer.issuer


def test_pages_that_lead_nowhere_are_an_error(issuer: AuthorizationServer) -> None:
    with pytest.raises(NotSignedIn):
        sign_in(f"{issuer.issuer}/auth?client_id=nobody")


def test_the_person_can_be_the_browser_of_a_command(issuer: AuthorizationServer) -> None:
    """The page is that of a device: there is no client to come back to."""
    metadata = {
        "grant_types": [DEVICE_CODE],
        "response_types": [],
        "redirect_uris": [],
        "token_endpoint_auth_method": "none",
        "application_type": "native",
    }
    form = {"client_id": register(issuer, metadata), "scope": "mcp", "resource": RESOURCE}
    device = issuer.request("/device/auth", form)
    program = f"import webbrowser; assert webbrowser.open({device['verification_uri_complete']!r})"
    subprocess.run([sys.executable, "-c", program], env=browser_variables("bob"), check=True)

    def answer() -> dict[str, Any]:
        code = {"grant_type": DEVICE_CODE, "device_code": device["device_code"]}
        return issuer.request("/token", {**code, "client_id": form["client_id"]})

    eventually(lambda: "access_token" in answer(), "the person has signed in")
