"""Whose a legacy server's question is, where it does not say so, and how it is answered or taken back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mcp_workbench.transport.jsonrpc import NEVER, Envelope, Outcome
from mcp_workbench.upstream.conversation import Failure, ResponseHandler
from tests.kit.asking_server import AskingServer


class Call(ResponseHandler):
    """A call of this host."""

    def __init__(self, host: object, *, suspended: bool = False) -> None:
        self._host = host
        self.suspended = suspended

    @property
    def asker(self) -> object:
        return self._host

    def settled(self, answer: Outcome) -> None: ...
    def lost(self, failure: Failure) -> None: ...
    def progressed(self, params: msgspec.Raw) -> None: ...


class Server(AskingServer):
    """A connection whose host notes which call each question came with."""

    def begin(self, *calls: ResponseHandler) -> list[int]:
        return [self.talk.pending.add(call, NEVER) for call in calls]

    def says(self, number: int = 0) -> None:
        self.talk.receive_decoded(Envelope(id=msgspec.Raw(b"1"), method="roots/list"), number)


@pytest.mark.parametrize("which", [0, 1])
def test_it_is_of_the_call_that_it_came_with(which: int) -> None:
    server = Server()
    calls = [Call("one"), Call("another")]
    numbers = server.begin(*calls)
    server.says(numbers[which])

    assert server.asked == [calls[which]]


def test_it_is_of_the_oldest_call_that_can_carry_it_where_all_are_one_host_s() -> None:
    server = Server()
    calls = [Call(None), Call("one", suspended=True), Call("one"), Call("one")]
    server.begin(*calls)
    server.says()

    assert server.asked == [calls[2]]


def test_it_waits_with_a_call_whose_host_is_away_where_there_is_no_other() -> None:
    server = Server()
    away = Call("one", suspended=True)
    server.begin(Call(None), away)
    server.says()

    assert server.asked == [away]


def test_it_is_nobody_s_while_calls_of_two_hosts_are_under_way() -> None:
    server = Server()
    server.begin(Call("one"), Call("another"))
    server.says()

    assert server.asked == []
    assert [answer["error"]["code"] for answer in server.sent] == [-32603]


def test_a_forgotten_session_s_questions_are_withdrawn() -> None:
    server = Server()
    server.says()
    server.talk.session_lost()  # a new session may count from the same number

    assert server.withdrawn == [None]


class Answering(AskingServer):
    """A connection whose host keeps each question, to answer it when the test likes."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[Any] = []

    takes = "roots"

    def asking_capabilities(self) -> Any:
        return {self.takes: msgspec.Raw(b"{}")}

    def ask(self, question: Any, caller: Any, answered: Any) -> Any:
        self.open.append(answered)
        return super().ask(question, caller, answered)

    def says(self, **members: Any) -> None:
        self.talk.receive(msgspec.json.encode({"jsonrpc": "2.0", **members}) + b"\n")


@pytest.mark.parametrize(
    ("result", "error", "sent"),
    [
        (b'{"roots":[]}', b"", {"result": {"roots": []}}),
        (b"", b'{"code":1,"message":"no"}', {"error": {"code": 1, "message": "no"}}),
    ],
)
def test_its_answer_goes_back_with_its_id_once(result: bytes, error: bytes, sent: Any) -> None:
    server = Answering()
    server.says(id="a", method="roots/list")
    for _ in range(2):
        server.open[0](result, error)

    assert server.sent == [{"jsonrpc": "2.0", "id": "a", **sent}]
    assert not server.requests.any


def test_a_question_that_the_server_takes_back_is_withdrawn_from_the_host() -> None:
    server = Answering()
    for id in (1, 2):
        server.says(id=id, method="roots/list")
    server.requests.cancelled(msgspec.Raw(b'{"requestId":1}'))

    assert server.withdrawn == [None]
    for answered in server.open:
        answered(b"{}", b"")
    assert [answer["id"] for answer in server.sent] == [2]


@pytest.mark.parametrize(
    "params", [b"", b"5", b"{}", b"{", b'{"requestId":2}', b'{"requestId":"1"}']
)
def test_what_takes_nothing_back_withdraws_nothing(params: bytes) -> None:
    server = Answering()
    server.says(id=1, method="roots/list")
    server.requests.cancelled(msgspec.Raw(params))

    assert server.withdrawn == []
    assert server.requests.any


@pytest.mark.parametrize(
    ("members", "answer"),
    [
        ({"method": "ping"}, {"result": {}}),
        (
            {"method": "sampling/createMessage"},
            {
                "error": {
                    "code": -32601,
                    "message": "Method not found: sampling/createMessage (the host takes no sampling)",
                }
            },
        ),
        (
            {"method": "logging/tell"},
            {"error": {"code": -32601, "message": "Method not found: logging/tell"}},
        ),
    ],
)
def test_what_no_host_is_asked_is_answered_by_us(members: Any, answer: Any) -> None:
    server = Answering()
    server.says(id=1, **members)

    assert server.sent == [{"jsonrpc": "2.0", "id": 1, **answer}]
    assert server.asked == []


def test_params_that_can_not_be_read_are_told_to_the_server() -> None:
    server = Answering()
    server.takes = "elicitation"
    server.requests.declare(server.talk)
    server.says(id=1, method="elicitation/create", params=[1])

    [answer] = server.sent
    assert answer["error"]["code"] == -32602
    assert "Expected `object`, got `array`" in answer["error"]["message"]
    assert not server.requests.any
