"""Whose a legacy server's question is, where it does not say so."""

from __future__ import annotations

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
