"""How a server says that it could not ask."""

from __future__ import annotations

import json

import msgspec
import pytest

from mcp_workbench.gateway.back_channel import could_not_ask
from mcp_workbench.gateway.interceptors import Completed, Rejected

PYTHON = (
    "Cannot send 'elicitation/create': this transport context has no back-channel for "
    "server-initiated requests."
)
TYPESCRIPT = (
    "Server-to-client requests are not available on protocol revision 2026-07-28: 'roots/list' cannot be "
    "sent while serving a request on that revision. Return inputRequired({ ... }) from the handler instead"
)


def result(text: str, *, failed: bool = True) -> Completed:
    content = [{"type": "text", "text": text}]
    return Completed(json.dumps({"content": content, "isError": failed}).encode())


def error(text: str, *, ours: bool = False) -> Rejected:
    return Rejected(
        msgspec.Raw(json.dumps({"code": -32600, "message": text}).encode()), is_ours=ours
    )


@pytest.mark.parametrize("text", [PYTHON, TYPESCRIPT])
def test_the_words_of_the_official_sdks(text: str) -> None:
    assert could_not_ask(error(text))
    assert could_not_ask(result(text))


@pytest.mark.parametrize(
    "outcome",
    [
        result(PYTHON, failed=False),
        error(PYTHON, ours=True),
        error("elicitation/create was declined"),
        result("the back-channel is closed"),
        result(PYTHON + "x" * (1 << 20)),
    ],
)
def test_everything_else(outcome: Completed | Rejected) -> None:
    assert not could_not_ask(outcome)
