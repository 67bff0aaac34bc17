"""Questions over HTTP: a legacy server asks only a host that it does not share."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client

from mcp_workbench.core.spec import Scope, ServerAddress, ServerSpec, Snapshot, StdioCommand
from mcp_workbench.upstream.pool import MOST_CONNECTIONS, MOST_PER_PRINCIPAL
from tests.kit.clock import until
from tests.kit.config import lean, snapshot, spec
from tests.kit.http_host import Port, port
from tests.kit.processes import alive, pids_in
from tests.kit.results import META, Message, use_tool
from tests.kit.sdk_host import client
from tests.kit.servers import ASKER
from tests.questions.test_pairs import HOSTS, Person, use

CAN: dict[str, Any] = {META + "clientCapabilities": {"elicitation": {}}}


def asker(scope: Scope) -> Snapshot:
    command = StdioCommand(sys.executable, lean(ASKER))
    specs = [
        ServerSpec(ServerAddress("lab", era), command, era=era, scope=scope)
        for era in ("legacy", "modern")
    ]
    return snapshot(*specs)


def host(opened: Port, mode: str, person: Person) -> Client:
    return client(
        f"http://{opened.name}/mcp",
        mode=mode,
        elicitation_callback=person.elicit,
        sampling_callback=person.sample,
        list_roots_callback=person.roots,
    )


@pytest.mark.parametrize("mode", HOSTS)
@pytest.mark.parametrize("server", ["legacy", "modern"])
async def test_a_server_of_one_s_own_may_ask(mode: str, server: str) -> None:
    person = Person()
    async with port(asker("session")) as opened, host(opened, mode, person) as client:
        [answer] = (await use(client, server, "name")).values()
        told = await use(client, server, "twice")

    assert answer["content"] == {"name": "Ada 1"}
    assert len(person.asked) == 3
    assert "Ada 3" in str(told)


@pytest.mark.parametrize("mode", HOSTS)
async def test_a_shared_legacy_server_may_not(mode: str) -> None:
    person = Person()
    async with port(asker("shared")) as opened, host(opened, mode, person) as client:
        declared = await use(client, "legacy", "can")
        await use(client, "legacy", "name")

    assert declared == {}
    assert person.asked == []


@pytest.mark.parametrize("mode", HOSTS)
async def test_each_of_two_hosts_hears_its_own_question_only(mode: str) -> None:
    people = Person(), Person()
    async with (
        port(asker("session")) as opened,
        host(opened, mode, people[0]) as one,
        host(opened, mode, people[1]) as other,
        asyncio.TaskGroup() as calls,
    ):
        for _ in range(3):
            calls.create_task(use(one, "legacy", "name"))
            await asyncio.gather(use(other, "legacy", "name"), use(other, "legacy", "roots"))

    assert [len(person.asked) for person in people] == [3, 3]


async def test_a_modern_host_that_never_comes_back_leaves_its_place_to_others() -> None:
    params = use_tool("legacy", "name", {}, toolbox="lab", _meta=CAN)
    result: dict[str, Any] = {}
    async with port(asker("session")) as opened:
        for _ in range(MOST_CONNECTIONS + 2):
            result = (await opened.ask_modern("tools/call", params)).result
            assert result["resultType"] == "input_required"

        [key] = result["inputRequests"]
        answers: dict[str, Any] = {key: {"action": "accept", "content": {"name": "Ada"}}}
        back: dict[str, Any] = {
            **params,
            "inputResponses": answers,
            "requestState": result["requestState"],
        }
        last = (await opened.ask_modern("tools/call", back)).result

    assert "Ada" in last["content"][0]["text"]


async def test_ever_new_declarations_start_no_ever_new_servers(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    own = spec("fixture", env={"PIDFILE": str(pids)}, scope="session")
    async with port(snapshot(own)) as opened:
        for number in range(MOST_PER_PRINCIPAL + 6):
            can: Message = {META + "clientCapabilities": {"elicitation": {f"x{number}": {}}}}
            answer = await opened.ask_modern(
                "tools/call", {**use_tool("fixture", "stats"), "_meta": can}
            )
            assert answer.json_text["pid"] == pids_in(pids)[-1]
            await until(lambda: sum(map(alive, pids_in(pids))) <= MOST_PER_PRINCIPAL)

    assert len(pids_in(pids)) == MOST_PER_PRINCIPAL + 6  # each was served


async def test_servers_that_are_busy_are_left_to_whoever_uses_them(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    own = spec("fixture", env={"PIDFILE": str(pids)}, scope="session")
    async with port(snapshot(own)) as opened:

        def params(number: int, tool: str) -> Message:
            can: Message = {META + "clientCapabilities": {"elicitation": {f"x{number}": {}}}}
            return {**use_tool("fixture", tool), "_meta": can}

        for number in range(MOST_PER_PRINCIPAL):
            peer = await opened.connect()
            peer.send(opened.request(*opened.modern("tools/call", params(number, "hang"))))
            await until(lambda number=number: len(pids_in(pids)) == number + 1)
        told = await opened.ask_modern("tools/call", params(MOST_PER_PRINCIPAL, "stats"))

        assert "the server is busy" in told.result["content"][0]["text"]
        assert sum(map(alive, pids_in(pids))) == len(pids_in(pids)) == MOST_PER_PRINCIPAL


async def test_a_busy_server_is_no_reason_to_leave_the_others_out(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    own = spec("fixture", env={"PIDFILE": str(pids)}, scope="session")
    async with port(snapshot(own, spec("other"))) as opened:
        for number in range(MOST_CONNECTIONS):
            peer = await opened.connect()
            call = {**use_tool("fixture", "hang"), "_meta": CAN}
            peer.send(opened.request(*opened.modern("tools/call", call)))
            await until(lambda number=number: len(pids_in(pids)) == number + 1)
        wish = {"name": "open_toolbox", "arguments": {"toolbox_name": "dev"}, "_meta": CAN}
        text = (await opened.ask_modern("tools/call", wish)).result["content"][0]["text"]

    found = json.loads(text)
    assert found["servers_connected"] == 1
    [missing] = found["unavailable"]
    assert missing["server"] == "fixture"
    assert "busy" in missing["reason"]
