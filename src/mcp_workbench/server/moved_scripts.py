"""Scripts of modern hosts that wait for people, and stay in no process meanwhile.

If a script waits, and each of its open calls either was not sent (a person has to approve it, or others run before it)
or was answered by its modern server with a question, all of it can be moved: the host gets it as `requestState`, sealed
(`gateway/suspended_scripts.py`), its worker is released, and any process with the same state folder goes on when the host
comes back. Calls that are in flight then are given a moment to end. A script with a call that can't be moved, such as one
whose legacy server waits for an answer, stays in its process (`suspended_calls`).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from typing import TYPE_CHECKING

import msgspec

from mcp_workbench.core.errors import InvalidCall, NotFound
from mcp_workbench.core.raw_json import Members, read_members
from mcp_workbench.core.script_texts import ScriptedCall
from mcp_workbench.gateway.approvals import LIFETIME as APPROVAL_LIFETIME
from mcp_workbench.gateway.approvals import Approval, not_approved
from mcp_workbench.gateway.scripts import ScriptFailed, tool_named
from mcp_workbench.gateway.suspended_scripts import (
    LIFETIME,
    MOST_SNAPSHOT,
    AskedApproval,
    AskedInput,
    AskedQuestion,
    CannotMove,
    OpenCall,
    SuspendedScript,
    now,
)
from mcp_workbench.protocol.elicitation import InputRequired, Question, input_required
from mcp_workbench.protocol.signed_state import digest_of
from mcp_workbench.server.call_approvals import approval_answer, approval_question
from mcp_workbench.server.parse import RequestError
from mcp_workbench.transport import jsonrpc

if TYPE_CHECKING:
    from mcp_workbench.gateway.scripts import OpenScriptCall, ScriptRun
    from mcp_workbench.gateway.views import View
    from mcp_workbench.server.script_calls import ScriptCall, ScriptRequest

log = logging.getLogger(__name__)

SETTLE = 2.0  # seconds for calls in flight to end, before their script stays where it is
SNAPSHOT = 10.0  # seconds for the interpreter to tell its state; it may be computing
BAD_STATE = (
    "Invalid or expired requestState: it was changed, or belongs to another request, principal "
    "or state folder"
)
USED = (
    "The requestState was used before: the script has gone on from there, and is never run twice. "
    "It may have made more calls since"
)
NO_MARK = "The script can't go on: it can't be marked as used. Nothing was done"


# Away


async def move(request: ScriptRequest) -> str:
    """Ask the host, and give it the script. Returns why that can't be done; then it waits here."""
    try:
        async with asyncio.timeout(SETTLE):
            await _settled(request)
        async with asyncio.timeout(SNAPSHOT):
            suspended, questions = await _suspended(request)
    except TimeoutError:
        return "a call of it, or what it computes, takes long"
    except CannotMove as why:
        return str(why)
    if not request.session.under_way.has(request):
        return ""  # it was cancelled, or has ended
    try:
        owner, digest = _owner(request.view), _digest(request)
        sealed = request.view.gateway.script_seals.seal(suspended, owner, digest)
    except CannotMove as why:
        log.info("a script stays in this process until its host answers: %s", why)
        return str(why)
    request.held = ""
    request.leave()
    request.reply_questions(input_required(questions, sealed))
    return ""


async def _settled(request: ScriptRequest) -> None:
    """Wait until all its calls can be moved. Raises CannotMove if one never can."""
    while True:
        request.changed.clear()
        states = [call.can_move for call in request.calls.values()]
        if False in states:
            raise CannotMove("a server waits for the answer")
        if None not in states:
            return
        await request.changed.wait()


