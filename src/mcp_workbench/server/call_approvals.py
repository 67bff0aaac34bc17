"""Approval through a host: its person is asked by elicitation, and the call goes on with a yes.

A legacy host is asked by a request of ours while its own waits. A modern one gets the question as the reply, and sends
the call again with the answer and our signed state, whose handle counts once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from mcp_workbench.gateway.approvals import SPENT, Answer, Asked, denied, not_approved
from mcp_workbench.gateway.interceptors import Completed, EndCall
from mcp_workbench.protocol.elicitation import (
    ELICIT,
    Question,
    answered_action,
    answered_content,
    input_required,
)

if TYPE_CHECKING:
    from mcp_workbench.core.raw_json import Members
    from mcp_workbench.gateway.approvals import SessionApprovals
    from mcp_workbench.server.host_calls import HostCall

KEY = "approval"  # of our question among those of a result
FIELD = "decision"
ONCE, SESSION, NO = "yes, once", "always in this session", "no"
_ANSWERS: dict[str, Answer] = {ONCE: "once", SESSION: "session", NO: "no"}


class HostApprover:
    """The person of a host."""

    def __init__(self, call: HostCall) -> None:
        self._call = call
        self._requests = call.session.elicitation.input_requests

    @property
    def approvals(self) -> SessionApprovals:
        return self._requests.approvals

    @property
    def lasting(self) -> bool:
        return (
            not self._call.session.elicitation.takes_turns
        )  # requests of a principal are no session

    def reply(self, asked: Asked) -> EndCall | None:
        request = self._call.request
        if not request.modern_host:
            return None
        handle = self.approvals.open(asked)
        state = self._requests.states.sign(request, "approve", handle=handle)
        return EndCall(Completed(input_required({KEY: approval_question(asked)}, state)))

    async def answer(self, asked: Asked) -> Answer:
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def answered(result: msgspec.Raw | bytes, error: msgspec.Raw | bytes) -> None:
            if not answer.done():
                answer.set_result(approval_answer(result, lasting=asked.request.lasting))

        session, about = self._call.session, self._call.id
        withdraw = self._requests.ask(session, approval_question(asked), about, answered)
        try:
            return await answer
        finally:
            withdraw()


def approval_question(asked: Asked) -> Question:
    """Return what a person is asked about a call."""
    choices = [ONCE, SESSION, NO] if asked.request.lasting else [ONCE, NO]
    decision: dict[str, Any] = {"type": "string", "title": "Your decision", "enum": choices}
    schema = {"type": "object", "properties": {FIELD: decision}, "required": [FIELD]}
    params = {"message": asked.request.message, "requestedSchema": schema}
    return Question(asked.request.tool.address, ELICIT, msgspec.json.encode(params))


def approval_answer(result: msgspec.Raw | bytes, *, lasting: bool) -> Answer:
    """Only a yes that is spelled out is one."""
    if not result:
        return "failed"
    action = answered_action(result)
    if action != "accept":
        return "no" if action == "decline" else "dismissed"
    try:
        word = msgspec.json.decode(answered_content(result)[FIELD], type=str)
    except (KeyError, msgspec.DecodeError):
        return "dismissed"
    answer = _ANSWERS.get(word, "dismissed")
    return "dismissed" if answer == "session" and not lasting else answer


def take_answer(call: HostCall, handle: str, answers: Members) -> bool:
    """Handle the answer that a modern host brings. Returns whether the call goes on; otherwise it has ended."""
    approver = HostApprover(call)
    approvals, tool = approver.approvals, call.request.tool
    question = approvals.take(handle)
    if question is None:
        call.fail(denied(tool, SPENT))
        return False
    answer = approval_answer(answers.get(KEY, b""), lasting=approver.lasting)
    call.approval = approvals.approve(answer, question.digest, question.tool)
    if call.approval is None:
        call.fail(not_approved(tool, answer))
        return False
    return True
