"""The short way of a call: taken where nothing is unusual, left as soon as anything is another."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.core.spec import Limits, Snapshot, ToolFilter
from mcp_workbench.gateway.routes import LONGEST_KEY, MOST_ROUTES
from mcp_workbench.gateway.workbench import Gateway
from mcp_workbench.server.host_calls import HostCall
from mcp_workbench.server.session import HostSession
from mcp_workbench.server.session_tools import ToolView
from mcp_workbench.server.stdio_front import StdioFront
from mcp_workbench.transport.json_text import DEPTH
from mcp_workbench.transport.tasks import task_scope
from tests.kit.config import snapshot, spec, tool, url_spec
from tests.kit.inside import InsideWorkbench
from tests.kit.memory_host import MemoryHost
from tests.kit.results import META, enveloped, json_text, texts
from tests.kit.servers.bad_http import bad_http
from tests.server.test_session import INITIALIZE, LIMIT, line


class Talk:
    """A host whose calls go to one server."""

    def __init__(self, gateway: Gateway, session: HostSession, host: MemoryHost) -> None:
        self.gateway = gateway
        self.host = host
        self.session = session
        self.routes = session.view.routes
        limit = gateway.snapshot.limits.message_bytes
        self.receive = StdioFront(session, host, limit).receive
        self._last = 0

    def use(self, name: str, arguments: Any = None, **more: Any) -> bytes:
        """The line of a call, with a fresh id."""
        self._last += 1
        wish = {"tool": {"toolbox": "dev", "server": "a", "tool": name}}
        if arguments is not None:
            wish["arguments"] = arguments
        params = {"name": "use_tool", "arguments": wish, **more}
        return line(id=self._last, method="tools/call", params=params)

    def sent(self, call: bytes) -> HostCall:
        """The call that this line begins, sent before anybody else had a turn."""
        self.receive(call)
        begun = self.session.under_way[json.dumps(json.loads(call)["id"]).encode()]
        assert begun is not None
        assert begun.number, "it waits for its server"
        return begun

    async def answer(self) -> dict[str, Any]:
        return await self.host.answer(self._last)

    async def result(self, name: str, arguments: Any = None) -> dict[str, Any]:
        """The result of a call, whichever way it takes."""
        self.receive(self.use(name, arguments))
        return (await self.answer())["result"]


@asynccontextmanager
async def talk(configuration: Snapshot) -> AsyncGenerator[Talk]:
    """A legacy host, and a server that has answered a call."""
    host = MemoryHost()
    async with (
        asyncio.timeout(LIMIT),
        Gateway(configuration) as gateway,
        task_scope() as requests,
    ):
        session = HostSession(gateway.view, host, requests, ToolView(gateway.view, ()))
        talking = Talk(gateway, session, host)
        talking.receive(INITIALIZE)
        await talking.result("echo")
        yield talking


async def test_a_call_to_a_ready_server_is_sent_at_once_and_answered_as_ever() -> None:
    async with talk(snapshot(spec("a"))) as talking:
        before = await talking.result("echo", {"x": [1.0, 10**30]})

        assert talking.sent(talking.use("echo", {"x": [1.0, 10**30]})).plain
        assert (await talking.answer())["result"] == before
        assert json_text(before) == {"name": "echo", "arguments": {"x": [1.0, 10**30]}}


async def test_a_call_for_a_part_of_the_result_takes_the_long_way_and_the_next_one_does_not() -> (
    None
):
    async with talk(snapshot(spec("a"))) as talking:
        call = json.loads(talking.use("echo", {"x": 1}))
        call["params"]["arguments"]["select"] = "arguments.x"
        talking.receive(line(**{key: call[key] for key in ("id", "method", "params")}))
        part = (await talking.answer())["result"]

        assert texts(part)[0] == "1"
        assert talking.sent(talking.use("echo", {"x": 1})).plain
        assert json_text((await talking.answer())["result"])["arguments"] == {"x": 1}


async def test_before_the_conversation_is_opened_nothing_is_sent() -> None:
    host = MemoryHost()
    async with asyncio.timeout(LIMIT), InsideWorkbench(snapshot(spec("a"))) as workbench:
        await workbench.use_tool(tool("a", "echo"))
        async with task_scope() as requests:
            session = HostSession(workbench.view, host, requests, ToolView(workbench.view, ()))
            talking = Talk(workbench.gateway, session, host)

            talking.receive(talking.use("echo"))

            assert "open the conversation first" in (await talking.answer())["error"]["message"]


async def test_a_modern_call_declares_what_its_own_meta_says_whatever_came_before_it() -> None:
    host = MemoryHost()
    asks: dict[str, Any] = {META + "clientCapabilities": {"elicitation": {}}}
    other: dict[str, Any] = {META + "clientInfo": {"name": "other", "version": "1"}}
    async with asyncio.timeout(LIMIT), InsideWorkbench(snapshot(spec("a"))) as workbench:
        await workbench.use_tool(tool("a", "echo"))
        async with task_scope() as requests:
            session = HostSession(workbench.view, host, requests, ToolView(workbench.view, ()))
            talking = Talk(workbench.gateway, session, host)
            call = enveloped({"_meta": asks})
            declared = talking.sent(talking.use("echo", {}, **call)).request.capabilities
            name = session.host[0]
            talking.receive(
                line(id="l", method="tools/list", params=enveloped({"_meta": other})),
            )
            assert session.host[0] == "other"

            again = talking.sent(talking.use("echo", {}, **call))

            assert json.loads(bytes(declared)).keys() == {"elicitation", "extensions"}
            assert bytes(again.request.capabilities) == bytes(declared)
            assert session.host[0] == name
            await talking.answer()


async def test_nothing_is_sent_before_a_server_is_there() -> None:
    async with talk(snapshot(spec("a"), spec("b", "hang"))) as talking:
        talking.receive(talking.use("echo").replace(b'"a"', b'"b"'))

        assert [call.number for call in talking.session.under_way.values() if call] == [0]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"id": 2', b'"id": "2"'),
        (b'"id": 2', b'"id": -2'),
        (b'"x"', '"é"'.encode()),
        (b'"server": "a"', b'"server"  :"\\u0061"'),
    ],
)
async def test_another_way_to_write_it_is_the_same_call(old: bytes, new: bytes) -> None:
    async with talk(snapshot(spec("a"))) as talking:
        call = talking.use("echo", {"text": "x"})
        other = call.replace(old, new)
        assert other != call

        assert talking.sent(other).plain
        answer = await talking.host.answer(json.loads(other)["id"])
        assert (
            json_text(answer["result"])["arguments"]
            == json.loads(other)["params"]["arguments"]["arguments"]
        )


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (b'"id": 2', b'"id": 2.0', "id must be a string or an integer"),
        (b'"arguments": {"text": "x"}', b'"arguments": ["x"]', "arguments: Expected object"),
        (b'"arguments": {"text": "x"}', b'"arguments": null', "arguments: Expected object"),
        (b'"server": "a"', b'"server": ""', "tool.server: Server name cannot be empty"),
        (b'"server": "a"', b'"server": "a", "name": "echo"', "Unrecognized key"),
        (b'"server": "a"', b'"server": 1', "tool.server: Expected string, received number"),
        (b'"x"', b'"x', "not JSON"),
    ],
)
async def test_what_is_wrong_is_explained(old: bytes, new: bytes, told: str) -> None:
    async with talk(snapshot(spec("a"))) as talking:
        call = talking.use("echo", {"text": "x"})
        wrong = call.replace(old, new)
        assert wrong != call
        talking.host.frames.clear()

        talking.receive(wrong)

        assert told in talking.host.frames[0].decode()


async def test_a_call_with_members_beside_it_is_sent_with_them() -> None:
    async with talk(snapshot(spec("a"))) as talking:
        assert talking.sent(talking.use("echo", _meta={"progressToken": 1})).request.meta
        await talking.answer()
        assert set(talking.sent(talking.use("echo", x=1)).request.params) == {"arguments", "x"}
        await talking.answer()


async def test_an_id_in_use_is_refused() -> None:
    async with talk(snapshot(spec("a"))) as talking:
        call = talking.use("hang")
        first = talking.sent(call)
        talking.host.frames.clear()

        talking.receive(call)

        assert b"id is in use" in talking.host.frames[0]
        assert list(talking.session.under_way.values()) == [first]


async def test_a_tool_that_another_configuration_hides_is_not_called() -> None:
    async with talk(snapshot(spec("a"))) as talking:
        assert talking.sent(talking.use("echo"))
        await talking.answer()
        shown = ToolFilter(exclude=("echo",))
        talking.gateway.reload(snapshot(spec("a", tools=shown)))

        hidden = await talking.result("echo")

        assert "Tool 'echo' not found in server 'a'" in texts(hidden)[0]


async def test_after_a_reload_the_new_server_answers() -> None:
    async with talk(snapshot(spec("a"))) as talking:
        old = json_text(await talking.result("stats"))["pid"]
        assert json_text(await talking.result("stats"))["pid"] == old
        talking.gateway.reload(snapshot(spec("a", env={"CHANGED": "1"})))

        new = json_text(await talking.result("stats"))["pid"]

        assert new != old
        assert talking.sent(talking.use("stats"))
        assert json_text((await talking.answer())["result"])["pid"] == new


async def test_after_its_server_died_the_next_one_answers() -> None:
    async with talk(snapshot(spec("a"))) as talking:
        old = json_text(await talking.result("stats"))["pid"]
        await talking.result("die")

        assert json_text(await talking.result("stats"))["pid"] != old


async def test_sent_again_to_a_modern_server_it_is_answered_as_its_host_reads(
    tmp_path: Path,
) -> None:
    once = {"name": "die_once", "inputSchema": {}, "annotations": {"readOnlyHint": True}}
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([once, {"name": "echo", "inputSchema": {}}]))
    async with talk(snapshot(spec("a", f"tools={tools}"))) as talking:
        assert talking.sent(talking.use("die_once", {"file": str(tmp_path / "runs")}))
        talking.gateway.reload(snapshot(spec("a", "modern", f"tools={tools}", era="modern")))

        result = (await talking.answer())["result"]

        assert json_text(result) == 2, "both servers ran it"
        assert "resultType" not in result


async def test_a_new_list_of_tools_is_looked_at_before_the_next_call() -> None:
    async with talk(snapshot(spec("a"))) as talking:
        assert talking.sent(talking.use("echo"))
        await talking.answer()
        changed = asyncio.Event()
        talking.gateway.on_change(lambda _: changed.set())
        await talking.result("flip", {"name": "extra"})
        await changed.wait()

        old = talking.routes.get(b'{"toolbox": "dev", "server": "a", "tool": "echo"}')
        new = talking.sent(talking.use("echo")).route
        assert new is not old, "its route was found in the old list"
        await talking.answer()
        assert talking.sent(talking.use("echo"))
        await talking.answer()


async def test_a_busy_server_is_left_to_the_limits() -> None:
    limits = Limits(calls_per_server=1)
    async with talk(snapshot(spec("a"), limits=limits)) as talking:
        assert talking.sent(talking.use("hang"))

        assert "limits.callsPerServer" in texts(await talking.result("echo"))[0]


async def test_one_tool_written_in_hundreds_of_ways_costs_no_memory() -> None:
    async with talk(snapshot(spec("a"))) as talking:
        for spaces in range(MOST_ROUTES + 8):
            wide = talking.use("echo").replace(b'"server":', b'"server":' + b" " * spaces)
            assert talking.sent(wide)
            await talking.answer()

        assert len(talking.routes) <= MOST_ROUTES


async def test_a_very_long_way_to_write_it_is_not_kept() -> None:
    async with talk(snapshot(spec("a"))) as talking:
        wide = talking.use("echo").replace(b'"server":', b'"server":' + b" " * LONGEST_KEY)

        assert talking.sent(wide)
        await talking.answer()
        assert len(talking.routes) == 1


async def test_a_route_that_is_gone_is_not_kept() -> None:
    async with talk(snapshot(spec("a"))) as talking:
        assert talking.sent(talking.use("echo"))
        await talking.answer()
        talking.gateway.reload(snapshot(spec("a", env={"CHANGED": "1"})))
        await talking.result("stats")
        assert talking.sent(talking.use("stats"))
        await talking.answer()

        assert {route.tool.tool for route in talking.routes} == {"stats"}


async def test_no_depth_of_a_call_to_a_url_costs_more_than_that_call() -> None:
    async with (
        bad_http() as bad,
        talk(snapshot(url_spec(bad.url("/ok"), "a", era="legacy", headers=()))) as talking,
    ):
        talking.host.frames.clear()
        around = 4  # the message, its parameters, the arguments of `use_tool` and those of the tool
        for depth in (700, 900, *range(DEPTH - 8, DEPTH + 4), DEPTH + 400):
            deep = b"[" * depth + b"]" * depth
            call = talking.use("echo", {"text": "x", "deep": 0}).replace(
                b'"deep": 0', b'"deep": ' + deep
            )
            ping = line(id=f"p{depth}", method="ping")
            talking.receive(call + ping)
            answer = await talking.answer()
            assert (await talking.host.answer(f"p{depth}"))["result"] == {}
            assert ("error" in answer) == (depth + around > DEPTH)
            assert "error" not in answer or answer["error"]["message"] == "nested too deeply"
            assert len(talking.host.frames) == 2
            talking.host.frames.clear()


async def test_the_rest_of_a_call_is_made_where_it_is_needed() -> None:
    """A failed call teaches what the tool takes: for that its arguments have to be known."""
    async with talk(snapshot(spec("a"))) as talking:
        assert talking.sent(talking.use("fail"))
        result = (await talking.answer())["result"]
        assert result["isError"] is True
        assert "no such file" in json.dumps(result)

        refusal = json.dumps({"code": -32602, "message": "wrong"})
        assert talking.sent(talking.use("error", {"error": refusal}))
        assert (await talking.answer())["error"]["code"] == -32602
