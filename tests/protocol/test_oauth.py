"""OAuth without a network: where to ask, what to believe, what to send."""

from __future__ import annotations

import json
from base64 import b64decode, urlsafe_b64encode
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.protocol.oauth import (
    AuthorizationRequest,
    AuthorizationServer,
    Challenge,
    OAuthClient,
    Resource,
    SignInFailed,
    auth_method,
    choose_scopes,
    covers,
    default_server,
    origin_of,
    read_challenge,
    read_registration,
    read_resource,
    read_server,
    registration_request,
    require_issuer,
    resource_metadata_urls,
    server_metadata_urls,
)
from mcp_workbench.protocol.oauth_tokens import (
    DeviceCode,
    device_grant,
    read_device_code,
    read_tokens,
    token_request,
)

SERVER = AuthorizationServer(
    issuer="https://login.example",
    authorization_endpoint="https://login.example/authorize?tenant=a",
    token_endpoint="https://login.example/token",
    registration_endpoint="https://login.example/register",
)


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    ("header", "challenge"),
    [
        ("", Challenge()),
        ("Basic realm=x", Challenge()),
        ("Bearer", Challenge()),
        (
            'Bearer scope="a b", error="invalid_token"',
            Challenge(scope="a b", error="invalid_token"),
        ),
        ("bearer  Scope = a ,error=x", Challenge(scope="a", error="x")),
        (
            'Basic realm="Bearer x", Bearer resource_metadata="https://a/b?c=\\"d\\"", scope=s',
            Challenge(resource_metadata='https://a/b?c="d"', scope="s"),
        ),
        ('Bearer scope="a", DPoP algs="ES256"', Challenge(scope="a")),
        ('Bearer scope="unfinished', Challenge()),
    ],
)
def test_a_challenge(header: str, challenge: Challenge) -> None:
    assert read_challenge(header) == challenge


@given(st.text(alphabet='Bearer ,="\\scope\n', max_size=300))
def test_any_header_is_read(header: str) -> None:
    read_challenge(f"Bearer {header}")


def test_where_the_metadata_of_a_resource_may_be() -> None:
    well_known = "https://a.example/.well-known/oauth-protected-resource"
    named = Challenge(resource_metadata="https://a.example/meta")

    assert resource_metadata_urls("https://a.example/x/mcp?q=1", Challenge()) == [
        f"{well_known}/x/mcp",
        well_known,
    ]
    assert resource_metadata_urls("https://a.example/", Challenge()) == [well_known]
    assert resource_metadata_urls("https://a.example/mcp", named)[0] == "https://a.example/meta"


def test_where_the_metadata_of_an_issuer_may_be() -> None:
    known = "https://l.example/.well-known"

    assert server_metadata_urls("https://l.example") == [
        f"{known}/oauth-authorization-server",
        f"{known}/openid-configuration",
    ]
    assert server_metadata_urls("https://l.example/tenant/") == [
        f"{known}/oauth-authorization-server/tenant",
        f"{known}/openid-configuration/tenant",
        "https://l.example/tenant/.well-known/openid-configuration",
    ]


@pytest.mark.parametrize(
    ("resource", "url", "fits"),
    [
        ("https://a.example/mcp", "https://a.example/mcp", True),
        ("https://A.example/mcp", "https://a.example/mcp", True),
        ("https://a.example", "https://a.example/mcp", True),
        ("https://a.example/mcp/", "https://a.example/mcp", True),
        ("https://a.example/mc", "https://a.example/mcp", False),
        ("https://a.example/mcp/other", "https://a.example/mcp", False),
        ("https://b.example/mcp", "https://a.example/mcp", False),
        ("http://a.example/mcp", "https://a.example/mcp", False),
        ("https://a.example:444/mcp", "https://a.example/mcp", False),
        ("", "https://a.example/mcp", False),
    ],
)
def test_whose_metadata_it_is(resource: str, url: str, fits: bool) -> None:
    assert covers(resource, url) is fits
    body = encoded({"resource": resource})
    if fits:
        assert read_resource(body, url, "here").resource == resource
    else:
        with pytest.raises(SignInFailed, match="not for the address in 'url'"):
            read_resource(body, url, "here")


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"<html>", b'{"resource": 1}', b"\xff"])
def test_what_is_no_metadata(body: bytes) -> None:
    with pytest.raises(SignInFailed, match="can't be used"):
        read_resource(body, "https://a.example", "here")