async def _suspended(request: ScriptRequest) -> tuple[SuspendedScript, dict[str, Question]]:
    """The script as it is now, and what its host is asked. Raises CannotMove."""
    script = request.script
    assert script is not None  # noqa: S101 - it has made calls
    taken = await script.engine_state(MOST_SNAPSHOT)
    if taken.state is None:
        raise CannotMove(taken.why)
    # No wait from here on: what is read now is what is sent.
    if set(taken.state.in_flight) != set(script.open):
        raise CannotMove("it has made another call meanwhile")
    questions: dict[str, Question] = {}
    asked_first = sorted(script.open.items(), key=lambda one: one[0] not in request.calls)
    opened = [_open_call(request, script, number, one, questions) for number, one in asked_first]
    suspension = request.suspension
    if suspension is None or len(questions) != len(suspension.open):
        raise CannotMove("a server asks before it is called")
    born, has_approval = now(), any(isinstance(one.asked, AskedApproval) for one in opened)
    until = born + (APPROVAL_LIFETIME if has_approval else LIFETIME)
    run, budgets = script.run_state(), sorted(request.budgets)
    id = os.urandom(16)
    return SuspendedScript(id, born, until, taken.state, run, opened, budgets), questions


def _open_call(
    request: ScriptRequest,
    script: ScriptRun,
    number: int,
    one: OpenScriptCall,
    questions: dict[str, Question],
) -> OpenCall:
    call = request.calls.get(number)
    asked = None if call is None else _asked(call, questions)
    one.line.state = "may have run" if isinstance(asked, AskedInput) else "not sent"
    made = one.made
    generation = _generation(request.view, made.tool)
    place = script.place(one)
    return OpenCall(number, made.tool, bytes(made.arguments), place, generation, asked)


def _asked(call: ScriptCall, questions: dict[str, Question]) -> AskedApproval | AskedInput:
    if call.approval_asked is not None:
        asked = call.approval_asked
        key = _added(approval_question(asked), questions)
        return AskedApproval(key, asked.digest, asked.tool)
    rounds = call.rounds
    if rounds is None or rounds.required is None:
        raise CannotMove("a call of it goes on")
    required, answers = rounds.required, rounds.answers
    missing = {key: one for key, one in required.questions.items() if key not in answers}
    added = {
        key: AskedQuestion(_added(one, questions), one.method, one.params)
        for key, one in missing.items()
    }
    given = {
        key: AskedQuestion("", one.method, one.params)
        for key, one in required.questions.items()
        if key in answers
    }
    state = b"" if required.state is None else bytes(required.state)
    approved = b"" if call.approval is None else call.approval.digest
    known = {key: bytes(answer) for key, answer in answers.items()}
    return AskedInput({**given, **added}, known, state, rounds.count, approved)


def _added(question: Question, questions: dict[str, Question]) -> str:
    key = f"q{len(questions) + 1}"
    questions[key] = question
    return key


# Back


def go_on(request: ScriptRequest) -> None:
    """Go on with the script that its host has brought back. Raises RequestError."""
    suspended = _opened(request)
    request.answers = _answers(request)
    request.request = request.request.without_answers()
    request.budgets = set(suspended.budgets)
    request.asked = {one.call: one.asked for one in suspended.open if one.asked is not None}
    opened = [(one.call, one.place, msgspec.Raw(one.arguments)) for one in suspended.open]

    async def claim(version: str) -> None:
        _require_same(request, suspended, version)
        try:
            seals = request.view.gateway.script_seals
            is_first = await seals.claim_for_all(suspended)
        except OSError as error:
            log.warning("no mark for a suspended script: %s", error)
            raise _refused(NO_MARK, suspended.run.calls) from None
        if not is_first:
            raise RequestError(jsonrpc.INVALID_PARAMS, USED)

    source = request.source
    source.engine, source.run = suspended.engine, suspended.run
    source.open, source.claim = opened, claim
    request.begin()


