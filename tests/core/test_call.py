"""What was lost may be sent once more only where nothing can happen twice."""

import json
from typing import Any

import pytest

from mcp_workbench.core.call_request import is_harmless, may_send_again


@pytest.mark.parametrize(
    ("annotations", "harmless"),
    [
        ({"readOnlyHint": True}, True),
        ({"idempotentHint": True}, True),
        ({"readOnlyHint": True, "idempotentHint": None}, True),
        ({"readOnlyHint": False, "idempotentHint": False}, False),
        ({"destructiveHint": False}, False),
        ({"readOnlyHint": "true"}, False),
        ({"readOnlyHint": 1}, False),
        ({}, False),
        (None, False),
        ([], False),
    ],
)
def test_a_tool_has_to_say_that_it_may_run_twice(annotations: Any, *, harmless: bool) -> None:
    definition = {"name": "t", "annotations": annotations}

    assert is_harmless(json.dumps(definition).encode()) is harmless


def test_a_tool_that_says_nothing_may_not() -> None:
    assert not is_harmless(b'{"name":"t"}')


@pytest.mark.parametrize("code", ["server_exited", "connect_failed"])
def test_a_broken_road_is_taken_again_where_nothing_ran_or_nothing_can_happen(code: str) -> None:
    assert may_send_again(code, may_have_run=False, harmless=False)
    assert may_send_again(code, may_have_run=True, harmless=True)
    assert not may_send_again(code, may_have_run=True, harmless=False)


@pytest.mark.parametrize(
    "code",
    [
        "timeout",
        "session_lost",
        "overloaded",
        "too_large",
        "rate_limited",
        "needs_login",
        "protocol_error",
    ],
)
def test_any_other_loss_would_only_be_repeated(code: str) -> None:
    assert not may_send_again(code, may_have_run=False, harmless=True)
