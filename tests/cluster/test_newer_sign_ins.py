"""Which of two sign-ins is used: that on a replica's disk, or that of all replicas. No replicas."""

from __future__ import annotations

import msgspec
import pytest

from mcp_workbench.cluster.shared_credentials import (
    _is_newer as is_newer,  # pyright: ignore[reportPrivateUsage]
)
from mcp_workbench.protocol.oauth import OAuthClient
from mcp_workbench.upstream.oauth.store import Credential

SHARED = Credential(
    "u", "i", "t", "r", OAuthClient("c"), access_token="a", expires_at=100.0, signed_in_at=10.0
)


@pytest.mark.parametrize(
    ("changes", "newer"),
    [
        ({}, False),
        ({"expires_at": 90.0}, False),
        ({"expires_at": 110.0}, True),
        ({"signed_in_at": 11.0, "expires_at": 0.0}, True),
        ({"signed_in_at": 9.0, "expires_at": 999.0}, False),
        ({"signed_in_at": 11.0, "access_token": ""}, False),
        ({"signed_in_at": 11.0, "ended": "why"}, False),
    ],
)
def test_the_later_sign_in_wins_then_the_later_tokens(
    changes: dict[str, object], newer: bool
) -> None:
    assert is_newer(msgspec.structs.replace(SHARED, **changes), SHARED) is newer


def test_a_sign_in_that_was_ended_is_not_brought_back_by_old_tokens() -> None:
    ended = msgspec.structs.replace(SHARED, access_token="", expires_at=0.0, ended="signed out")

    assert not is_newer(SHARED, ended)
    assert is_newer(msgspec.structs.replace(SHARED, signed_in_at=11.0), ended)
