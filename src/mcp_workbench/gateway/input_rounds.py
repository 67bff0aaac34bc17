"""The question loop of a call: a modern server that requires input is called again with the answers.

In place of a result the server returns `input_required` with questions and perhaps a state. One such result and
the answers to it are a round. Whoever made the call puts the questions; this loop counts the rounds, gathers the
answers, and repeats the call once all are there. A server that asks nothing wants to be called again later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec

from mcp_workbench.core.raw_json import Members
from mcp_workbench.gateway.calls import Call
from mcp_workbench.protocol.elicitation import (
    ROUNDS,
    AnswerCallback,
    InputRequired,
    Question,
    read_input_required,
    unanswered,
)

PAUSE, LONGEST_PAUSE = 0.05, 5.0  # seconds before a server is called again that asked nothing

Withdraw = Callable[[], None]
Put = Callable[[Question, AnswerCallback], Withdraw]  # puts a question; returns what withdraws it


def read_questions(call: Call, result: msgspec.Raw) -> InputRequired | None:
    """The questions in an `input_required` result; None if they can't be read: then the call has failed."""
    try:
        return read_input_required(call.request.tool.address, result)
    except msgspec.DecodeError as error:
        call.give_up("protocol_error", f"the server's question can't be read: {error}")
        return None


class InputRounds:
    """All rounds of one call. `put` asks a question, `repeat` sends the call again."""

    def __init__(self, call: Call, put: Put, repeat: Callable[[], None]) -> None:
        self.count = 0
        self._call = call
        self._put = put
        self._repeat = repeat
        self._withdrawals: dict[str, Withdraw] = {}

    def next(self, required: InputRequired) -> None:
        """Put the questions of another round. Fails the call if there were too many rounds."""
        self.count += 1
        if self.count > ROUNDS:
            self._call.give_up("protocol_error", "the server never stops asking")
            return
        answers: Members = {}
        for key, question in required.questions.items():
            answered = partial(self._answered, required, answers, key)
            self._withdrawals[key] = self._put(question, answered)
        if not required.questions and self.count > 1:
            pause = min(PAUSE * 2 ** (self.count - 2), LONGEST_PAUSE)
            repeat = partial(self._repeat_if_complete, required, answers)
            timer = asyncio.get_running_loop().call_later(pause, repeat)
            self._withdrawals[""] = timer.cancel
        else:
            self._repeat_if_complete(required, answers)

    def withdraw(self) -> None:
        """Withdraw the questions that are open."""
        withdrawals, self._withdrawals = self._withdrawals, {}
        for withdraw in withdrawals.values():
            withdraw()

    def _answered(
        self,
        required: InputRequired,
        answers: Members,
        key: str,
        result: msgspec.Raw | bytes,
        error: msgspec.Raw | bytes,
    ) -> None:
        self._withdrawals.pop(key, None)
        question = required.questions[key]
        answer = result or unanswered(question.method)
        if answer is None:
            self.withdraw()
            self._call.unanswered(question, msgspec.Raw(bytes(error)))
            return
        answers[key] = msgspec.Raw(bytes(answer))
        self._repeat_if_complete(required, answers)

    def _repeat_if_complete(self, required: InputRequired, answers: Members) -> None:
        if len(answers) < len(required.questions):
            return
        self._withdrawals.clear()
        request = self._call.request.without_answers()
        params = {**request.params, "inputResponses": msgspec.Raw(msgspec.json.encode(answers))}
        if required.state is not None:
            params["requestState"] = required.state
        self._call.request = msgspec.structs.replace(request, params=params)
        self._repeat()