def test_an_issuer_speaks_for_itself_alone() -> None:
    body = encoded({"issuer": "https://login.example/"})

    with pytest.raises(SignInFailed, match="another issuer"):
        read_server(body, "https://login.example", "https://login.example/.well-known/x")
    # A server of 2025-03-26 that claims to be another's issuer is taken for its own.
    own = read_server(body, "", "https://a.example/.well-known/oauth-authorization-server")
    assert own.issuer == "https://a.example"


def test_an_issuer_without_pkce_is_refused() -> None:
    body = encoded({"issuer": "https://l.example", "code_challenge_methods_supported": ["plain"]})

    with pytest.raises(SignInFailed, match="PKCE"):
        read_server(body, "https://l.example", "here")


NO_ADDRESS = "^the server's sign-in metadata has an address that is none$"


@pytest.mark.parametrize("url", ["https://[", f"https://{'ä' * 100_000}/"])
def test_an_address_that_is_none_is_refused_in_words(url: str) -> None:
    for act in (origin_of, server_metadata_urls):
        with pytest.raises(SignInFailed, match=NO_ADDRESS):
            act(url)


@pytest.mark.parametrize(
    "issuer",
    [
        "https://a/b c", "https://a?b", "https://a#b", 'https://a"', "https://a<b", "https://a>b",
        "https://a\\b", "https://é", "https://a\n", f"https://{'a' * 2000}",
    ],
)  # fmt: skip
def test_what_people_are_shown_as_an_issuer_has_the_form_of_one(issuer: str) -> None:
    require_issuer("https://login.example:8443/tenant/a")
    with pytest.raises(SignInFailed, match=NO_ADDRESS):
        require_issuer(issuer)


def test_a_server_without_metadata_has_its_endpoints_at_its_origin() -> None:
    assert default_server("https://A.example:1/mcp?x=y") == AuthorizationServer(
        issuer="https://a.example:1",
        authorization_endpoint="https://a.example:1/authorize",
        token_endpoint="https://a.example:1/token",
        registration_endpoint="https://a.example:1/register",
    )


def test_metadata_without_an_issuer_counts_as_that_of_where_it_comes_from() -> None:
    body = encoded({"issuer": "https://other.example", "token_endpoint": "https://l.example/t"})

    assert read_server(body, "", "https://l.example/.well-known/x") == AuthorizationServer(
        issuer="https://l.example", token_endpoint="https://l.example/t"
    )


def test_a_document_that_can_not_be_used_is_named_with_the_reason() -> None:
    for body, reason in (
        (b'{"resource":"r","x":' + b"[" * 5000 + b"]" * 5000 + b"}", "nested too deeply"),
        (b'{"resource":5}', r"Expected `str`, got `int` - at `$.resource`"),
    ):
        with pytest.raises(SignInFailed) as failure:
            read_resource(body, "https://a/mcp", "https://a/meta")
        assert failure.value.code == "WB-AUTH-005"
        assert str(failure.value) == (
            f"the document at https://a/meta can't be used ({reason}): "
            "report it to whoever runs the server"
        )


def test_which_scopes_are_asked_for() -> None:
    asked = Challenge(scope="a b")
    resource = Resource("r", scopes_supported=("c",))
    offline = AuthorizationServer(scopes_supported=("offline_access",))

    assert choose_scopes(("mine",), asked, resource, offline) == ("mine",)
    assert choose_scopes((), asked, resource, SERVER) == ("a", "b")
    assert choose_scopes((), Challenge(), resource, SERVER) == ("c",)
    assert choose_scopes((), Challenge(), None, SERVER) == ()
    assert choose_scopes((), asked, resource, offline) == ("a", "b", "offline_access")


