"""What a token says: whatever it is, it is refused or has all that it needs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.core.spec import ClaimGrant, IssuerSettings
from mcp_workbench.server.http import signing_keys
from mcp_workbench.server.http.token_claims import (
    SKEW,
    TokenRefused,
    token_facts,
)

NOW = 1_000_000.0
LONGEST = 300.0
SETTINGS = IssuerSettings(
    "https://issuer.example",
    "https://us.example/mcp",
    "https://us.example/mcp",
    scopes=(("dev", ("dev",)),),
    claims=(ClaimGrant("groups", "ops", ("ops",)), ClaimGrant("a.b", "c", ("deep",))),
)
GOOD: dict[str, Any] = {
    "iss": SETTINGS.issuer,
    "aud": SETTINGS.audience,
    "sub": "alice",
    "exp": NOW + 60,
}

json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
names = st.sampled_from(
    ["iss", "aud", "sub", "exp", "nbf", "iat", "scope", "scp", "groups", "a", "cnf"]
)


@given(st.dictionaries(names, json, max_size=6), st.booleans())
def test_a_token_that_is_accepted_has_all_that_it_needs(
    changes: dict[str, Any], signed: bool
) -> None:
    claims = GOOD | changes
    try:
        facts = token_facts(claims, SETTINGS, NOW, LONGEST, signed=signed)
    except TokenRefused:
        return

    assert claims["iss"] == SETTINGS.issuer
    assert facts.subject == claims["sub"] != ""
    assert facts.audiences
    assert NOW < facts.until <= NOW + LONGEST
    assert facts.toolboxes is not None
    assert set(facts.toolboxes) <= {"dev", "ops", "deep"}
    assert claims.get("cnf") is None


@given(st.dictionaries(names, json, max_size=6))
def test_a_grant_comes_from_a_name_in_the_file_alone(changes: dict[str, Any]) -> None:
    """Without the exact words nothing opens."""
    text = msgspec.json.encode(changes).decode()
    if any(word in text for word in ("dev", "ops", '"c"')):
        return
    try:
        facts = token_facts(GOOD | changes, SETTINGS, NOW, LONGEST, signed=True)
    except TokenRefused:
        return

    assert facts.toolboxes == ()


@pytest.mark.parametrize(
    ("claims", "until"),
    [
        ({"exp": NOW + 10}, NOW + 10 + SKEW),
        ({"exp": NOW + 10_000}, NOW + LONGEST),
        ({"exp": NOW - SKEW + 1}, NOW + 1),
    ],
)
def test_it_holds_until_it_expires_and_not_longer_than_it_is_remembered(
    claims: dict[str, Any], until: float
) -> None:
    assert token_facts(GOOD | claims, SETTINGS, NOW, LONGEST, signed=True).until == until


@given(st.text(alphabet='abcXYZ019._-=~+/eyJ{}"', max_size=60))
def test_any_text_has_a_header_or_none(text: str) -> None:
    header = signing_keys.read_header(text)

    assert header is None or text.count(".") == 2


@given(json)
def test_any_json_is_a_set_of_keys_or_none(value: Any) -> None:
    for text in (
        msgspec.json.encode(value),
        msgspec.json.encode({"keys": [value, {"kid": value}]}),
    ):
        try:
            keys = signing_keys.read_keys(text)
        except ValueError:
            continue
        assert keys == {}
