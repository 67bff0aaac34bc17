"""Messages in HTTP answers: whoever asked is told, once, whatever the body or the stream says."""

# What is made up has no types.
# pyright: basic

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
from hypothesis import strategies as st

from mcp_workbench.transport.http.client_response import ClientResponse, ExchangeFailed
from mcp_workbench.transport.jsonrpc import NEVER
from mcp_workbench.upstream.conversation import Conversation, Failure, RequestFailed
from mcp_workbench.upstream.http.event_streams import Pace
from mcp_workbench.upstream.http.requests import ErrorContext, OutgoingRequest
from mcp_workbench.upstream.http.responses import Exchange
from tests.fuzz.effort import fuzzed, size
from tests.fuzz.material import cuts, ids, in_chunks, mutated, objects, strict_json, values, writers
from tests.fuzz.test_fuzz_conversation import Told, Waiting, no_fault_of_ours
from tests.kit.clock import PATIENCE

LIMIT = 20_000
RUNNER = asyncio.Runner()

messages = st.builds(
    lambda id, outcome, value, more: {"jsonrpc": "2.0", "id": id, outcome: value, **more},
    st.integers(1, 2) | ids,
    st.sampled_from(["result", "error", "method", "params"]),
    objects | values,
    st.just({}) | st.sampled_from([{"method": "x"}, {"result": 1}, {"error": {"code": 1}}]),
)
bodies = st.builds(lambda write, value: write(value), writers, messages)
batches = st.lists(bodies, max_size=3).map(lambda many: b"[" + b",".join(many) + b"]")
events = st.lists(
    mutated(bodies, 1).map(lambda body: b"data: " + body.replace(b"\n", b"\ndata:") + b"\n\n")
    | st.sampled_from([b": x\n\n", b"event: endpoint\ndata: /x\n\n", b"data\n\n"]),
    max_size=size(4),
).map(b"".join)
statuses = st.sampled_from([200, 200, 200, 202, 204, 400, 404, 500])


class Road:
    """As much of one as an answer needs: it is not sent anything."""

    def __init__(self, *, modern: bool) -> None:
        self.error_context = ErrorContext(limit=LIMIT)
        self.modern = modern

    def speak(self, revision: str, session: str) -> None:
        pass

    async def get(self, last_id: str) -> ClientResponse:
        raise ExchangeFailed("there is nothing more")


class Holder:
    def flow(self, *, going: bool) -> None:
        pass

    def part(self, *, complete: bool) -> None:
        pass


class Heard:
    """What came of one answer to request 1, while request 2 waits for another."""

    def __init__(self, method: str, modern: bool) -> None:
        self.told: list[Told] = []
        self.talk = Conversation(LIMIT, lambda message: None)
        for number in (1, 2):
            self.talk.pending.add(Waiting(number, self.told), NEVER)
        params = msgspec.Raw(b"{}")
        self.asked = OutgoingRequest(1, method, b"", params)
        self.road = Road(modern=modern)

    async def hear(self, status: int, kind: str, chunks: list[bytes]) -> None:
        flowing = asyncio.Event()
        flowing.set()
        exchange = Exchange(cast("Any", self.road), self.talk, flowing, Pace())
        answer = ClientResponse(Holder())
        answer.begin(status, {"content-type": kind})
        for chunk in chunks:
            answer.push(chunk)
        answer.finish()
        await answer.head(None)
        try:
            async with asyncio.timeout(PATIENCE):
                await exchange.read(self.asked, answer)
        except RequestFailed as failure:
            self.lose(failure.failure)
        except ExchangeFailed:
            self.lose(Failure("broken", ""))

    def lose(self, loss: Failure) -> None:
        self.asked.answered = True
        self.talk.fail(1, loss)

    def ends(self, number: int) -> list[Told]:
        return [one for one in self.told if one[1] == number and one[0] != "progressed"]


def heard(status: int, kind: str, chunks: list[bytes], method: str, modern: bool) -> Heard:
    scene = Heard(method, modern)
    with no_fault_of_ours():
        RUNNER.run(scene.hear(status, kind, chunks))
    return scene


methods = st.sampled_from(["tools/call", "tools/list", "initialize"])


@fuzzed(mutated(bodies | batches, 2), statuses, methods, st.booleans())
def test_a_body_tells_who_asked_and_nobody_else(
    body: bytes, status: int, method: str, modern: bool
) -> None:
    scene = heard(status, "application/json", [body], method, modern)

    assert len(scene.ends(1)) == 1 or not scene.asked.answered
    if not body.lstrip().startswith(b"["):  # the members of a batch may be anybody's
        assert scene.ends(2) == []
    for what, _, told in scene.ends(1):
        if what == "settled":
            strict_json(told)


@fuzzed(events, st.booleans(), cuts)
def test_a_stream_tells_who_asked(stream: bytes, modern: bool, at: list[int]) -> None:
    whole = heard(200, "text/event-stream", [stream], "tools/call", modern)
    parts = heard(200, "text/event-stream", in_chunks(stream, at), "tools/call", modern)

    assert len(whole.ends(1)) == 1 or not whole.asked.answered
    assert len(whole.ends(2)) <= 1
    assert parts.told == whole.told
