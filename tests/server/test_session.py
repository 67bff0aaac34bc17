"""One host's conversation in memory: whatever comes in, every answer is valid and comes once."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mcp_workbench.core.spec import Limits, ServerAddress, ServerSpec, Snapshot, StdioCommand
from mcp_workbench.gateway.views import View
from mcp_workbench.gateway.workbench import Gateway
from mcp_workbench.server.parse import cancelled_id
from mcp_workbench.server.session import HostSession
from mcp_workbench.server.session_tools import ToolView
from mcp_workbench.server.stdio_front import StdioFront
from mcp_workbench.transport import jsonrpc
from mcp_workbench.transport.json_text import DEPTH
from mcp_workbench.transport.tasks import TaskScope, task_scope
from tests.kit.config import snapshot, spec
from tests.kit.memory_host import MemoryHost
from tests.kit.results import json_text
from tests.kit.servers import OFFERS

LIMIT = 20.0


class Talking:
    """A session behind the front that reads its bytes."""

    def __init__(
        self,
        gateway: Gateway,
        host: MemoryHost,
        requests: TaskScope,
        opened: tuple[str, ...] = (),
    ) -> None:
        session = HostSession(gateway.view, host, requests, ToolView(gateway.view, opened))
        self.when_idle = session.when_idle
        self.session = session
        limit = gateway.snapshot.limits.message_bytes
        self.receive = StdioFront(session, host, limit).receive


@asynccontextmanager
async def session(
    configuration: Snapshot, opened: tuple[str, ...] = ()
) -> AsyncGenerator[tuple[Talking, MemoryHost]]:
    host = MemoryHost()
    async with (
        asyncio.timeout(LIMIT),
        Gateway(configuration) as gateway,
        task_scope() as requests,
    ):
        yield Talking(gateway, host, requests, opened), host


def line(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


INITIALIZE = line(
    id=0, method="initialize", params={"protocolVersion": "2025-11-25", "capabilities": {}}
)

values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "arguments", "_meta", "tool", "cursor", "requestId", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
methods = st.sampled_from(
    [
        "initialize",
        "tools/list",
        "tools/call",
        "server/discover",
        "ping",
        "notifications/cancelled",
        "x",
    ]
)
messages = st.fixed_dictionaries(
    {"method": methods | values}, optional={"id": values, "params": values, "result": values}
)
garbage = st.binary(max_size=30) | messages.map(lambda message: line(**message))


@settings(deadline=None)
@given(st.lists(garbage, max_size=8), st.booleans())
@example(
    [line(id="x", method="tools/call", params={"name": "use_tool", "arguments": {"tool": "x"}})],
    True,
)
@example([b'{"jsonrpc":"2.0","id":"x","method":"tools/list","params":{"_meta":null}}\n'], True)
def test_whatever_comes_in_nothing_raises_and_every_answer_is_valid(
    incoming: list[bytes], opened: bool
) -> None:
    async def talk() -> None:
        async with session(snapshot()) as (talking, host):
            if opened:
                talking.receive(INITIALIZE)
            for data in incoming:
                talking.receive(data)
            talking.receive(b"\n" + line(id="the last one", method="ping"))
            await host.answer("the last one")
            for message in host.messages:
                assert message["jsonrpc"] == "2.0"
                if "method" not in message:
                    assert len(message.keys() & {"result", "error"}) == 1
                    assert message["id"] is None or isinstance(message["id"], int | str)
                if "error" in message:
                    assert message["error"]["code"] != -32603

    asyncio.run(talk())


@settings(deadline=None)
@given(st.lists(st.integers(0, 400), max_size=10))
def test_chunks_change_nothing(places: list[int]) -> None:
    ping = b"".join(line(id=n, method="ping") for n in range(1, 5))
    data = INITIALIZE + ping

    async def talk() -> list[bytes]:
        async with session(snapshot()) as (talking, host):
            ends = sorted({place % len(data) for place in places} | {len(data)})
            for start, end in zip([0, *ends], ends, strict=False):
                if start < end:
                    talking.receive(data[start:end])
            return host.frames

    frames = asyncio.run(talk())
    assert [json.loads(frame)["id"] for frame in frames] == [0, 1, 2, 3, 4]


TOOL = b'{"toolbox":"a","server":"b","tool":"c"}'


@pytest.mark.parametrize(
    "deep",
    [
        b'"method":"tools/call","params":{"name":"use_tool","arguments":{"tool":%b}}',
        b'"method":"tools/call","params":{"name":"use_tool","arguments":{"tool":' + TOOL + b',"arguments":%b}}',
        b'"method":"tools/call","params":{"name":"open_toolbox","arguments":%b}',
        b'"method":"initialize","params":{"capabilities":{"extensions":%b}}',
        b'"method":"completion/complete","params":{"ref":%b}',
        b'"method":"tools/list","params":{"_meta":%b}',
    ],
)  # fmt: skip
async def test_no_depth_of_a_request_is_a_fault_of_ours(deep: bytes) -> None:
    async with session(snapshot()) as (talking, host):
        talking.receive(INITIALIZE)
        for depth in (700, 900, *range(DEPTH - 8, DEPTH + 4), DEPTH + 400, 5 * DEPTH):
            message = deep % (b'{"a":' * depth + b"1" + b"}" * depth)
            talking.receive(b'{"jsonrpc":"2.0","id":%d,%b}\n' % (depth, message))
            answer = json.dumps(await host.answer(depth))
            assert "the workbench failed" not in answer
            around = 1 + deep.count(b"{") - deep.count(TOOL)
            assert ("nested too deeply" in answer) == (depth + around > DEPTH)
            host.frames.clear()


def test_a_cancel_of_any_depth_does_no_harm() -> None:
    for depth in range(DEPTH - 100, DEPTH):
        params = msgspec.Raw(b'{"a":' * depth + b"1" + b"}" * depth)
        assert cancelled_id(jsonrpc.Envelope(params=params)) == b""


class Faulty(View):
    """One of our own faults, planted."""

    def start(self, call: Any, key: Any = None) -> bool:
        raise ZeroDivisionError("planted")

    async def open(self, name: str, *, remembered: bool = False) -> Any:
        raise ZeroDivisionError("planted")


async def test_a_fault_of_ours_costs_one_request_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    host = MemoryHost()
    async with asyncio.timeout(LIMIT), Gateway(snapshot()) as gateway, task_scope() as requests:
        gateway.view = Faulty(gateway, gateway.scopes.whole)
        talking = Talking(gateway, host, requests)
        talking.receive(INITIALIZE)
        wish = {"tool": {"toolbox": "dev", "server": "a", "tool": "echo"}}
        for id, name, arguments in (
            (1, "use_tool", wish),
            (2, "open_toolbox", {"toolbox_name": "dev"}),
        ):
            params = {"name": name, "arguments": arguments}
            talking.receive(line(id=id, method="tools/call", params=params))
            assert (await host.answer(id))["error"]["code"] == -32603
        talking.receive(line(id=3, method="ping"))
        assert (await host.answer(3))["result"] == {}

    assert caplog.text.count("planted") >= 2
    assert b"planted" not in b"".join(
        host.frames
    )  # how we failed is nobody's business but the log's


async def test_a_session_goes_on_elsewhere_with_the_toolboxes_that_were_opened() -> None:
    boxes = snapshot(spec("a"), spec("b", toolbox="ops"), mode="dynamic")

    async def listed(talking: Talking, host: MemoryHost) -> set[str]:
        talking.receive(line(id=1, method="tools/list"))
        tools = (await host.answer(1))["result"]["tools"]
        return {tool["name"].rpartition("__")[0] for tool in tools if "__" in tool["name"]}

    async with session(boxes) as (talking, host):
        talking.receive(INITIALIZE)
        params = {"name": "open_toolbox", "arguments": {"toolbox_name": "ops"}}
        talking.receive(line(id=2, method="tools/call", params=params))
        await host.answer(2)
        opened, _, _ = talking.session.remembered()
        assert await listed(talking, host) == {"ops__b"}

    async with session(boxes) as (talking, host):
        talking.receive(INITIALIZE)
        for toolbox in opened:
            talking.session.reopen(toolbox)
        assert await listed(talking, host) == {"ops__b"}
        assert talking.session.remembered()[0] == opened


async def test_what_others_need_to_go_on_is_known_before_the_host_is_answered() -> None:
    notes = "note://shared"
    server = StdioCommand(sys.executable, ("-E", "-S", OFFERS, "fixture"))
    boxes = snapshot(ServerSpec(ServerAddress("dev", "a"), server, era="legacy"))
    known: list[tuple[tuple[str, ...], bytes, tuple[str, ...]]] = []

    async with session(boxes) as (talking, host):

        def note() -> None:
            assert not any(message.get("id") == id for message in host.messages)
            known.append(talking.session.remembered())

        talking.receive(INITIALIZE)
        talking.session.on_change = note
        for id, method, params in (
            (1, "tools/call", {"name": "open_toolbox", "arguments": {"toolbox_name": "dev"}}),
            (2, "logging/setLevel", {"level": "error"}),
            (3, "resources/subscribe", {"uri": notes}),
            (4, "resources/unsubscribe", {"uri": notes}),
            (5, "logging/setLevel", {"level": "loud"}),
        ):
            talking.receive(line(id=id, method=method, params=params))
            assert ("error" in await host.answer(id)) == (id == 5)

    assert known == [
        (("dev",), b"", ()),
        (("dev",), b'"error"', ()),
        (("dev",), b'"error"', (notes,)),
        (("dev",), b'"error"', ()),
    ]


async def test_a_session_is_idle_when_nothing_is_under_way() -> None:
    rests: list[str] = []
    async with session(snapshot(spec("a"))) as (talking, host):
        talking.receive(INITIALIZE)
        wish = {"tool": {"toolbox": "dev", "server": "a", "tool": "echo"}}
        talking.receive(
            line(id=1, method="tools/call", params={"name": "use_tool", "arguments": wish})
        )
        talking.when_idle(lambda: rests.append("idle"))
        assert rests == []

        await host.answer(1)
        assert rests != []


async def test_cancelling_the_last_request_makes_it_idle_too() -> None:
    rests: list[str] = []
    async with session(snapshot(spec("a", "hang"))) as (talking, host):
        talking.receive(INITIALIZE)
        talking.receive(
            line(
                id=1,
                method="tools/call",
                params={"name": "open_toolbox", "arguments": {"toolbox_name": "dev"}},
            )
        )
        talking.when_idle(lambda: rests.append("idle"))
        talking.receive(line(method="notifications/cancelled", params={"requestId": 1}))

        assert rests == ["idle"]
        talking.receive(line(id=2, method="ping"))
        assert [message["id"] for message in host.messages] == [0, 2]


async def test_an_id_is_free_again_after_its_cancel() -> None:
    call = {
        "name": "use_tool",
        "arguments": {"tool": {"toolbox": "dev", "server": "a", "tool": "echo"}},
    }
    async with session(snapshot(spec("a"))) as (talking, host):
        talking.receive(INITIALIZE)
        talking.receive(line(id="x", method="tools/call", params=call))
        talking.receive(line(method="notifications/cancelled", params={"requestId": "x"}))
        talking.receive(line(id="x", method="tools/call", params=call))

        answer = await host.answer("x")

        assert json_text(answer["result"])["name"] == "echo"
        assert len(host.messages) == 2


async def test_a_line_beyond_the_cap_costs_one_request() -> None:
    async with session(snapshot(limits=Limits(message_bytes=200))) as (talking, host):
        talking.receive(INITIALIZE)
        huge = line(id="huge", method="ping", params={"x": "y" * 500})
        talking.receive(line(id=1, method="ping") + huge[:150])
        talking.receive(huge[150:] + line(id=2, method="ping"))

        answers = {message["id"]: message for message in host.messages}
        assert set(answers) == {0, 1, 2, "huge"}
        assert [id for id in answers if "error" in answers[id]] == ["huge"]
