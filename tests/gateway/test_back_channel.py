"""How a server says that it could not ask, and what follows: a connection on which it can."""

from __future__ import annotations

import json

import msgspec
import pytest

from mcp_workbench.gateway.back_channel import HINT, could_not_ask
from mcp_workbench.gateway.interceptors import Completed, Rejected
from tests.kit.config import snapshot, spec
from tests.kit.http_host import OwnPort, Session, port, rpc
from tests.kit.results import INITIALIZE, LEGACY, Json, json_text, use_tool

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
        Completed(result(PYTHON).result[:-1] + b',"more":}'),
        Completed(b'{"isError":true,"text":"' + PYTHON.encode() + b'"'),
    ],
)
def test_everything_else(outcome: Completed | Rejected) -> None:
    assert not could_not_ask(outcome)


DUAL = snapshot(spec("fixture", "dual", era="auto"))


async def opened_by(bench: OwnPort, capabilities: Json) -> Session:
    """A session of a legacy host that can be asked for this."""
    params = {**INITIALIZE, "capabilities": capabilities}
    answer = await bench.ask(rpc("initialize", params, 0))
    return Session(bench, answer.headers["mcp-session-id"], LEGACY, "/mcp")


async def used(session: Session, name: str, **arguments: str) -> Json:
    """The answer to a call of the server."""
    answer = await session.post(rpc("tools/call", use_tool("fixture", name, arguments), 5))
    return answer.json


@pytest.mark.parametrize("kind", ["result", "error"])
async def test_who_can_be_asked_is_told_to_call_again_and_has_a_connection_of_its_own(
    kind: str,
) -> None:
    block = {"type": "text", "text": PYTHON}
    said: Json = {"content": [block], "isError": True}
    if kind == "error":
        said = {"code": -32600, "message": PYTHON, "data": 1}
    async with port(DUAL) as bench:
        session, other = await opened_by(bench, {"elicitation": {}}), await bench.open()
        first = await used(session, kind, **{kind: json.dumps(said)})
        again = await used(session, kind, **{kind: json.dumps(said)})
        own = json_text((await used(session, "stats"))["result"])
        shared = json_text((await used(other, "stats"))["result"])

    if kind == "error":
        assert first["error"] == {**said, "message": f"{PYTHON}\n{HINT}"}
    else:
        assert first["result"] == {**said, "content": [block, {"type": "text", "text": HINT}]}
    assert again[kind] == said, "there it says so for another reason"
    assert (own["era"], shared["era"]) == ("legacy", "modern")
    assert own["pid"] != shared["pid"]


async def test_who_can_not_be_asked_gets_the_words_of_the_server_alone() -> None:
    said = {"code": -32600, "message": PYTHON}
    async with port(DUAL) as bench:
        session = await opened_by(bench, {})
        answer = await used(session, "error", error=json.dumps(said))
        after = json_text((await used(session, "stats"))["result"])

    assert answer["error"] == said
    assert after["era"] == "modern"
