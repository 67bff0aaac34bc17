"""Sign-in inside a call: the host shows its person an address, and the call goes on afterwards."""

from __future__ import annotations

import asyncio
from secrets import token_urlsafe
from typing import TYPE_CHECKING

import msgspec

from mcp_workbench.core.errors import WorkbenchError
from mcp_workbench.core.raw_json import Members, read_members
from mcp_workbench.gateway.interceptors import Completed
from mcp_workbench.protocol.elicitation import (
    ELICIT,
    Question,
    asked_by,
    input_required,
    may_put,
)
from mcp_workbench.protocol.oauth import SignInFailed
from mcp_workbench.transport.tasks import task_scope

if TYPE_CHECKING:
    from mcp_workbench.gateway.sign_ins import OpenSignIn
    from mcp_workbench.server.host_calls import HostCall

KEY = "sign-in"  # of our question among those of a result
ACCEPTED = "accept"
COMPLETE = "notifications/elicitation/complete"


class _Answer(msgspec.Struct, frozen=True):
    action: str = ""


def can_visit(call: HostCall) -> bool:
    """Can the host of this call show its person an address?"""
    question = Question(call.request.tool.address, ELICIT, b'{"mode":"url"}')
    modern = call.request.modern_host
    declared = (
        read_members(call.request.capabilities)
        if modern
        else call.session.elicitation.asking_capabilities()
    )
    return may_put(question, declared)


def visited(answers: Members) -> str:
    """What the person did with our address: `accept`, `decline` or `cancel`; empty if it was not shown."""
    try:
        return msgspec.json.decode(answers[KEY], type=_Answer).action
    except (KeyError, msgspec.DecodeError):
        return ""


async def sign_in(call: HostCall, error: WorkbenchError) -> None:
    """Have the person of this call sign in, then send the call; or fail it with this error."""
    try:
        opened, is_new = await call.view.begin_sign_in(
            call.request.tool.address, call.session.public_origin(), again=bool(call.visit)
        )
        if not call.request.modern_host:
            accepted = await _ask(call, opened)
        elif call.visit and not is_new:
            accepted = call.visit == ACCEPTED
        else:
            _require(call, opened)
            return
        if not accepted:
            call.end(error)
            return
        await opened.done()
        await call.view.dispatch(call)
    except SignInFailed as failed:
        call.end(_explained(error, failed))
    except WorkbenchError as other:
        call.end(other)


def _explained(error: WorkbenchError, failed: SignInFailed) -> WorkbenchError:
    """The error of the call, with the reason why signing in failed."""
    explained = WorkbenchError(f"{error.message}; {failed}", hint=error.hint)
    explained.code = error.code
    return explained


def _question(call: HostCall, opened: OpenSignIn, id: str = "") -> Question:
    params = {
        "mode": "url",
        "message": _message(opened),
        "url": opened.address,
    }
    if id:
        params["elicitationId"] = id
    return asked_by(call.request.tool.address, ELICIT, msgspec.json.encode(params))


def _message(opened: OpenSignIn) -> str:
    link = opened.link
    if link is None:
        return f"Sign in at {opened.issuer} to use this server."
    proof = f"the code {link.shown_code}" if link.by_code else "your token of this workbench"
    return (
        f"Sign in at {opened.issuer} with your own account to use {link.address}. "
        f"The page first asks for {proof}. Give neither the address nor that to anybody else."
    )


def _require(call: HostCall, opened: OpenSignIn) -> None:
    """Answer a modern host's request with the address; the call has ended, the host sends another."""
    state = call.session.elicitation.input_requests.states.sign(call.request, "again")
    call.finish(Completed(input_required({KEY: _question(call, opened)}, state)))


async def _ask(call: HostCall, opened: OpenSignIn) -> bool:
    """Ask a legacy host; was the person willing? True, too, if the sign-in is complete before the answer."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[bool] = loop.create_future()
    id = token_urlsafe(16)

    def answered(result: msgspec.Raw | bytes, error: msgspec.Raw | bytes) -> None:
        if not answer.done():
            answer.set_result(bool(result) and _action(result) == ACCEPTED)

    session = call.session
    requests = session.elicitation.input_requests
    withdraw = requests.ask(session, _question(call, opened, id), call.id, answered)
    try:
        async with task_scope() as scope:
            done = scope.start(_outcome(opened), "sign-in")
            await asyncio.wait((answer, done), return_when=asyncio.FIRST_COMPLETED)
            if answer.done() and not answer.result():
                return False
            await done
        session.notify(COMPLETE, msgspec.json.encode({"elicitationId": id}), call.id)
        return True
    finally:
        withdraw()


async def _outcome(opened: OpenSignIn) -> None:
    try:
        await opened.done()
    except SignInFailed:
        return  # the caller asks again


def _action(result: msgspec.Raw | bytes) -> str:
    try:
        return msgspec.json.decode(result, type=_Answer).action
    except msgspec.DecodeError:
        return ""
