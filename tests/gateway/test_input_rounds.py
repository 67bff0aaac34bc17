"""The question loop of a call: rounds of questions, and what the call is repeated with."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec

from mcp_workbench.core.call_request import CallRequest
from mcp_workbench.core.spec import ToolIdentifier
from mcp_workbench.gateway.calls import Call
from mcp_workbench.gateway.interactive import InputRounds, read_questions
from mcp_workbench.gateway.interceptors import CallOutcome, Failed, Rejected, with_after
from mcp_workbench.protocol.elicitation import ELICIT, ROUNDS, SAMPLE, AnswerCallback, Question

Json = dict[str, Any]

NAME: Json = {"name": {"method": ELICIT, "params": {"message": "Your name?"}}}
MODEL: Json = {"model": {"method": SAMPLE, "params": {}}}


class Asked(Call):
    """A call whose questions are collected."""

    def __init__(self) -> None:
        request = CallRequest(ToolIdentifier("dev", "a", "t"), {"arguments": msgspec.Raw(b"{}")})
        view: Any = SimpleNamespace(without_route=with_after(()))
        super().__init__(view, request)
        self.repeated: list[dict[str, Any]] = []
        self.open: dict[str, AnswerCallback] = {}
        self.outcomes: list[CallOutcome] = []
        self.rounds = InputRounds(self, self.put, self.repeat)

    def put(self, question: Question, answered: AnswerCallback) -> Callable[[], None]:
        self.open[question.method] = answered
        return lambda: self.open.pop(question.method, None) and None

    def repeat(self) -> None:
        self.repeated.append(
            {key: json.loads(bytes(raw)) for key, raw in self.request.params.items()}
        )

    def deliver(self, outcome: CallOutcome) -> None:
        self.outcomes.append(outcome)

    def requires(self, questions: dict[str, Any], **more: Any) -> None:
        required = read_questions(
            self, msgspec.Raw(msgspec.json.encode({"inputRequests": questions, **more}))
        )
        if required is not None:
            self.rounds.next(required)


def test_a_call_is_repeated_once_all_is_answered() -> None:
    call = Asked()
    call.requires(NAME | MODEL, requestState="first")
    call.open.pop(ELICIT)(b'{"action":"accept"}', b"")
    assert call.repeated == []

    call.open.pop(SAMPLE)(b'{"role":"assistant"}', b"")

    answers = {"name": {"action": "accept"}, "model": {"role": "assistant"}}
    assert call.repeated == [{"arguments": {}, "inputResponses": answers, "requestState": "first"}]


def test_a_round_without_a_state_does_not_send_that_of_the_round_before() -> None:
    call = Asked()
    call.requires(NAME, requestState="first")
    call.open.pop(ELICIT)(b'{"action":"accept"}', b"")
    call.requires(NAME)
    call.open.pop(ELICIT)(b'{"action":"accept"}', b"")
    assert [params.get("requestState") for params in call.repeated] == ["first", None]


def test_what_nobody_answers_ends_the_call_and_withdraws_the_rest() -> None:
    call = Asked()
    call.requires(MODEL | NAME)
    call.open.pop(SAMPLE)(b"", b'{"code":-1,"message":"no"}')
    assert [type(outcome) for outcome in call.outcomes] == [Rejected]
    assert not call.open
    assert not call.repeated


def test_a_form_that_nobody_fills_in_is_cancelled() -> None:
    call = Asked()
    call.requires(NAME)
    call.open.pop(ELICIT)(b"", b'{"code":-1,"message":"no"}')
    assert call.repeated[0]["inputResponses"] == {"name": {"action": "cancel"}}


def test_a_server_that_never_stops_asking_fails_the_call() -> None:
    call = Asked()
    for _ in range(ROUNDS + 1):
        call.requires(NAME)
        if call.open:
            call.open.pop(ELICIT)(b'{"action":"accept"}', b"")
    (outcome,) = call.outcomes
    assert isinstance(outcome, Failed)
    assert "never stops asking" in str(outcome.error)
    assert len(call.repeated) == ROUNDS


def test_a_question_that_cannot_be_read_fails_the_call() -> None:
    call = Asked()
    call.requires({"name": 1})
    (outcome,) = call.outcomes
    assert isinstance(outcome, Failed)
    assert "can't be read" in str(outcome.error)
