"""Over HTTP an answer belongs to the session, or to the principal of a host without one."""

from __future__ import annotations

import json
from typing import Any

from mcp_workbench.core.spec import HttpSettings, NamedToken, Snapshot
from tests.approvals.scenes import ALWAYS, CAN, NO, ONCE, is_denied, says, with_answer
from tests.kit.config import snapshot, spec
from tests.kit.http_host import Answer, OwnPort, Peer, Session, port, rpc
from tests.kit.results import INITIALIZE, LEGACY, Message, json_text, use_tool

HI: Message = {"text": "hi"}
TWO = HttpSettings(tokens=(NamedToken("ann", "a" * 20), NamedToken("bob", "b" * 20)))


def guarded() -> Snapshot:
    return snapshot(spec("fixture", approve=("echo",)))


async def call(opened: OwnPort, who: str = "", **more: Any) -> Answer:
    params = {**use_tool("fixture", "echo", HI), "_meta": CAN, **more}
    headers = {"authorization": f"Bearer {who * 20}"} if who else {}
    return await opened.ask_modern("tools/call", params, **headers)


async def asked(opened: OwnPort, who: str = "") -> Message:
    result = (await call(opened, who)).result
    assert result["resultType"] == "input_required"
    return result


async def test_a_modern_host_comes_back_with_the_answer() -> None:
    async with port(guarded()) as opened:
        question = await asked(opened)
        yes = with_answer(question, says(ONCE))
        result = (await call(opened, **yes)).result
        replayed = (await call(opened, **yes)).result

    assert json_text(result)["arguments"] == HI
    assert is_denied(replayed, "was used before")


async def test_a_host_without_a_session_can_not_answer_for_one() -> None:
    async with port(guarded()) as opened:
        question = await asked(opened)
        result = (await call(opened, **with_answer(question, says(ALWAYS)))).result
        await asked(opened)

    form = question["inputRequests"]["approval"]["params"]["requestedSchema"]
    assert ALWAYS not in form["properties"]["decision"]["enum"]
    assert is_denied(result)


async def test_the_answer_of_another_principal_does_not_count() -> None:
    async with port(guarded(), TWO) as opened:
        question = await asked(opened, "a")
        await asked(opened, "b")
        yes = with_answer(question, says(ONCE))
        foreign = await call(opened, "b", **yes)
        own = await call(opened, "a", **yes)

    message = question["inputRequests"]["approval"]["params"]["message"]
    assert '"test-host 1" (as "ann") wants to call' in message
    assert foreign.error["message"] == "Invalid or expired requestState"
    assert json_text(own.result)["arguments"] == HI


async def opened_session(opened: OwnPort, who: str) -> Session:
    """A session of a legacy host that can be asked."""
    headers = {"authorization": f"Bearer {who * 20}"}
    params: Message = {**INITIALIZE, "capabilities": {"elicitation": {}}}
    answer = await opened.ask(rpc("initialize", params, 0), headers)
    session = Session(opened, answer.headers["mcp-session-id"], LEGACY, "/mcp")
    session.headers |= headers
    return session


async def begun(session: Session) -> tuple[Peer, Message]:
    """A call whose response is still to be read, and the question that comes first."""
    peer = await session.begin("echo", HI)
    await peer.head()
    return peer, await peer.message()


def response(question: Message, decision: str) -> bytes:
    answer = {"jsonrpc": "2.0", "id": question["id"], "result": says(decision)}
    return json.dumps(answer).encode()


async def test_a_legacy_session_answers_its_own_questions_alone() -> None:
    async with port(guarded(), TWO) as opened:
        ann, bob = [await opened_session(opened, who) for who in "ab"]
        hers, question = await begun(ann)
        his, other = await begun(bob)
        await bob.post(response(question, NO))  # the id of her question, and of his
        refused = await his.message()
        await ann.post(response(question, ALWAYS))
        result = await hers.message()
        lasting = (await ann.use("echo", HI)).result
        _, asked_again = await begun(bob)

    assert question["id"] == other["id"], "both are the first question of their session"
    assert is_denied(refused["result"])
    assert json_text(result["result"])["arguments"] == HI
    assert json_text(lasting)["arguments"] == HI
    assert asked_again["method"] == "elicitation/create", (
        "what she approves is not approved for him"
    )
