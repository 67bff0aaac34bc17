"""Tokens of an issuer: who is let in, to which toolboxes, and where the others are sent."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import jwt
import msgspec
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from mcp_workbench.core.spec import (
    ClaimGrant,
    HttpSettings,
    Introspection,
    IssuerSettings,
    NamedToken,
    Snapshot,
)
from mcp_workbench.server.http import resource_server
from mcp_workbench.server.http.signing_keys import read_keys
from tests.kit.clock import until
from tests.kit.config import snapshot, spec
from tests.kit.http_host import Answer, OwnPort, port, rpc
from tests.kit.issuer import (
    AUDIENCE,
    CLIENT,
    TokenIssuer,
    ec_key,
    public_jwk,
    rsa_key,
    token_issuer,
)
from tests.kit.results import INITIALIZE, Message, use_tool

STATIC = "static-" + "s" * 32
SCOPES = (("wb:dev", ("dev",)), ("wb:ops", ("ops",)), ("wb:all", ("*",)))
METADATA = "/.well-known/oauth-protected-resource"


@pytest.fixture
def issuer() -> Iterator[TokenIssuer]:
    with token_issuer() as opened:
        yield opened


def settings(issuer: TokenIssuer, **more: Any) -> HttpSettings:
    own = IssuerSettings(issuer.url, AUDIENCE, AUDIENCE, toolboxes=("*",))
    auth = msgspec.structs.replace(own, **more)
    return HttpSettings(tokens=(NamedToken("ci", STATIC, ("dev",)),), auth=auth)


def two_boxes() -> Snapshot:
    both = snapshot(spec("fixture"), spec("vault", toolbox="ops"))
    assert set(both.toolboxes) == {"dev", "ops"}
    return both


@asynccontextmanager
async def guarded(issuer: TokenIssuer, **more: Any) -> AsyncGenerator[OwnPort]:
    async with port(two_boxes(), settings(issuer, **more)) as opened:
        yield opened


def bearer(token: str) -> Message:
    return {"authorization": f"Bearer {token}"}


async def enter(opened: OwnPort, token: str, path: str = "/mcp") -> Answer:
    """The answer to the first request of a legacy host."""
    return await opened.ask(rpc("initialize", INITIALIZE, 0), bearer(token), path=path)


async def boxes(opened: OwnPort, token: str) -> list[str]:
    """The toolboxes that a modern host with this token sees."""
    seen: list[str] = []
    for name in ("dev", "ops"):
        params = {"name": "open_toolbox", "arguments": {"toolbox_name": name}}
        answer = await opened.ask_modern("tools/call", params, **bearer(token))
        if "not found" not in answer.result["content"][0]["text"]:
            seen.append(name)
    return seen


# Who is let in


@pytest.mark.parametrize("alg", ["RS256", "PS384", "ES256"])
async def test_whoever_has_signed_in_calls_a_tool(issuer: TokenIssuer, alg: str) -> None:
    signer = ec_key("two") if alg == "ES256" else None
    kid = "two" if alg == "ES256" else "one"
    token = issuer.token(alg=alg, key=signer, header={"kid": kid})
    async with guarded(issuer) as opened:
        session = await opened.open(**bearer(token))
        legacy = await session.use("echo", {"text": "hi"})
        call = use_tool("fixture", "echo", {"text": "ho"})
        modern = await opened.ask_modern("tools/call", call, **bearer(token))

    assert legacy.json_text["arguments"] == {"text": "hi"}
    assert modern.json_text["arguments"] == {"text": "ho"}


async def test_a_token_in_the_file_stands_beside_the_issuer(issuer: TokenIssuer) -> None:
    async with guarded(issuer) as opened:
        assert await boxes(opened, STATIC) == ["dev"]
        assert await boxes(opened, issuer.token()) == ["dev", "ops"]


async def test_without_a_token_a_host_learns_where_to_get_one(issuer: TokenIssuer) -> None:
    async with guarded(issuer, toolboxes=(), scopes=SCOPES) as opened:
        answer = await opened.ask(rpc("ping", id=1))
        one = await opened.ask(rpc("ping", id=1), path="/mcp/dev")
        unknown = await opened.ask(rpc("ping", id=1), path='/mcp/"x')

    origin = AUDIENCE.removesuffix("/mcp")
    assert (answer.status, one.status, unknown.status) == (401, 401, 401)
    assert answer.headers["www-authenticate"] == (
        f'Bearer realm="mcp-workbench", resource_metadata="{origin}{METADATA}/mcp", '
        'scope="wb:dev wb:ops wb:all"'
    )
    assert one.headers["www-authenticate"] == (
        f'Bearer realm="mcp-workbench", resource_metadata="{origin}{METADATA}/mcp/dev", '
        'scope="wb:dev wb:all"'
    )
    assert unknown.headers["www-authenticate"] == answer.headers["www-authenticate"]


@pytest.mark.parametrize(
    ("path", "resource", "scopes"),
    [
        ("", AUDIENCE, ["wb:dev", "wb:ops", "wb:all"]),
        ("/mcp", AUDIENCE, ["wb:dev", "wb:ops", "wb:all"]),
        ("/mcp/dev", f"{AUDIENCE}/dev", ["wb:dev", "wb:all"]),
        ("/mcp/nothing", f"{AUDIENCE}/nothing", ["wb:all"]),
    ],
)
async def test_the_metadata_names_resource_issuer_and_scopes(
    issuer: TokenIssuer, path: str, resource: str, scopes: list[str]
) -> None:
    async with guarded(issuer, toolboxes=(), scopes=SCOPES) as opened:
        answer = await opened.ask(method="GET", path=METADATA + path)
        posted = await opened.ask(method="POST", path=METADATA + path)

    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json["resource"] == resource
    assert answer.json["authorization_servers"] == [issuer.url]
    assert answer.json["scopes_supported"] == scopes
    assert posted.status == 405


async def test_a_page_that_is_allowed_may_read_both(issuer: TokenIssuer) -> None:
    """Hosts that run in a browser read the challenge and the metadata from there."""
    page = "https://inspector.example"
    own = msgspec.structs.replace(settings(issuer), allowed_origins=(page,))
    async with port(two_boxes(), own) as opened:
        challenge = await opened.ask(rpc("ping", id=1), {"origin": page})
        metadata = await opened.ask(headers={"origin": page}, method="GET", path=METADATA)
        wants = {"origin": page, "access-control-request-headers": "mcp-protocol-version"}
        preflight = await opened.ask(headers=wants, method="OPTIONS", path=METADATA)
        other = {"origin": "https://evil.example"}
        refused = await opened.ask(headers=other, method="GET", path=METADATA)

    assert (challenge.status, metadata.status, preflight.status) == (401, 200, 204)
    assert refused.status == 403
    assert "WWW-Authenticate" in challenge.headers["access-control-expose-headers"]
    assert metadata.headers["access-control-allow-origin"] == page


@pytest.mark.parametrize("path", ["/", "/mcp/a/b", "/mcp/", "/other", "/mcp/..", "/mcp%2fdev"])
async def test_there_is_no_other_metadata(issuer: TokenIssuer, path: str) -> None:
    async with guarded(issuer) as opened:
        assert (await opened.ask(method="GET", path=METADATA + path)).status == 404
        other = await opened.ask(method="GET", path="/.well-known/oauth-authorization-server")
    async with port() as opened:
        assert (await opened.ask(method="GET", path=METADATA)).status == 404

    assert other.status == 404  # we are none, and speak for none


async def test_behind_a_proxy_the_metadata_has_the_outer_address(issuer: TokenIssuer) -> None:
    outer = "https://tools.example/team/mcp"
    async with guarded(issuer, audience="api://workbench", resource=outer) as opened:
        answer = await opened.ask(method="GET", path=f"{METADATA}/team/mcp/dev")
        refused = await opened.ask(rpc("ping", id=1), path="/mcp/dev")
        entered = await enter(opened, issuer.token(aud="api://workbench"), "/mcp/dev")

    assert answer.json["resource"] == f"{outer}/dev"
    where = f'resource_metadata="https://tools.example{METADATA}/team/mcp/dev"'
    assert where in refused.headers["www-authenticate"]
    assert entered.status == 200


# Bad tokens (T7)


def hs256_with_the_public_key(issuer: TokenIssuer) -> str:
    """The library refuses to make it, so it is made by hand."""
    import hashlib
    import hmac

    pem = rsa_key("one").public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    head = {"alg": "HS256", "kid": "one", "typ": "at+jwt"}
    text = f"{part(head)}.{part(issuer.claims())}"
    return f"{text}.{encoded(hmac.digest(pem, text.encode(), hashlib.sha256))}"


def part(value: Any) -> str:
    return encoded(json.dumps(value).encode())


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def unsigned(issuer: TokenIssuer) -> str:
    return f"{part({'alg': 'none', 'kid': 'one'})}.{part(issuer.claims())}."


def without_its_signature(issuer: TokenIssuer) -> str:
    return issuer.token().rpartition(".")[0] + "."


def with_other_claims(issuer: TokenIssuer) -> str:
    head, _, signature = issuer.token().split(".")
    return f"{head}.{part(issuer.claims(sub='mallory'))}.{signature}"


def with_its_own_key(issuer: TokenIssuer) -> str:
    mine = public_jwk(rsa_key("mallory"), kid="mine")
    head = {"kid": "mine", "jwk": mine, "jku": f"{issuer.url}/mine"}
    return issuer.token(key=rsa_key("mallory"), header=head)


NOW = time.time
BAD: dict[str, Callable[[TokenIssuer], str]] = {
    "wrong audience": lambda i: i.token(aud="https://other.example/mcp"),
    "no audience": lambda i: i.token(aud=None),
    "a prefix of the audience": lambda i: i.token(aud=AUDIENCE[:-1]),
    "the audience of one toolbox": lambda i: i.token(aud=f"{AUDIENCE}/dev"),
    "wrong issuer": lambda i: i.token(iss="https://other.example"),
    "issuer with a slash": lambda i: i.token(iss=f"{i.url}/"),
    "no issuer": lambda i: i.token(iss=None),
    "alg none": unsigned,
    "HS256 with the public key": hs256_with_the_public_key,
    "expired": lambda i: i.token(exp=int(NOW()) - 31),
    "never expires": lambda i: i.token(exp=None),
    "expiry is a text": lambda i: i.token(exp="never"),
    "not yet valid": lambda i: i.token(nbf=int(NOW()) + 60),
    "issued in the future": lambda i: i.token(iat=int(NOW()) + 3600),
    "no kid": lambda i: i.token(header={"kid": None}),
    "unknown kid": lambda i: i.token(header={"kid": "three"}),
    "another key under this kid": lambda i: i.token(key=rsa_key("mallory")),
    "a key of its own": with_its_own_key,
    "no signature": without_its_signature,
    "other claims": with_other_claims,
    "the algorithm of another key": lambda i: i.token(key=ec_key("two"), alg="ES256"),
    "no subject": lambda i: i.token(sub=None),
    "empty subject": lambda i: i.token(sub=""),
    "subject with a line": lambda i: i.token(sub="alice\nbob"),
    "an ID token": lambda i: i.token(aud="some-client", nonce="n", header={"typ": "JWT"}),
    "another kind of token": lambda i: i.token(header={"typ": "logout+jwt"}),
    "critical extension": lambda i: i.token(header={"crit": ["exp"]}),
    "bound to a key": lambda i: i.token(cnf={"jkt": "x"}),
    "claims are a list": lambda i: jwt.PyJWS().encode(
        b"[]", rsa_key("one"), "RS256", headers={"kid": "one"}
    ),
    "encrypted": lambda i: i.token() + ".x.y",
    "empty parts": lambda i: "..",
    "opaque": lambda i: "opaque",
    "too long": lambda i: i.token(more="x" * 8192),
    "a header of many levels": lambda i: f"{levels(2500)}.{part(i.claims())}.AA",
    "claims of many levels": lambda i: jwt.PyJWS().encode(
        b'{"x":%b}' % (b"[" * 2000 + b"]" * 2000), rsa_key("one"), "RS256", headers={"kid": "one"}
    ),
    "claims in another encoding": lambda i: jwt.PyJWS().encode(
        b'{"x":"\xff"}', rsa_key("one"), "RS256", headers={"kid": "one"}
    ),
    "ends in a year of 400 digits": lambda i: i.token(exp=10**400),
    "began in a year of 400 digits": lambda i: i.token(nbf=-(10**400)),
}


def levels(depth: int) -> str:
    head = b'{"alg":"RS256","kid":"one","typ":"at+jwt","x":%b}' % (b"[" * depth + b"]" * depth)
    return encoded(head)


@pytest.mark.parametrize("kind", BAD)
async def test_a_bad_token_is_refused(issuer: TokenIssuer, kind: str) -> None:
    token = BAD[kind](issuer)
    async with guarded(issuer) as opened:
        assert (await enter(opened, issuer.token())).status == 200
        answers = [await enter(opened, token) for _ in range(2)]  # also if it is remembered
        modern = await opened.ask_modern("tools/list", **bearer(token))

    for answer in [*answers, modern]:
        assert answer.status == 401
        assert 'error="invalid_token"' in answer.headers["www-authenticate"]
        assert "alice" not in str(answer)
        assert token not in str(answer)


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer",
        "Bearer ",
        "Basic YTpi",
        "DPoP TOKEN",
        "Bearer TOKEN TOKEN",
        "TOKEN",
        "Bearer TOKEN,",
    ],
)
async def test_a_token_in_another_form_is_none(issuer: TokenIssuer, authorization: str) -> None:
    line = authorization.replace("TOKEN", issuer.token())
    async with guarded(issuer) as opened:
        answer = await opened.ask(rpc("initialize", INITIALIZE, 0), {"authorization": line})
        doubled = {"authorization": [f"Bearer {issuer.token()}"] * 2}
        twice = await opened.ask(rpc("initialize", INITIALIZE, 0), doubled)
        query = f"/mcp?access_token={issuer.token()}"
        in_the_url = await opened.ask(rpc("initialize", INITIALIZE, 0), path=query)

    assert (answer.status, twice.status, in_the_url.status) == (401, 401, 401)


async def test_clocks_may_differ_by_half_a_minute(issuer: TokenIssuer) -> None:
    now = int(time.time())
    async with guarded(issuer) as opened:
        late = await enter(opened, issuer.token(exp=now - 20))
        early = await enter(opened, issuer.token(nbf=now + 20, iat=now + 20))

    assert (late.status, early.status) == (200, 200)


# The audience of one toolbox


async def test_a_token_for_one_toolbox_opens_its_path_alone(issuer: TokenIssuer) -> None:
    token = issuer.token(aud=f"{AUDIENCE}/dev")
    async with guarded(issuer) as opened:
        statuses = [
            (await enter(opened, token, p)).status for p in ("/mcp/dev", "/mcp/ops", "/mcp")
        ]

    assert statuses == [200, 401, 401]


# Which toolboxes


@pytest.mark.parametrize(
    ("claims", "seen"),
    [
        ({"scope": "openid wb:dev"}, ["dev"]),
        ({"scope": "wb:dev wb:ops"}, ["dev", "ops"]),
        ({"scope": "wb:all"}, ["dev", "ops"]),
        ({"scp": ["wb:ops"]}, ["ops"]),
        ({"groups": ["staff", "operators"]}, ["ops"]),
        ({"groups": "operators"}, ["ops"]),
        ({"realm_access": {"roles": ["developer"]}}, ["dev"]),
        ({"scope": "wb:dev", "groups": ["operators"]}, ["dev", "ops"]),
    ],
)
async def test_scopes_and_claims_open_toolboxes(
    issuer: TokenIssuer, claims: Message, seen: list[str]
) -> None:
    grants = (
        ClaimGrant("groups", "operators", ("ops",)),
        ClaimGrant("realm_access.roles", "developer", ("dev",)),
    )
    async with guarded(issuer, toolboxes=(), scopes=SCOPES, claims=grants) as opened:
        assert await boxes(opened, issuer.token(**claims)) == seen


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"scope": "wb:DEV wb:dev2 wb:"},
        {"groups": {"operators": 1}},
        {"groups": [["operators"]]},
    ],
)
async def test_what_is_unknown_opens_nothing(issuer: TokenIssuer, claims: Message) -> None:
    grants = (ClaimGrant("groups", "operators", ("ops",)),)
    async with guarded(issuer, toolboxes=(), scopes=SCOPES, claims=grants) as opened:
        answer = await enter(opened, issuer.token(**claims))

    assert answer.status == 403
    assert 'error="insufficient_scope"' in answer.headers["www-authenticate"]
    assert 'scope="wb:dev wb:ops wb:all"' in answer.headers["www-authenticate"]


async def test_a_toolbox_that_a_scope_opens_asks_for_it_and_others_do_not_exist(
    issuer: TokenIssuer,
) -> None:
    async with guarded(issuer, toolboxes=(), scopes=(("wb:dev", ("dev",)),)) as opened:
        nobody = issuer.token(scope="other")
        lacking = await enter(opened, nobody, "/mcp/dev")
        hidden = await enter(opened, nobody, "/mcp/ops")
        absent = await enter(opened, nobody, "/mcp/nothing")
        static = await enter(opened, STATIC, "/mcp/ops")

    assert lacking.status == 403
    assert 'scope="wb:dev"' in lacking.headers["www-authenticate"]
    assert f'{METADATA}/mcp/dev"' in lacking.headers["www-authenticate"]
    assert (hidden.status, hidden.body) == (absent.status, absent.body) == (404, static.body)


async def test_a_session_belongs_to_its_person_and_their_grant(issuer: TokenIssuer) -> None:
    async with guarded(issuer, toolboxes=(), scopes=SCOPES) as opened:
        session = await opened.open(**bearer(issuer.token(scope="wb:all")))
        ping = session.ask("ping")
        again = bearer(issuer.token(scope="wb:all openid", jti="refreshed"))
        other = bearer(issuer.token(sub="bob", scope="wb:all"))
        less = bearer(issuer.token(scope="wb:dev"))
        statuses = [
            (await opened.ask(ping, {**session.headers, **headers})).status
            for headers in (again, other, less)
        ]

    assert statuses == [200, 404, 404]


async def test_a_person_is_not_a_token_of_the_same_name(issuer: TokenIssuer) -> None:
    async with guarded(issuer) as opened:
        session = await opened.open(**bearer(STATIC))
        headers = {**session.headers, **bearer(issuer.token(sub="ci"))}
        answer = await opened.ask(session.ask("ping"), headers)

    assert answer.status == 404


# The end of a token


async def test_a_connection_that_goes_on_after_its_token_is_refused(issuer: TokenIssuer) -> None:
    """Also where the head of the request is the one before it, byte for byte."""
    async with guarded(issuer) as opened:
        peer = await opened.connect()
        request = opened.request(*opened.modern("tools/list", **bearer(issuer.token())))
        statuses: list[int] = []
        judge = opened.front.access.issuer
        assert judge is not None
        for later in (0, 0, resource_server.CHECKED + 1, 660):
            judge.clock = lambda later=later: time.time() + later
            peer.send(request)
            statuses.append((await peer.answer()).status)

    assert statuses == [200, 200, 200, 401]


# Keys


async def test_an_unknown_key_is_looked_up_once_a_minute(issuer: TokenIssuer) -> None:
    async with guarded(issuer) as opened:
        assert (await enter(opened, issuer.token())).status == 200
        assert issuer.requests.count("/jwks") == 1
        judge = opened.front.access.issuer
        assert judge is not None
        judge.keys.tried_at -= resource_server.KEYS_PAUSE  # a minute ago
        issuer.keys.append(public_jwk(rsa_key("new"), kid="new"))
        new = issuer.token(key=rsa_key("new"), header={"kid": "new"})
        known = await enter(opened, new)
        for number in range(20):
            unknown = await enter(opened, issuer.token(header={"kid": f"other-{number}"}))
            assert unknown.status == 401

    assert known.status == 200
    assert issuer.requests.count("/jwks") == 2


async def test_many_who_come_before_the_keys_wait_for_one_fetch(issuer: TokenIssuer) -> None:
    issuer.gate.clear()
    async with guarded(issuer) as opened, asyncio.TaskGroup() as tasks:
        asked = [
            tasks.create_task(enter(opened, issuer.token(sub=f"person-{number}")))
            for number in range(20)
        ]
        await until(lambda: opened.front.undecided == len(asked))
        issuer.gate.set()

    assert [task.result().status for task in asked] == [200] * 20
    assert issuer.requests.count("/jwks") == 1


async def test_an_issuer_that_can_t_be_reached_costs_nobody_a_login(issuer: TokenIssuer) -> None:
    """503, not 401: a host that reads 401 throws its token away."""
    issuer.status["/jwks"] = 503
    async with guarded(issuer) as opened:
        before = await enter(opened, issuer.token())
        again = await enter(opened, issuer.token())
        requests = issuer.requests.count("/jwks")
        del issuer.status["/jwks"]
        judge = opened.front.access.issuer
        assert judge is not None
        judge.keys.tried_at -= resource_server.RETRY_PAUSE  # five seconds ago
        after = await enter(opened, issuer.token())
        issuer.gate.clear()  # from here on it does not answer at all
        judge.keys.fetched_at -= resource_server.KEYS_FRESH  # an hour ago
        judge.keys.tried_at -= resource_server.KEYS_FRESH
        later = await enter(opened, issuer.token(jti="another"))

    assert (before.status, again.status, requests) == (503, 503, 1)
    assert before.headers["retry-after"] == "5"
    assert (after.status, later.status) == (200, 200)


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"issuer": "https://other.example"}, "has another issuer"),
        ({"jwks_uri": "https://other.example/jwks"}, "names another host as 'jwks_uri'"),
        ({"jwks_uri": "http://169.254.169.254/jwks"}, "names another host as 'jwks_uri'"),
        ({"jwks_uri": "file:///etc/passwd"}, "no usable 'jwks_uri'"),
        ({"jwks_uri": None}, "not what the standard says"),
        ({"jwks_uri": "http://user:pass@127.0.0.1/jwks"}, "names another host as 'jwks_uri'"),
    ],
)
async def test_metadata_that_leads_elsewhere_is_not_followed(
    issuer: TokenIssuer, metadata: Message, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    issuer.metadata |= metadata
    async with guarded(issuer) as opened:
        answer = await enter(opened, issuer.token())

    assert answer.status == 503
    assert reason in caplog.text


async def test_no_redirect_is_followed(issuer: TokenIssuer) -> None:
    issuer.redirects["/jwks"] = f"{issuer.url}/moved"
    async with guarded(issuer) as opened:
        answer = await enter(opened, issuer.token())

    assert answer.status == 503
    assert "/moved" not in issuer.requests


async def test_the_operator_may_name_the_place_of_the_keys(issuer: TokenIssuer) -> None:
    issuer.metadata = {}
    async with guarded(issuer, jwks_uri=f"{issuer.url}/jwks") as opened:
        assert (await enter(opened, issuer.token())).status == 200

    assert issuer.requests == ["/jwks"]


async def test_an_issuer_may_have_a_path() -> None:
    with token_issuer("/tenant") as issuer:
        async with guarded(issuer) as opened:
            assert (await enter(opened, issuer.token())).status == 200


@pytest.mark.parametrize(
    "keys",
    [
        [{"kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0", "kid": "one", "alg": "HS256"}],
        [{"kty": "RSA", "kid": "one", "n": "AQAB", "e": "AQAB"}],
        [{"kty": "RSA", "kid": "one"}, {"kid": 1}, {}, {"kty": "EC", "crv": "P-256", "kid": "one"}],
        [],
    ],
)
async def test_keys_that_are_no_good_are_left_out(issuer: TokenIssuer, keys: list[Message]) -> None:
    issuer.keys = keys
    async with guarded(issuer) as opened:
        assert (await enter(opened, issuer.token())).status == 401


async def test_a_key_for_encryption_signs_nothing(issuer: TokenIssuer) -> None:
    issuer.keys = [public_jwk(rsa_key("one"), kid="one", use="enc")]
    async with guarded(issuer) as opened:
        assert (await enter(opened, issuer.token())).status == 401


async def test_no_depth_of_a_header_is_more_than_its_readers_can_take(issuer: TokenIssuer) -> None:
    async with guarded(issuer) as opened:
        assert (await enter(opened, issuer.token())).status == 200
        tokens = [f"{levels(depth)}.{part(issuer.claims())}.AA" for depth in range(700, 1000, 4)]
        statuses = {(await enter(opened, token)).status for token in tokens}

    assert statuses == {401}


@pytest.mark.parametrize(
    "keys", [b"[" * 100_000, b'{"keys":[{"kid":"\xff"}]}', b'{"keys":%b}' % (b"[" * 100_000)]
)
def test_keys_that_can_t_be_read_are_none(keys: bytes) -> None:
    with pytest.raises(ValueError, match="not a set of keys"):
        read_keys(keys)


# Tokens that are not JWTs


ASKING = Introspection(*CLIENT)


async def test_the_issuer_is_asked_about_an_opaque_token_once(issuer: TokenIssuer) -> None:
    token = issuer.opaque(scope="wb:dev")
    async with guarded(issuer, introspection=ASKING, toolboxes=(), scopes=SCOPES) as opened:
        seen = await boxes(opened, token)
        again = await enter(opened, token)

    assert (seen, again.status) == (["dev"], 200)
    assert issuer.requests.count("/introspect") == 1


BAD_ANSWERS: dict[str, Message] = {
    "not active": {"active": False},
    "active is a text": {"active": "true"},
    "wrong audience": {"aud": "https://other.example/mcp"},
    "no audience": {"aud": None},
    "wrong issuer": {"iss": "https://other.example"},
    "expired": {"exp": 1},
    "not yet valid": {"nbf": 1 << 40},
    "no subject": {"sub": None},
    "bound to a key": {"cnf": {"jkt": "x"}},
    "another kind": {"token_type": "DPoP"},
    "expiry is a text": {"exp": "never"},
    "expiry of 400 digits": {"exp": 10**400},
}


@pytest.mark.parametrize("kind", BAD_ANSWERS)
async def test_an_opaque_token_that_does_not_hold_is_refused(
    issuer: TokenIssuer, kind: str
) -> None:
    token = issuer.opaque()
    issuer.active[token] |= BAD_ANSWERS[kind]
    async with guarded(issuer, introspection=ASKING) as opened:
        statuses = [(await enter(opened, token)).status for _ in range(3)]

    assert statuses == [401, 401, 401]
    assert issuer.requests.count("/introspect") == 1


@pytest.mark.parametrize("status", [401, 403, 404, 500, 503])
async def test_an_issuer_that_does_not_answer_is_no_reason_to_sign_in(
    issuer: TokenIssuer, status: int
) -> None:
    token = issuer.opaque()
    issuer.status["/introspect"] = status
    async with guarded(issuer, introspection=ASKING) as opened:
        answer = await enter(opened, token)
        del issuer.status["/introspect"]
        after = await enter(opened, token)

    assert (answer.status, after.status) == (503, 200)


async def test_a_jwt_is_not_asked_about(issuer: TokenIssuer) -> None:
    async with guarded(issuer, introspection=ASKING) as opened:
        assert (await enter(opened, issuer.token())).status == 200
        assert (await enter(opened, issuer.token(aud="other"))).status == 401

    assert "/introspect" not in issuer.requests


async def test_a_flood_of_made_up_tokens_is_bounded(issuer: TokenIssuer) -> None:
    async with guarded(issuer, introspection=ASKING) as opened:
        assert (await enter(opened, issuer.opaque())).status == 200
        issuer.gate.clear()
        # Fewer than strangers may have connections: beyond that, they lose them.
        flood = resource_server.WAITING + 16
        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(enter(opened, f"made-up-{n}")) for n in range(flood)]
            await until(lambda: sum(t.done() for t in asked) >= flood - resource_server.WAITING)
            known = await enter(opened, "opaque-1")  # one that was asked about before
            issuer.gate.set()

    statuses = [task.result().status for task in asked]
    assert known.status == 200
    # On a slow machine the patience of some that wait ends before the issuer is let through.
    assert set(statuses) <= {401, 503}
    assert statuses.count(401) <= resource_server.WAITING
    judge = opened.front.access.issuer
    assert judge is not None
    assert len(judge.refused) <= resource_server.MOST_REFUSED


async def test_what_is_remembered_is_bounded(issuer: TokenIssuer) -> None:
    async with guarded(issuer) as opened:
        await enter(opened, issuer.token())
        judge = opened.front.access.issuer
        assert judge is not None
        for number in range(resource_server.MOST_TOKENS + 10):
            judge.remember(b"%d" % number, issuer.claims(), 60, signed=True)

        assert len(judge.facts) == resource_server.MOST_TOKENS
