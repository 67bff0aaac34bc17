"""What a host says: every request is answered once, everything else is refused or ignored."""

# What is made up has no types.
# pyright: basic

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import strategies as st

from mcp_workbench.core.spec import ToolMode
from mcp_workbench.gateway.workbench import Gateway
from mcp_workbench.server.session import HostSession
from mcp_workbench.server.session_tools import ToolView
from mcp_workbench.server.stdio_front import StdioFront
from mcp_workbench.transport import json_text, jsonrpc
from mcp_workbench.transport.tasks import task_scope
from tests.fuzz.effort import fuzzed, size
from tests.fuzz.material import cuts, ids, in_chunks, mutated, objects, strict_json, values, writers
from tests.fuzz.test_fuzz_conversation import no_fault_of_ours
from tests.kit.clock import PATIENCE
from tests.kit.config import snapshot
from tests.kit.memory_host import MemoryHost
from tests.kit.results import ENVELOPE

LIMIT = 20_000

revisions = st.sampled_from(["2024-11-05", "2025-03-26", "2025-11-25", ""])
methods = st.sampled_from(
    ["initialize", "server/discover", "ping", "tools/list", "tools/call", "prompts/list", "prompts/get",
     "resources/list", "resources/read", "resources/templates/list", "completion/complete",
     "logging/setLevel", "notifications/initialized", "x"]
)  # fmt: skip
metas = st.just(ENVELOPE) | st.builds(lambda more: {**ENVELOPE, **more}, objects) | objects | values
tools = st.fixed_dictionaries(
    {"toolbox": st.just("dev") | values, "server": values, "tool": values}, optional={"x": values}
)
wishes = st.fixed_dictionaries({}, optional={"tool": tools | values, "arguments": values})
members = st.fixed_dictionaries(
    {},
    optional={
        "_meta": metas,
        "name": st.sampled_from(["use_tool", "open_toolbox", "dev__a__b", "a__b"]) | values,
        "arguments": wishes | st.fixed_dictionaries({"toolbox_name": values}) | values,
        "uri": values,
        "cursor": values,
        "level": st.just("info") | values,
        "ref": values,
        "requestState": values,
        "protocolVersion": revisions | values,
        "capabilities": values,
    },
)
requests = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0"), "method": methods | values},
    optional={"id": st.integers() | ids, "params": members | values},
)
spoken = st.builds(lambda write, value: write(value), writers, requests)
answers = st.builds(
    lambda id: b'{"jsonrpc":"2.0","id":%b,"result":{}}' % json.dumps(id).encode(), ids
)
lines = (
    (mutated(spoken, 2) | spoken | answers | st.binary(max_size=10))
    .map(lambda line: line.replace(b"\n", b" ").replace(b"\r", b" "))
    .filter(lambda line: line.strip() and len(line) <= LIMIT)
)


class Host(MemoryHost):
    """It reads strictly, and keeps what it has read last."""

    def __init__(self) -> None:
        super().__init__()
        self.last: list[bytes] = []

    def spelled(self) -> bytes:
        """The id of a refusal as it was written."""
        return self.last[-1].removeprefix(b'{"jsonrpc":"2.0","id":').partition(b',"error":')[0]

    def read(self) -> list[Any]:
        self.last = self.take()
        return [strict_json(frame) for frame in self.last]


class Scene:
    """A session that reads bytes."""

    def __init__(self, host: Host, session: HostSession) -> None:
        self.host = host
        self.front = StdioFront(session, host, LIMIT)
        self.session = session

    async def say(self, data: bytes) -> list[Any]:
        """What is answered until nothing is under way any more."""
        self.front.receive(data)
        while self.session.under_way:  # noqa: ASYNC110 - bounded by the scene
            await asyncio.sleep(0)
        return self.host.read()


def talk(mode: ToolMode, play: Any) -> None:
    async def scene() -> None:
        host = Host()
        async with (
            asyncio.timeout(PATIENCE),
            Gateway(snapshot(mode=mode)) as gateway,
            task_scope() as scope,
        ):
            await play(
                Scene(host, HostSession(gateway.view, host, scope, ToolView(gateway.view, ())))
            )

    with no_fault_of_ours():
        asyncio.run(scene())


def opening(revision: str) -> bytes:
    params = {"protocolVersion": revision, "capabilities": {}}
    message = {"jsonrpc": "2.0", "id": "open", "method": "initialize", "params": params}
    return json.dumps(message).encode() + b"\n"


def request_id(line: bytes) -> Any:
    """The id under which an independent reader expects an answer: None for null, False for none."""
    try:
        message = strict_json(json_text.mend_surrogates(line).decode().removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or not isinstance(message.get("method", ""), str):
        return None
    if not message.get("method"):
        return False if ("result" in message) != ("error" in message) else None
    if "id" not in message:
        return False
    id: Any = message["id"]
    return id if type(id) in (int, str) else None


modes = st.sampled_from(["proxy", "dynamic"])


@fuzzed(st.lists(lines, max_size=size(5)), revisions, modes)
def test_every_request_is_answered_once(said: list[bytes], revision: str, mode: ToolMode) -> None:
    async def play(scene: Scene) -> None:
        if revision:
            await scene.say(opening(revision))
        for line in said:
            told = [message for message in await scene.say(line + b"\n") if "method" not in message]
            if jsonrpc.is_batch(line) and revision == "2025-03-26":
                continue
            id = request_id(line)
            assert len(told) == (id is not False), (line, told)
            for message in told:
                assert len(message.keys() & {"result", "error"}) == 1
                saved = message["id"] is None or scene.host.spelled() in line
                assert message["id"] == id or (id is None and saved), line
                assert message.get("error", {}).get("code") != jsonrpc.INTERNAL_ERROR
        [last] = await scene.say(b'{"jsonrpc":"2.0","id":"last","method":"ping"}\n')
        assert last["id"] == "last"

    talk(mode, play)


@fuzzed(st.lists(lines, max_size=size(4)), cuts, examples=20)
def test_a_host_s_chunks_change_nothing(said: list[bytes], at: list[int]) -> None:
    data = opening("2025-11-25") + b"".join(line + b"\n" for line in said)
    heard: list[list[str]] = []

    def hear(chunks: list[bytes]) -> None:
        async def play(scene: Scene) -> None:
            for chunk in chunks:
                scene.front.receive(chunk)
            heard.append(sorted(map(json.dumps, await scene.say(b"\n"))))

        talk("proxy", play)

    hear([data])
    hear(in_chunks(data, at))
    assert heard[0] == heard[1]
