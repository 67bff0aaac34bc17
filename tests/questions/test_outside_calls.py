"""What a legacy server asks while no call is under way: rarely, but filesystem servers do it first thing."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.core.spec import ServerAddress, ServerSpec, Snapshot, StdioCommand
from tests.kit.clock import eventually
from tests.kit.config import config_file, lean, program_entry, snapshot
from tests.kit.http_host import Port, port, rpc
from tests.kit.pipe_host import PipeHost
from tests.kit.results import META, Message, open_toolbox, texts, use_tool
from tests.kit.servers import ASKER

ABLE: Message = {"elicitation": {}, "sampling": {}, "roots": {}}
CAN: Message = {META + "clientCapabilities": ABLE}
ADA: Message = {"action": "accept", "content": {"name": "Ada"}}
WORK: Message = {"roots": [{"uri": "file:///work"}]}


def scene(folder: Path, *flags: str, modern: bool = True, **more: Any) -> PipeHost:
    entry = program_entry(ASKER, *flags, era="legacy")
    return PipeHost(config_file(folder, {"s": entry}, **more), modern=modern)


def use(tool: str) -> Message:
    return use_tool("s", tool, {}, _meta=CAN)


OPEN: Message = {**open_toolbox(), "_meta": CAN}


def back(params: Message, result: Message, answers: Message) -> Message:
    """The same request with these answers, by method."""
    assert result["resultType"] == "input_required", result
    given = {
        key: answers[question["method"]]
        for key, question in result["inputRequests"].items()
        if question["method"] in answers
    }
    return {**params, "inputResponses": given, "requestState": result["requestState"]}


ANSWERS: Message = {"roots/list": WORK, "elicitation/create": ADA}


def heard(host: PipeHost, count: int) -> list[Message]:
    """What the server was told outside of calls, once it was told so much."""
    found: list[Message] = []

    def enough() -> bool:
        found[:] = json.loads(texts(host.result("tools/call", use("told")))[0])
        return len(found) >= count

    eventually(enough, "the server hears its answers")
    return found


@pytest.mark.parametrize("params", [OPEN, use("told")], ids=["open_toolbox", "use_tool"])
def test_a_modern_host_answers_before_the_request_that_opened_the_server_begins(
    tmp_path: Path, params: Message
) -> None:
    with scene(tmp_path, "early", "early-name") as host:
        asked = host.result("tools/call", params)
        methods = sorted(question["method"] for question in asked["inputRequests"].values())
        result = host.result("tools/call", back(params, asked, ANSWERS))

        assert methods == ["elicitation/create", "roots/list"]
        [question] = [q for q in asked["inputRequests"].values() if "elicit" in q["method"]]
        assert question["params"]["message"] == "[dev/s] Your name?"
        assert result["resultType"] == "complete"
        assert heard(host, 2) == [{"a": WORK}, {"a": ADA}]
        if params is not OPEN:  # the server had its answers before the call came
            assert json.loads(texts(result)[0]) == [{"a": WORK}, {"a": ADA}]


def test_a_server_that_is_not_ready_before_it_has_its_answer_gets_it(tmp_path: Path) -> None:
    with scene(tmp_path, "early", "strict") as host:
        asked = host.result("tools/call", use("told"))
        result = host.result("tools/call", back(use("told"), asked, ANSWERS))

    assert json.loads(texts(result)[0]) == [{"a": WORK}]


def test_an_answer_that_is_missing_is_asked_for_again_and_the_call_does_not_begin(
    tmp_path: Path,
) -> None:
    with scene(tmp_path, "early", "early-name") as host:
        first = host.result("tools/call", use("told"))
        half = {"roots/list": WORK}
        again = host.result("tools/call", back(use("told"), first, half))
        result = host.result("tools/call", back(use("told"), again, ANSWERS))

        [question] = again["inputRequests"].values()
        assert question["method"] == "elicitation/create"
        assert again["inputRequests"].keys() < first["inputRequests"].keys()
        assert json.loads(texts(result)[0]) == [{"a": WORK}, {"a": ADA}]


def test_a_state_of_one_request_is_no_use_for_another(tmp_path: Path) -> None:
    with scene(tmp_path, "early") as host:
        asked = host.result("tools/call", OPEN)
        stolen = back(use("told"), asked, ANSWERS)
        error = host.error("tools/call", stolen)
        result = host.result("tools/call", back(OPEN, asked, ANSWERS))

    assert error["message"] == "Invalid or expired requestState"
    assert result["resultType"] == "complete"


def test_roots_are_told_again_without_asking_and_the_rest_is_refused(tmp_path: Path) -> None:
    with scene(tmp_path, "early") as host:
        asked = host.result("tools/call", OPEN)
        host.result("tools/call", back(OPEN, asked, ANSWERS))
        host.result("tools/call", use("later"))

        first, roots, name = heard(host, 3)

    assert first == roots == {"a": WORK}
    assert name["a"]["error"]["code"] == -32601


def test_without_any_roots_known_the_question_is_refused(tmp_path: Path) -> None:
    with scene(tmp_path) as host:
        host.result("tools/call", use("later"))
        answers = heard(host, 2)

    assert [answer["a"]["error"]["code"] for answer in answers] == [-32601, -32601]


def test_a_request_that_can_not_be_asked_goes_on(tmp_path: Path) -> None:
    """The connection was promised more than this request can keep."""
    with scene(tmp_path) as host:
        host.result("tools/call", use("can"))
        less: Message = {META + "clientCapabilities": {"roots": {}}}
        name = host.result("tools/call", {**use("name"), "_meta": less})
        model = host.result("tools/call", {**use("model"), "_meta": less})

    assert json.loads(texts(name)[0])["a"]["error"]["code"] == -32602
    assert json.loads(texts(model)[0])["a"]["error"]["code"] == -32601


def test_a_host_that_takes_its_request_back_is_not_asked(tmp_path: Path) -> None:
    with scene(tmp_path, "early") as host:
        id = host.ask("tools/call", OPEN)
        host.notify("notifications/cancelled", {"requestId": id})
        host.result("tools/call", {**OPEN, "_meta": {}})  # declares nothing now: is not asked

        assert [message for message in host.others if message.get("id") == id] == []


@pytest.mark.parametrize("naming", ["full", "bare"])
def test_under_a_tool_s_own_name_too(tmp_path: Path, naming: str) -> None:
    name = {"full": "dev__s__told", "bare": "told"}[naming]
    params: Message = {"name": name, "arguments": {}, "_meta": CAN}
    with scene(tmp_path, "early", toolMode="dynamic", naming=naming) as host:
        asked = host.result("tools/call", params)
        result = host.result("tools/call", back(params, asked, ANSWERS))

    assert json.loads(texts(result)[0]) == [{"a": WORK}]


def test_a_legacy_host_is_asked_directly(tmp_path: Path) -> None:
    with scene(tmp_path, "early", modern=False) as host:
        info = {"name": "x", "version": "1"}
        opening: Message = {"protocolVersion": "2025-11-25", "capabilities": ABLE}
        host.result("initialize", {**opening, "clientInfo": info})
        host.ask("tools/call", {k: v for k, v in OPEN.items() if k != "_meta"})
        question = host.until(lambda message: message.get("method") == "roots/list")
        host.send({"id": question["id"], "result": WORK})
        host.until(lambda message: "result" in message)

        assert heard_by_legacy(host) == [{"a": WORK}]


def heard_by_legacy(host: PipeHost) -> list[Message]:
    return json.loads(texts(host.use("s", "told", {}))[0])


# Over HTTP


def own_server(*flags: str) -> Snapshot:
    command = StdioCommand(sys.executable, lean(ASKER, "early", *flags))
    return snapshot(ServerSpec(ServerAddress("dev", "s"), command, era="legacy", scope="session"))


async def ask(opened: Port, params: Message) -> Message:
    return (await opened.ask_modern("tools/call", params)).result


@pytest.mark.parametrize("flags", [(), ("strict",)])
async def test_a_modern_host_over_http_is_asked_once_in_the_request_that_opens_the_server(
    flags: tuple[str, ...],
) -> None:
    async with port(own_server(*flags)) as opened:
        asked = await ask(opened, use("told"))
        result = await ask(opened, back(use("told"), asked, ANSWERS))

    assert json.loads(texts(result)[0]) == [{"a": WORK}]


async def test_a_legacy_host_over_http_is_asked_on_the_stream_of_its_request() -> None:
    """It may have no stream of its own for what belongs to no request."""
    async with port(own_server()) as opened:
        info = {"name": "x", "version": "1"}
        opening: Message = {"protocolVersion": "2025-11-25", "capabilities": ABLE}
        answer = await opened.ask(rpc("initialize", {**opening, "clientInfo": info}, 0))
        headers = {
            "mcp-session-id": answer.headers["mcp-session-id"],
            "mcp-protocol-version": "2025-11-25",
        }
        peer = await opened.connect()
        wish = {key: value for key, value in use("told").items() if key != "_meta"}
        peer.send(opened.request(rpc("tools/call", wish, 1), headers))
        await peer.head()
        question = await peer.message()
        told = json.dumps({"jsonrpc": "2.0", "id": question["id"], "result": WORK}).encode()
        taken = await opened.ask(told, headers)
        async with asyncio.timeout(20):
            result = await peer.message()

    assert question["method"] == "roots/list"
    assert taken.status == 202
    assert result["id"] == 1
