"""Questions, addresses and tasks of servers that can't be read: the call ends, and its error says why."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcp_workbench.core.errors import WorkbenchError
from mcp_workbench.server.elicitation import LONGEST_SERVER_STATE
from tests.kit.config import snapshot, spec, tool
from tests.kit.http_host import OwnPort, port, rpc
from tests.kit.inside import InsideWorkbench
from tests.kit.results import META, Json, error_code, text, use_tool

CAN: Json = {
    META + "clientCapabilities": {
        "elicitation": {"form": {}, "url": {}},
        "extensions": {META + "tasks": {}},
    }
}
QUESTION: Json = {
    "method": "elicitation/create",
    "params": {"message": "m", "requestedSchema": {"type": "object", "properties": {}}},
}
TASK: Json = {
    "resultType": "task",
    "taskId": "one",
    "status": "working",
    "createdAt": "2026-01-01T00:00:00Z",
    "lastUpdatedAt": "2026-01-01T00:00:00Z",
    "ttlMs": 1000,
}
MODERN_SERVER = snapshot(spec("fixture", "modern", era="modern"))
MALFORMED = "the server wants addresses to be visited, but its error is malformed: "
UNREADABLE = "the server's question can't be read: "
LONG_STATE = f"its requestState is longer than {LONGEST_SERVER_STATE >> 10} KiB"


async def modern(opened: OwnPort, name: str, **arguments: str) -> Json:
    """The result of a tool for a modern host that can be asked for everything."""
    call = {**use_tool("fixture", name, arguments), "_meta": CAN}
    return (await opened.ask_modern("tools/call", call)).result


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (None, "Object missing required field `data`"),
        ([], "Expected `object`, got `array` - at `$.data`"),
        ({"elicitations": 5}, "Expected `array`, got `int`"),
    ],
)
async def test_addresses_that_can_not_be_read_are_told_to_a_modern_host_and_relayed_to_a_legacy_one(
    data: Any, why: str
) -> None:
    error = {"code": -32042, "message": "Log in"} | ({} if data is None else {"data": data})
    async with port() as opened:
        told = await modern(opened, "error", error=json.dumps(error))
        session = await opened.open()
        params = use_tool("fixture", "error", {"error": json.dumps(error)})
        relayed = await session.post(rpc("tools/call", params, 5))

    assert (text(told), error_code(told)) == (
        f"[dev/fixture/error] Error: {MALFORMED}{why}",
        "protocol_error",
    )
    assert relayed.error == error


async def test_a_program_s_call_is_refused_with_the_error_of_its_server() -> None:
    error = json.dumps({"code": -32042, "message": "Log in", "data": []})
    async with InsideWorkbench(snapshot(spec("fixture"))) as bench:
        with pytest.raises(WorkbenchError, match="Log in"):
            await bench.use_tool(tool("fixture", "error"), {"error": error})


@pytest.mark.parametrize(
    ("result", "why"),
    [
        ({"inputRequests": 5}, f"{UNREADABLE}Expected `object`, got `int`"),
        ({"inputRequests": {"a": 5}}, f"{UNREADABLE}Expected `object`, got `int`"),
        (
            {"inputRequests": {"a": QUESTION}, "requestState": "x" * LONGEST_SERVER_STATE},
            f"the server's question can't be relayed: {LONG_STATE}",
        ),
        (
            {**TASK, "taskId": "x" * 1025},
            "the id of its task is longer than 1024 characters",
        ),
        ({**TASK, "taskId": 5}, 'the server\'s result is "task", which is not supported'),
        ({"resultType": "other"}, 'the server\'s result is "other", which is not supported'),
    ],
)
async def test_what_a_modern_server_wants_and_nobody_can_read_ends_the_call(
    result: Json, why: str
) -> None:
    odd = json.dumps({"resultType": "input_required", **result})
    async with port(MODERN_SERVER) as opened:
        told = await modern(opened, "result", result=odd)

    assert (text(told), error_code(told)) == (
        f"[dev/fixture/result] Error: {why}",
        "protocol_error",
    )


async def test_a_state_of_the_largest_size_is_relayed() -> None:
    state = "x" * (LONGEST_SERVER_STATE - 2)  # with its quotation marks
    asked = {"inputRequests": {"a": QUESTION}, "requestState": state}
    async with port(MODERN_SERVER) as opened:
        told = await modern(
            opened, "result", result=json.dumps({"resultType": "input_required", **asked})
        )

    assert told["resultType"] == "input_required"
    assert list(told["inputRequests"]) == ["a"]
    assert len(told["requestState"]) > LONGEST_SERVER_STATE


@pytest.mark.parametrize(
    ("result", "why"),
    [
        ({}, "the server never stops asking"),
        ({"inputRequests": 5}, f"{UNREADABLE}Expected `object`, got `int`"),
        (
            {"inputRequests": {"a": QUESTION}},
            "the server wants elicitation/create, and this host can't be asked for that",
        ),
    ],
)
async def test_so_it_is_for_a_legacy_host(result: Json, why: str) -> None:
    odd = json.dumps({"resultType": "input_required", **result})
    async with port(MODERN_SERVER) as opened:
        session = await opened.open()
        answer = await session.post(
            rpc("tools/call", use_tool("fixture", "result", {"result": odd}), 5)
        )

    told = answer.messages[-1] if answer.body.startswith(b"retry") else answer.json
    assert text(told["result"]) == f"[dev/fixture/result] Error: {why}"
    assert error_code(told["result"]) == "protocol_error"


async def test_a_program_that_has_no_person_is_told_that_nobody_can_be_asked() -> None:
    odd = json.dumps({"resultType": "input_required", "inputRequests": {"a": QUESTION}})
    async with InsideWorkbench(MODERN_SERVER) as bench:
        with pytest.raises(WorkbenchError) as caught:
            await bench.use_tool(tool("fixture", "result"), {"result": odd})

    assert caught.value.code == "protocol_error"
    assert str(caught.value) == (
        "[dev/fixture/result] Error: the server asks for input, and nobody can be asked"
    )