def request(**changes: Any) -> AuthorizationRequest:
    values: dict[str, Any] = {
        "server": SERVER,
        "client": OAuthClient("me"),
        "redirect_uri": "http://127.0.0.1:1/callback",
        "resource": "https://a.example/mcp",
        "scopes": ("a", "offline_access"),
        "state": "the-state",
        "verifier": "v" * 43,
    }
    return AuthorizationRequest(**(values | changes))


def test_the_address_for_the_browser() -> None:
    parts = urlsplit(request().url)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    challenge = urlsafe_b64encode(sha256(b"v" * 43).digest()).rstrip(b"=").decode()

    assert f"{parts.scheme}://{parts.netloc}{parts.path}" == "https://login.example/authorize"
    assert query == {
        "tenant": "a",
        "response_type": "code",
        "client_id": "me",
        "redirect_uri": "http://127.0.0.1:1/callback",
        "state": "the-state",
        "code_challenge": challenge,
        "code_challenge_method": "S256",
        "resource": "https://a.example/mcp",
        "scope": "a offline_access",
        "prompt": "consent",
    }


def test_an_endpoint_can_not_choose_our_parameters() -> None:
    endpoint = "https://login.example/authorize?state=theirs&code_challenge_method=plain"
    server = AuthorizationServer("https://login.example", endpoint)

    assert parse_qs(urlsplit(request(server=server).url).query)["state"] == ["the-state"]
    assert "plain" not in request(server=server).url


def test_the_code_of_a_redirect() -> None:
    query = urlencode({"code": "c/1", "state": "the-state"})

    assert request().code_of(query) == "c/1"
    assert request().code_of(f"{query}&iss=https%3A%2F%2Flogin.example") == "c/1"


ADVERTISES = AuthorizationServer(
    "https://login.example", authorization_response_iss_parameter_supported=True
)


@pytest.mark.parametrize(
    ("query", "server", "why"),
    [
        ("code=c", SERVER, "another sign-in"),
        ("code=c&state=other", SERVER, "another sign-in"),
        ("state=the-state", SERVER, "no code"),
        ("state=the-state&error=access_denied", SERVER, "declined"),
        ("state=the-state&error=server_error&error_description=Boom", SERVER, "Boom"),
        ("state=the-state&code=c&iss=https://evil.example", SERVER, "does not come from"),
        ("state=the-state&code=c", ADVERTISES, "does not come from"),
        ("state=the-state&code=c&iss=https://login.example/", ADVERTISES, "does not come from"),
    ],
)
def test_a_redirect_that_is_refused(query: str, server: AuthorizationServer, why: str) -> None:
    with pytest.raises(SignInFailed, match=why):
        request(server=server).code_of(query)


def test_a_registration() -> None:
    uri = "http://127.0.0.1:5/callback"
    asked = json.loads(registration_request(uri, SERVER))
    given = encoded({"client_id": "x", "client_secret": "s", "client_secret_expires_at": 9})
    client = read_registration(given, uri, SERVER)

    assert asked["redirect_uris"] == [uri]
    assert asked["application_type"] == "native"
    assert "scope" not in asked
    assert (client.id, client.method, client.expires_at) == ("x", "client_secret_basic", 9)


@pytest.mark.parametrize(
    ("offered", "secret", "method"),
    [
        (None, "", "none"),
        (None, "s", "client_secret_basic"),
        (("client_secret_post",), "s", "client_secret_post"),
        (("client_secret_post", "client_secret_basic"), "s", "client_secret_basic"),
    ],
)
def test_how_a_client_proves_itself(
    offered: tuple[str, ...] | None, secret: str, method: str
) -> None:
    server = AuthorizationServer(token_endpoint_auth_methods_supported=offered)

    assert auth_method(secret, server) == method


