"""Many clients on the pipes of one process: whose answer is whose, what is shared, and what never passes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from mcp_workbench.cluster.placed_links import HEAD, MOST_KEPT, LocalLink
from mcp_workbench.cluster.placed_process import NUMBERS, PlacedProcess
from mcp_workbench.transport import jsonrpc
from mcp_workbench.upstream.conversation import HUGE, Conversation
from tests.kit.clock import PATIENCE

INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s"}}

Json = dict[str, Any]


class Pipe:
    """What the server would read."""

    backlog = 0

    def __init__(self) -> None:
        self.messages: list[Json] = []

    def send(self, frame: bytes, about: bytes = b"") -> None:
        self.messages.append(json.loads(frame))

    def methods(self) -> list[str]:
        return [message["method"] for message in self.messages]


class OneClient:
    """A replica that uses the process."""

    def __init__(self, process: PlacedProcess) -> None:
        self.received: list[Json] = []
        self.end: tuple[str, tuple[int, ...], int] | None = None
        self.process = process
        self.number = process.attach(self)
        self._count = 0

    def deliver(self, line: bytes) -> None:
        assert line.endswith(b"\n")
        self.received.append(json.loads(line))

    def closed(self, reason: str, unpassed: tuple[int, ...], last: int) -> None:
        self.end = (reason, unpassed, last)

    def ask(self, method: str, **params: Any) -> int:
        self._count += 1
        number = (self.number << NUMBERS) + self._count
        self.process.send(self.number, jsonrpc.request(number, method, jsonrpc.encode(params)))
        return number

    def tell(self, method: str) -> None:
        self.process.send(self.number, jsonrpc.notification(method))


class Scene:
    """A process with clients; the test is its server."""

    def __init__(self, message_bytes: int = 1 << 20) -> None:
        self.holds = True
        self.process = PlacedProcess(message_bytes, lambda: self.holds)
        self.pipe = Pipe()
        self.pauses: list[bool] = []  # of reading what the server writes
        self.process.started(self.pipe, self.pause)

    def pause(self, *, waits: bool) -> None:
        self.pauses.append(waits)

    def says(self, **message: Any) -> None:
        self.process.receive(jsonrpc.encode({"jsonrpc": "2.0", **message}) + b"\n")

    def client(self) -> OneClient:
        """A client whose handshake is done."""
        client = OneClient(self.process)
        number = client.ask("initialize")
        if self.pipe.methods() == ["initialize"]:
            self.says(id=number, result=INITIALIZE)
        client.tell("notifications/initialized")
        return client


async def test_a_second_handshake_is_answered_with_the_result_of_the_first() -> None:
    scene = Scene()
    first, second = OneClient(scene.process), OneClient(scene.process)
    probe = second.ask("server/discover")
    greeting = second.ask("initialize")
    number = first.ask("initialize")
    assert scene.pipe.methods() == ["initialize"]  # the other one waits
    scene.says(id=number, result=INITIALIZE)
    assert second.received == []
    first.tell("notifications/initialized")
    await asyncio.sleep(0)
    second.tell("notifications/initialized")

    assert scene.pipe.methods() == ["initialize", "notifications/initialized"]
    refusal, answer = second.received
    assert (refusal["id"], refusal["error"]["code"]) == (probe, -32601)
    assert answer == {"jsonrpc": "2.0", "id": greeting, "result": INITIALIZE}


async def test_a_modern_server_is_asked_by_everybody() -> None:
    scene = Scene()
    first, second = OneClient(scene.process), OneClient(scene.process)
    number = first.ask("server/discover")
    other = second.ask("server/discover")
    scene.says(id=number, result={"supportedVersions": ["2026-07-28"]})
    scene.says(id=other, result={"supportedVersions": ["2026-07-28"]})

    assert scene.pipe.methods() == ["server/discover"] * 2
    assert [message["id"] for message in second.received] == [other]


async def test_answers_and_progress_go_to_who_asked_and_changes_to_all() -> None:
    scene = Scene()
    first, second = scene.client(), scene.client()
    await asyncio.sleep(0)
    mine, other = first.ask("tools/call"), second.ask("tools/call")
    assert mine != other
    first.received.clear()
    second.received.clear()
    scene.says(method="notifications/progress", params={"progressToken": other, "progress": 1})
    scene.says(method="notifications/tools/list_changed")
    scene.says(id=other, result={"of": "second"})
    scene.says(id=mine, result={"of": "first"})

    assert [one.get("method") or one["result"] for one in second.received] == [
        "notifications/progress",
        "notifications/tools/list_changed",
        {"of": "second"},
    ]
    assert [one.get("method") or one["result"] for one in first.received] == [
        "notifications/tools/list_changed",
        {"of": "first"},
    ]


async def test_a_question_goes_to_who_asked_the_server_last() -> None:
    scene = Scene()
    first, second = scene.client(), scene.client()
    await asyncio.sleep(0)
    first.received.clear()
    second.received.clear()
    first.ask("tools/call")
    scene.says(id="q1", method="ping")
    second.ask("tools/call")
    scene.says(id="q2", method="ping")

    assert [one["id"] for one in first.received] == ["q1"]
    assert [one["id"] for one in second.received] == ["q2"]


async def test_a_resource_stays_subscribed_while_one_client_wants_it() -> None:
    scene = Scene()
    first, second = scene.client(), scene.client()
    await asyncio.sleep(0)
    for client in (first, second):
        client.ask("resources/subscribe", uri="a://b")
    number = first.ask("resources/unsubscribe", uri="a://b")
    await asyncio.sleep(0)
    assert first.received[-1] == {"jsonrpc": "2.0", "id": number, "result": {}}
    assert "resources/unsubscribe" not in scene.pipe.methods()
    scene.process.detach(second.number)

    assert scene.pipe.methods().count("resources/unsubscribe") == 1


async def test_the_most_verbose_log_level_counts() -> None:
    scene = Scene()
    first, second = scene.client(), scene.client()
    first.ask("logging/setLevel", level="info")
    second.ask("logging/setLevel", level="error")
    second.ask("logging/setLevel", level="debug")
    second.ask("logging/setLevel", level="warning")
    levels = [m["params"]["level"] for m in scene.pipe.messages if m["method"].endswith("Level")]

    assert levels == ["info", "debug", "info"]


async def test_a_process_that_ends_names_the_requests_that_it_never_got() -> None:
    scene = Scene()
    client = scene.client()
    passed = client.ask("tools/call")
    scene.process.drain()
    kept = client.ask("tools/call")
    assert not scene.process.idle.is_set()
    scene.says(id=passed, result={})
    assert scene.process.idle.is_set()
    scene.process.close_clients("it moves")

    assert client.end == ("it moves", (kept,), kept)
    assert scene.pipe.methods().count("tools/call") == 1


async def test_what_waits_for_a_handshake_that_fails_was_never_sent() -> None:
    scene = Scene()
    first, second = OneClient(scene.process), OneClient(scene.process)
    first.ask("initialize")
    waiting = second.ask("initialize")
    scene.process.detach(first.number)

    assert scene.process.over.is_set()
    scene.process.close_clients(scene.process.reason)
    assert second.end == ("its handshake was interrupted", (waiting,), waiting)


@pytest.mark.parametrize("direction", ["to the server", "to the client"])
async def test_nothing_passes_without_a_lease(direction: str) -> None:
    scene = Scene()
    client = scene.client()
    number = client.ask("tools/call")
    before = len(scene.pipe.messages), len(client.received)
    scene.holds = False
    if direction == "to the server":
        client.ask("tools/call")
        client.tell("notifications/cancelled")
    else:
        scene.says(id=number, result={})
        scene.says(method="notifications/tools/list_changed")

    assert (len(scene.pipe.messages), len(client.received)) == before


async def test_a_cancelled_call_does_not_keep_the_process() -> None:
    scene = Scene()
    client = scene.client()
    number = client.ask("tools/call")
    params = jsonrpc.encode({"requestId": number})
    cancelled = jsonrpc.notification("notifications/cancelled", params)
    scene.process.send(client.number, cancelled)

    assert scene.process.idle.is_set()
    assert scene.pipe.messages[-1]["params"] == {"requestId": number}


async def test_a_server_is_not_read_while_a_client_is_not_done_with_what_it_wrote() -> None:
    scene = Scene()
    first, second = scene.client(), scene.client()
    scene.process.wait(first.number, waits=True)
    scene.process.wait(second.number, waits=True)
    scene.process.wait(first.number, waits=False)
    assert scene.pauses == [True]

    scene.process.detach(second.number)

    assert scene.pauses == [True, False]


async def test_what_comes_behind_a_huge_answer_waits_in_the_pipe_of_the_server() -> None:
    scene = Scene(32 << 20)
    heard: list[str] = []
    conversation = Conversation(32 << 20, lambda message: heard.append(message.method))
    link = LocalLink(scene.process, conversation, lambda: None)
    huge = "x" * (HUGE + 1)
    scene.says(id=1 << NUMBERS, result={"text": huge})
    scene.says(method="notifications/behind")  # was read with it
    assert (scene.pauses, heard) == ([True], [])

    async with asyncio.timeout(PATIENCE):
        await conversation.all_read()

    assert (scene.pauses, heard) == ([True, False], ["notifications/behind"])
    link.close()


def test_what_is_sent_to_a_process_that_has_ended_is_kept_in_part_and_within_bounds() -> None:
    scene = Scene()
    ends: list[str] = []
    conversation = Conversation(1 << 20, lambda message: None)
    link = LocalLink(scene.process, conversation, lambda: ends.append("ended"))
    before = list(scene.pipe.messages)

    link.closed("it crashed", (7,), 9)
    link.closed("once more", (8,), 9)
    for number in range(MOST_KEPT + 3):
        link.send(jsonrpc.request(number, "tools/call", b'{"x":"%b"}' % (b"x" * HEAD)))

    assert ends == ["ended"]
    assert scene.pipe.messages == before
    first, *kept = link.unsent()
    assert first == jsonrpc.start_of(7)
    assert [len(frame) for frame in kept] == [HEAD] * MOST_KEPT
    assert all(frame.startswith(jsonrpc.start_of(n)) for n, frame in enumerate(kept))
    assert asyncio.run(link.exit_reason("", ended=True)) == "it crashed"
    link.close()