def _opened(request: ScriptRequest) -> SuspendedScript:
    try:
        sealed = msgspec.json.decode(request.request.params["requestState"], type=str)
    except msgspec.DecodeError:
        raise RequestError(jsonrpc.INVALID_PARAMS, BAD_STATE) from None
    seals = request.view.gateway.script_seals
    suspended = seals.open(sealed, _owner(request.view), _digest(request))
    if suspended is None:
        raise RequestError(jsonrpc.INVALID_PARAMS, BAD_STATE)
    return suspended


def _require_same(request: ScriptRequest, suspended: SuspendedScript, version: str) -> None:
    """Raises ScriptFailed if it is too late to go on, or this is not where the script was suspended."""
    calls = suspended.run.calls
    if not suspended.is_fresh(now()):
        minutes = (suspended.until - suspended.born) / 60
        late = f"The script has ended: nobody answered within {minutes:g} minutes"
        raise _refused(late, calls)
    if suspended.engine.version != version:
        other = f"{suspended.engine.version}, and this one has {version}"
        raise _refused(f"The script was suspended by a process with Monty {other}", calls)
    snapshot = request.view.snapshot
    for name in sorted(suspended.toolboxes):
        box = snapshot.toolboxes.get(name)
        if box is None or not box.scripts:
            raise _refused(f"The script can't go on: it has no toolbox '{name}' here", calls)
    for one in suspended.open:
        if one.generation != _generation(request.view, one.tool):
            changed = f"the configuration of {one.tool} has changed since its question"
            raise _refused(f"The script can't go on: {changed}", calls)


def _refused(message: str, calls: list[ScriptedCall]) -> ScriptFailed:
    return ScriptFailed(message, calls=calls, printed="")


def take_approval(call: ScriptCall, asked: AskedApproval, answers: Members) -> bool:
    """Whether the call is sent: with its approval, or to ask again if there is no answer. Otherwise it has failed."""
    approver = call.approver()
    if isinstance(approver, str) or asked.key not in answers:
        return True
    answer = approval_answer(answers[asked.key], lasting=approver.lasting)
    call.approval = approver.approvals.approve(answer, asked.digest, asked.tool)
    if call.approval is None:
        call.fail(not_approved(call.request.tool, answer))
    return call.approval is not None


def take_input(
    call: ScriptCall, asked: AskedInput, answers: Members
) -> tuple[InputRequired, Members]:
    """Return the questions of the call's server, and the answers that are there."""
    address = call.request.tool.address
    questions = {
        key: Question(address, one.method, one.params) for key, one in asked.questions.items()
    }
    given: Members = {key: msgspec.Raw(answer) for key, answer in asked.answers.items()}
    for key, one in asked.questions.items():
        if one.key in answers:
            given[key] = answers[one.key]
    approver = call.approver()
    if asked.approved and not isinstance(approver, str):
        approvals = approver.approvals
        call.approval = Approval(asked.approved, approvals.clock() + approvals.lifetime)
    return InputRequired(questions, msgspec.Raw(asked.state) if asked.state else None), given


# What it is bound to


def _owner(view: View) -> str:
    return msgspec.json.encode((view.principal, view.scope.principal)).decode()


def _digest(request: ScriptRequest) -> str:
    try:
        return digest_of(str(request.request.tool), request.request.body)
    except (KeyError, msgspec.DecodeError):
        raise InvalidCall("run_script takes a script as 'code'") from None


def _generation(view: View, tool: str) -> bytes:
    """Digest of what the entry of the tool's server leads to and allows; empty if there is none."""
    try:
        spec = view.snapshot.find(tool_named(tool).address)
    except NotFound:  # its call is about to fail
        return b""
    if spec is None:
        return b""
    leads_to = (spec.address, spec.target, spec.era, spec.scope, spec.principal)
    allows = (spec.tools, spec.approve, spec.validate, spec.lock)
    return hashlib.sha256(msgspec.json.encode((leads_to, allows))).digest()


def _answers(request: ScriptRequest) -> Members:
    try:
        return read_members(request.request.params.get("inputResponses", b"{}"))
    except msgspec.DecodeError:
        return {}