def test_the_proof_of_a_client() -> None:
    basic = OAuthClient("a:b", "s/ü", "client_secret_basic")
    headers, body = token_request(basic, {"grant_type": "x"})
    name, value = headers.decode().strip().split(": Basic ")
    assert name == "Authorization"
    assert b64decode(value) == b"a%3Ab:s%2F%C3%BC"
    assert body == b"grant_type=x"

    post = OAuthClient("a", "s", "client_secret_post")
    assert token_request(post, {}) == (b"", b"client_id=a&client_secret=s")
    assert token_request(OAuthClient("a"), {}) == (b"", b"client_id=a")


def test_tokens() -> None:
    claims = urlsafe_b64encode(encoded({"email": "a@b", "sub": "1"})).rstrip(b"=").decode()
    given = {"access_token": "t", "token_type": "bearer", "expires_in": "60", "refresh_token": None}
    tokens = read_tokens(encoded({**given, "id_token": f"h.{claims}.s"}), "here")

    assert (tokens.access_token, tokens.expires_in, tokens.refresh_token) == ("t", 60, "")
    assert tokens.account == "a@b"


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"access_token": ""},
        {"access_token": "a\r\nX: y", "token_type": "bearer"},
        {"access_token": "t", "token_type": "mac"},
        {"access_token": "tökén"},
    ],
)
def test_what_is_no_token(given: dict[str, Any]) -> None:
    with pytest.raises(SignInFailed):
        read_tokens(encoded(given), "here")


@pytest.mark.parametrize("seconds", [-1, "soon", 1e400, None])
def test_a_lifetime_that_is_none(seconds: Any) -> None:
    given = {"access_token": "t", "expires_in": seconds}
    text = json.dumps(given).replace("Infinity", "1e999").encode()
    try:
        assert read_tokens(text, "here").expires_in is None
    except SignInFailed:
        assert seconds == 1e400  # no JSON number


def test_nothing_secret_is_printed() -> None:
    shown = repr(request(client=OAuthClient("me", "SECRET"), state="SECRET", verifier="SECRET"))
    shown += repr(OAuthClient("me", "SECRET")) + repr(read_tokens(b'{"access_token":"SECRET"}', ""))

    assert "SECRET" not in shown


@pytest.mark.parametrize(
    ("claims", "account"),
    [
        ({"sub": "1"}, "1"),
        ({"sub": "1", "name": "N"}, "N"),
        ({"name": "N", "preferred_username": "p"}, "p"),
        ({"preferred_username": "p", "email": "e@x"}, "e@x"),
        ({"email": "a\u202eb\n" + "c" * 200}, "ab" + "c" * 96),
        ({}, ""),
        ({"email": 5}, ""),
    ],
    ids=["sub", "name", "username", "email", "odd signs", "none", "a number"],
)
def test_who_has_signed_in_is_told_in_words_that_can_be_shown(
    claims: dict[str, Any], account: str
) -> None:
    token = urlsafe_b64encode(encoded(claims)).rstrip(b"=").decode()

    for id_token in (f"h.{token}.s", f"h.{token}"):
        given = encoded({"access_token": "t", "id_token": id_token})
        assert read_tokens(given, "here").account == account


@pytest.mark.parametrize("id_token", ["", "h", "h..", "h.é.s", "h.e30=.s", "h.YQ.s"])
def test_an_odd_identity_costs_no_token(id_token: str) -> None:
    tokens = read_tokens(encoded({"access_token": "t", "id_token": id_token}), "here")

    assert (tokens.access_token, tokens.account) == ("t", "")


def test_a_code_for_another_device() -> None:
    given = {"device_code": "SECRET", "user_code": "u", "verification_uri": "https://v"}
    code = read_device_code(encoded(given), "here")

    assert code == DeviceCode("SECRET", "u", "https://v", "", 600.0, 5.0)
    assert "SECRET" not in repr(code)
    assert device_grant(code, "r") == {
        "grant_type": "urn:ietf:params:oauth:grant-type:device_code",
        "device_code": "SECRET",
        "resource": "r",
    }
    with pytest.raises(SignInFailed, match=r"^the document at here can't be used"):
        read_device_code(b"{}", "here")
