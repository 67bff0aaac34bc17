"""Documents of a sign-in: read, or refused with a short reason; nothing that a terminal obeys is kept for people."""

# What is made up has no types.
# pyright: basic

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from hypothesis import strategies as st

from mcp_workbench.protocol import oauth, oauth_tokens
from mcp_workbench.protocol.oauth import (
    LONGEST_CHALLENGE,
    LONGEST_REASON,
    AuthorizationRequest,
    AuthorizationServer,
    OAuthClient,
    SignInFailed,
)
from mcp_workbench.transport.http.urls import parse_url
from mcp_workbench.upstream.oauth.outgoing import Outgoing
from tests.fuzz.effort import fuzzed, size
from tests.fuzz.material import mutated, values

SERVER = "https://server.example/mcp"
ISSUER = "https://login.example/a"
LEFT_OUT = object()

urls = st.sampled_from(
    [
        *(
            SERVER,
            ISSUER,
            "https://login.example/token",
            "http://127.0.0.1/x",
            "https://[::1]/",
            "",
        ),
        *("javascript:alert(1)", "https://a@b/", "//x", "https://a:99999/", "https://\u2100/"),
    ]
)
members = st.one_of(urls, values, st.lists(urls, max_size=3))
NAMES = [
    *("resource", "authorization_servers", "scopes_supported", "issuer", "token_endpoint"),
    *("authorization_endpoint", "code_challenge_methods_supported", "access_token", "expires_in"),
    *(
        "refresh_token",
        "token_type",
        "scope",
        "id_token",
        "error",
        "error_description",
        "client_id",
    ),
    *("client_secret_expires_at", "device_code", "user_code", "verification_uri", "interval"),
]
documents = st.dictionaries(st.sampled_from(NAMES), members, max_size=size(8)).map(
    lambda value: json.dumps(value).encode()
)


def refused(read: Any, *given: Any) -> Any:
    """What was read; LEFT_OUT if it was refused, in words that may be shown."""
    try:
        return read(*given)
    except SignInFailed as error:
        reason = str(error)
    assert reason.isprintable()
    assert 0 < len(reason) <= LONGEST_REASON
    return LEFT_OUT


headers = st.sampled_from(
    [
        'Bearer resource_metadata="https://a/b", scope="a b", error="x"',
        'Basic realm="x, bearer y", Bearer scope=a',
        "bearer",
        "Bearer a = b , c=d",
    ]
)


@fuzzed(mutated(headers.map(str.encode), 4), st.integers(1, 3000))
def test_a_challenge_is_read(data: bytes, repeated: int) -> None:
    header = data.decode("latin-1") * repeated
    challenge = oauth.read_challenge(header)

    assert len(challenge.resource_metadata) <= LONGEST_CHALLENGE
    assert len(challenge.scopes) <= oauth.MOST_SCOPES
    assert all(scope.isascii() and scope.isprintable() for scope in challenge.scopes)
    for url in refused(oauth.resource_metadata_urls, SERVER, challenge):
        refused(Outgoing((), {}).checked, url)


@fuzzed(documents | mutated(documents, 3), urls)
def test_metadata_is_read_or_refused(data: bytes, issuer: str) -> None:
    resource = refused(oauth.read_resource, data, SERVER, SERVER)
    if resource is not LEFT_OUT:
        assert oauth.covers(resource.resource, SERVER)
    server = refused(oauth.read_server, data, issuer, ISSUER)
    if server is not LEFT_OUT:
        assert server.issuer == (issuer or oauth.origin_of(ISSUER))
        visited(server)
    refused(oauth.require_issuer, issuer)
    refused(oauth.server_metadata_urls, issuer)


def visited(server: AuthorizationServer) -> None:
    """Check the address that a person would get."""
    request = AuthorizationRequest(
        server, OAuthClient("c"), "http://127.0.0.1:1/callback", SERVER, (), "s", "v"
    )
    url = refused(lambda: Outgoing((), {}).shown(request.url))
    if url is LEFT_OUT:
        return
    assert url.startswith("https://")
    assert url.isascii()
    assert url.isprintable()
    assert not set(url) & set(' "<>\\^`{|}')
    assert parse_url(url).host == urlsplit(url).hostname
    assert dict(parse_qsl(urlsplit(url).query))["state"] == "s"


@fuzzed(documents | mutated(documents, 3))
def test_answers_of_an_authorization_server_are_read_or_refused(data: bytes) -> None:
    tokens = refused(oauth_tokens.read_tokens, data, "source")
    if tokens is not LEFT_OUT:
        assert tokens.access_token.isascii()
        assert not set(tokens.access_token) & set("\r\n \0")
        assert tokens.expires_in is None or 0 <= tokens.expires_in <= oauth_tokens.LONGEST_LIFETIME
        assert tokens.account == "" or tokens.account.isprintable()
    refused(oauth_tokens.read_device_code, data, "source")
    refused(oauth.read_registration, data, "http://127.0.0.1/", AuthorizationServer())
    assert all(text.isprintable() for text in oauth_tokens.read_error(data))


@fuzzed(mutated(values.map(lambda value: json.dumps(value).encode()), 2))
def test_an_id_token_names_somebody_or_nobody(claims: bytes) -> None:
    id_token = f"a.{urlsafe_b64encode(claims).decode()}.c"
    answer = json.dumps({"access_token": "t", "id_token": id_token}).encode()
    account = oauth_tokens.read_tokens(answer, "source").account

    assert account == "" or account.isprintable()
    assert len(account) <= 100


queries = st.dictionaries(
    st.sampled_from(["code", "state", "iss", "error", "error_description"]),
    st.sampled_from(["s", "c", ISSUER, "access_denied", ""]) | st.text(max_size=10),
).map(lambda value: urlencode(value, errors="replace").encode())


@fuzzed(queries | mutated(queries, 3), st.booleans(), st.integers(1, 80))
def test_a_code_comes_from_a_redirect_of_this_sign_in_alone(
    data: bytes, names_issuer: bool, repeated: int
) -> None:
    server = AuthorizationServer(
        ISSUER, ISSUER, authorization_response_iss_parameter_supported=names_issuer
    )
    request = AuthorizationRequest(server, OAuthClient("c"), "x", SERVER, (), "s", "v")
    query = "&".join([data.decode("latin-1")] * repeated)
    code = refused(request.code_of, query)

    if code is LEFT_OUT:
        return
    fields = parse_qsl(query)
    first = dict(reversed(fields))
    assert first["state"] == "s"
    assert first.get("iss", None if names_issuer else ISSUER) == ISSUER
    assert code == first["code"]
    assert "error" not in first
