"""Access tokens, keys and what an issuer says of tokens: refused unless they are whole and right."""

# What is made up has no types.
# pyright: basic

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64encode

from hypothesis import strategies as st

from mcp_workbench.core.spec import ClaimGrant, IssuerSettings
from mcp_workbench.server.http.resource_server import CHECKED
from mcp_workbench.server.http.signing_keys import (
    MOST_KEYS,
    check_header,
    read_header,
    read_keys,
    signed_claims,
)
from mcp_workbench.server.http.token_claims import SKEW, TokenRefused, token_facts
from tests.fuzz.effort import fuzzed, size
from tests.fuzz.material import mutated, values
from tests.kit.issuer import ec_key, public_jwk, rsa_key

ISSUER, AUDIENCE = "https://login.example", "https://us.example/mcp"
SETTINGS = IssuerSettings(
    ISSUER,
    AUDIENCE,
    AUDIENCE,
    scopes=(("read", ("dev",)),),
    claims=(ClaimGrant("groups.of", "a", ("ops",)),),
)
JWKS = json.dumps(
    {"keys": [public_jwk(rsa_key("one"), kid="one"), public_jwk(ec_key("two"), kid="two")]}
).encode()
KEYS = read_keys(JWKS)


def part(value: object) -> bytes:
    return urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")


heads = st.fixed_dictionaries(
    {},
    optional={
        "alg": st.sampled_from(["RS256", "ES256", "none", "HS256", "rs256", "PS512"]) | values,
        "kid": st.sampled_from(["one", "two"]) | values,
        "typ": st.sampled_from(["at+jwt", "JWT"]) | values,
        "crit": values,
        "b64": values,
    },
)
claims = st.fixed_dictionaries(
    {},
    optional={
        "iss": st.just(ISSUER) | values,
        "aud": st.sampled_from([AUDIENCE, [AUDIENCE]]) | values,
        "sub": st.just("alice") | values,
        "exp": st.sampled_from([4e9, 10**400, 1]) | values,
        "nbf": values,
        "iat": values,
        "scope": st.just("read") | values,
        "groups": st.just({"of": ["a"]}) | values,
        "cnf": values,
    },
)
tokens = st.builds(
    lambda head, body, end: b".".join((part(head), part(body), end)),
    heads,
    claims,
    st.binary(max_size=size(40)).map(urlsafe_b64encode),
)


@fuzzed(mutated(tokens, 3) | tokens)
def test_no_made_up_token_is_signed(data: bytes) -> None:
    token = data.decode("ascii", "replace")
    header = read_header(token)
    if header is None:
        return
    try:
        check_header(header)
        signed_claims(token, header, KEYS.get(header.kid, ()))
    except TokenRefused:
        return
    raise AssertionError("a token without a signature of the issuer was accepted")


@fuzzed(claims, st.booleans())
def test_claims_hold_or_are_refused(given: dict[str, object], signed: bool) -> None:
    now = time.time()
    try:
        facts = token_facts(given, SETTINGS, now, CHECKED, signed=signed)
    except TokenRefused:
        return
    assert given.get("iss", ISSUER) == ISSUER
    assert facts.subject == given["sub"] != ""
    assert now - SKEW < facts.until <= now + CHECKED
    assert facts.audiences
    assert facts.toolboxes is not None
    assert set(facts.toolboxes) <= {"dev", "ops"}
    assert "dev" not in facts.toolboxes or "read" in str(given.get("scope"))


@fuzzed(mutated(st.just(JWKS), 4) | values.map(lambda value: json.dumps(value).encode()))
def test_keys_are_read_or_refused(data: bytes) -> None:
    try:
        keys = read_keys(data)
    except ValueError:
        return
    assert sum(map(len, keys.values())) <= MOST_KEYS
    assert all(key.algorithms for each in keys.values() for key in each)
