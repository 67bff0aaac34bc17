"""A call that waits at its legacy server while its modern host is asked: as often as it takes, and once."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.protocol.elicitation import ROUNDS
from mcp_workbench.server.suspended_calls import MOST_PER_PRINCIPAL
from tests.kit.clock import eventually
from tests.kit.config import config_file, program_entry
from tests.kit.pipe_host import PipeHost
from tests.kit.results import META, Message, texts, use_tool
from tests.kit.servers import ASKER

CAN: Message = {META + "clientCapabilities": {"elicitation": {}, "roots": {}}}
ADA: Message = {"action": "accept", "content": {"name": "Ada"}}


@pytest.fixture
def host(tmp_path: Path) -> Generator[PipeHost]:
    servers = {"legacy": program_entry(ASKER, era="legacy")}
    with PipeHost(config_file(tmp_path, servers), modern=True) as host:
        yield host


def call(tool: str, **more: Any) -> Message:
    return {**use_tool("legacy", tool, {}), "_meta": CAN, **more}


def answers(result: Message, *values: Message) -> Message:
    """What to send with the same call: these answers, in the order of the questions."""
    keys = list(result["inputRequests"])
    return {
        "inputResponses": dict(zip(keys, values, strict=True)),
        "requestState": result["requestState"],
    }


def test_no_key_is_used_twice_in_one_call(host: PipeHost) -> None:
    first = host.result("tools/call", call("twice"))
    second = host.result("tools/call", call("twice", **answers(first, ADA)))
    last = host.result("tools/call", call("twice", **answers(second, ADA)))

    assert first["inputRequests"].keys().isdisjoint(second["inputRequests"])
    assert last["resultType"] == "complete"


def test_a_question_that_comes_while_the_host_is_away_is_put_when_it_is_back(
    host: PipeHost,
) -> None:
    first = host.result("tools/call", call("slow"))
    host.result("tools/call", call("name"))  # another call in between, which is held too
    second = host.result("tools/call", call("slow", **answers(first, ADA)))
    work: Message = {"roots": [{"uri": "file:///work"}]}
    last = host.result("tools/call", call("slow", **answers(second, work)))

    [question] = second["inputRequests"].values()
    assert question["method"] == "roots/list"
    assert json.loads(texts(last)[0]) == {"a": ADA, "b": work}


def test_a_server_that_does_not_wait_for_its_answer_gets_one_and_so_does_the_host(
    host: PipeHost,
) -> None:
    id = host.ask("tools/call", call("hasty"))
    result = host.answer(id)["result"]

    def told() -> Any:
        return json.loads(texts(host.result("tools/call", call("told")))[0])

    eventually(lambda: told() != [], "the server is told that nobody will answer")
    assert json.loads(texts(result)[0]) == "done"
    assert told() == [{"a": {"action": "cancel"}}]
    assert [message for message in host.others if message.get("id") == id] == []


def test_a_server_that_never_stops_asking_is_stopped(host: PipeHost) -> None:
    more: Message = {}
    for _ in range(ROUNDS):
        asked = host.result("tools/call", call("endless", **more))
        more = answers(asked, ADA)
    last = host.result("tools/call", call("endless", **more))

    assert last["isError"] is True
    assert "never stops asking" in texts(last)[0]


def test_a_call_that_goes_on_is_under_way_like_any_other(host: PipeHost) -> None:
    """So its id is taken, and it can be taken back."""
    first = host.result("tools/call", call("slow"))
    host.ask("tools/call", call("slow", **answers(first, ADA)), id=77)
    host.ask("tools/call", call("can"), id=77)
    doubled = host.until(lambda message: "error" in message)
    host.notify("notifications/cancelled", {"requestId": 77})
    host.ask("tools/call", call("can"), id=77)

    assert doubled["error"]["message"] == "id is in use"
    assert "elicitation" in texts(host.answer(77)["result"])[0]


def test_a_host_that_leaves_ever_more_questions_open_loses_the_oldest(host: PipeHost) -> None:
    asked = [host.result("tools/call", call("name")) for _ in range(MOST_PER_PRINCIPAL + 1)]

    gone = host.request("tools/call", call("name", **answers(asked[0], ADA)))["error"]
    kept = [host.result("tools/call", call("name", **answers(one, ADA))) for one in asked[1:]]

    assert gone["message"] == "The suspended call is gone; it may have run"
    assert [json.loads(texts(one)[0]) for one in kept] == [{"a": ADA}] * MOST_PER_PRINCIPAL
    eventually(lambda: "given up" in host.stderr, "the log says so")
    [told] = [line for line in host.stderr.splitlines() if "given up" in line]
    assert "dev/legacy/name: given up: too many questions are open" in told
