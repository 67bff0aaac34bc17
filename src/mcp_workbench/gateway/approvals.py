"""Approval of calls: a person is asked before a call is sent that the configuration names (`approve`).

An answer counts for one call: this tool of this server, as it is defined now, with exactly these bytes of arguments.
It is used once, and expires. "Always in this session" counts for the tool, while its definition stays the same.
docs/approvals.md describes what is promised.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from hashlib import sha256
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

import msgspec

from mcp_workbench.core.approve_rules import READ, approve_rule
from mcp_workbench.core.call_request import TOOLS_CALL, CallRequest
from mcp_workbench.core.errors import CallFailed
from mcp_workbench.core.spec import ServerSpec, ToolIdentifier
from mcp_workbench.gateway.approval_text import question_text
from mcp_workbench.gateway.interceptors import Decision, EndCall, Interceptor, Refusal, Wait

if TYPE_CHECKING:
    from mcp_workbench.core.catalogue import Definition
    from mcp_workbench.gateway.calls import Call

LIFETIME = 300.0  # seconds to answer, and then to run what was approved
MOST_OPEN = 16  # unanswered questions of one session
MOST_LASTING = 256  # tools that are approved for one session

ApprovalAnswer = Literal["once", "session", "no"]
Answer = ApprovalAnswer | Literal["dismissed", "late", "failed"]  # the last three: nobody decided

_REASONS = {
    "no": "the person who was asked said no",
    "dismissed": "the question was closed without an answer",
    "late": f"nobody answered within {LIFETIME / 60:g} minutes",
    "failed": "the host could not ask",
}
NEEDED = "this call needs the approval of a person"
SPENT = "the answer came too late, or was used before"
CHANGED = "it is not the call that was approved: its arguments, the tool or its server have changed"
EXPIRED = "the approval has expired"
BUSY = f"{MOST_OPEN} questions about approval are open already"
_AGAIN = "Nothing was sent to the server. If it is called again, the person is asked again."
_DECLINED = "Nothing was sent to the server. Call it again only if the person wants it."

Kept = TypeVar("Kept")


class ApprovalRequest(msgspec.Struct, frozen=True):
    """What a person is asked."""

    tool: ToolIdentifier  # of requests other than tool calls, with the method instead of a tool
    arguments: bytes  # JSON; of other requests, their parameters
    message: str  # in words, with the arguments escaped and cut
    lasting: bool = False  # whether "session" is a possible answer


OnApproval = Callable[[ApprovalRequest], Awaitable[ApprovalAnswer]]


class Approval(msgspec.Struct, frozen=True):
    """A person's yes to one call."""

    digest: bytes
    until: float  # by the clock of the session


class Asked(msgspec.Struct, frozen=True):
    """A call that waits for its approval."""

    request: ApprovalRequest
    digest: bytes  # of this call
    tool: bytes  # of what an answer for the whole session is about


class OpenQuestion(msgspec.Struct, frozen=True):
    """A question whose answer comes with another request of its host."""

    digest: bytes
    tool: bytes
    until: float


class SessionApprovals:
    """What the person of one session was asked and has answered."""

    def __init__(self) -> None:
        self.clock: Callable[[], float] = time.monotonic
        self.lifetime = LIFETIME
        self.lasting: set[bytes] = set()  # approved for the whole session
        self.waiting = 0  # questions whose answer is awaited
        self._open: dict[str, OpenQuestion] = {}
        self._interrupted: dict[str, bytes] = {}

    @property
    def is_idle(self) -> bool:
        """Whether no answer is expected."""
        now = self.clock()
        return not any(question.until >= now for question in self._open.values())

    def approve(self, answer: Answer, digest: bytes, tool: bytes) -> Approval | None:
        """Return what the answer approves; None if that is nothing."""
        if answer == "session" and len(self.lasting) < MOST_LASTING:
            self.lasting.add(tool)
        if answer not in ("once", "session"):
            return None
        return Approval(digest, self.clock() + self.lifetime)

    # Modern hosts come back with another request

    def open(self, asked: Asked) -> str:
        """Note a question. Returns its handle, which can be used once."""
        until = self.clock() + self.lifetime
        return _keep(self._open, OpenQuestion(asked.digest, asked.tool, until))

    def take(self, handle: str) -> OpenQuestion | None:
        """Return the question; None if it was answered before, or put too long ago."""
        question = self._open.pop(handle, None)
        return question if question is not None and self.clock() <= question.until else None

    def interrupt(self, approval: Approval) -> str:
        """The server of a call that was sent asks for input. Returns a handle to go on with it, once."""
        return _keep(self._interrupted, approval.digest)

    def proceed(self, handle: str) -> Approval | None:
        digest = self._interrupted.pop(handle, None)
        return None if digest is None else Approval(digest, self.clock() + self.lifetime)


def _keep(kept: dict[str, Kept], value: Kept) -> str:
    if len(kept) >= MOST_OPEN:
        del kept[next(iter(kept))]
    handle = token_urlsafe(16)
    kept[handle] = value
    return handle


class Approver(Protocol):
    """The person of a call, and how they are asked."""

    @property
    def approvals(self) -> SessionApprovals: ...

    @property
    def lasting(self) -> bool:
        """Whether there is a session that they can answer for."""
        ...

    def reply(self, asked: Asked) -> EndCall | None:
        """The reply to a modern host, which comes back with the answer; None: the answer is awaited."""
        ...

    async def answer(self, asked: Asked) -> Answer:
        """Ask, and wait for the answer."""
        ...


class ApprovalGate(Interceptor):
    """Has a person asked before calls on one route are sent."""

    checks_again = True  # what is sent is compared with what was approved

    def __init__(self, spec: ServerSpec, definition: Definition | None) -> None:
        self._rule = approve_rule(spec.approve)
        tool = b"" if definition is None else definition.raw
        server = msgspec.json.encode((spec.address, spec.principal, spec.target))
        self._about = sha256(sha256(server).digest() + tool).digest()

    def before(self, call: Call) -> Decision:
        request, name = call.request, _name(call.request)
        if request.method != TOOLS_CALL and not self._rule.applies_to_name(request.method, name):
            return None
        approver = call.approver()
        if isinstance(approver, str):
            return Refusal(_nobody(call, approver))
        digest = sha256(self._about + _written(request)).digest()
        if call.approval is not None:
            return _verified(call, digest, approver.approvals)
        tool = sha256(self._about + msgspec.json.encode((request.method, name))).digest()
        if approver.lasting and tool in approver.approvals.lasting:
            return None
        if approver.approvals.waiting >= MOST_OPEN:
            return Refusal(denied(request.tool, f"{NEEDED}, and {BUSY}"))
        arguments = bytes(request.body)
        message = question_text(call, name)
        asked = Asked(
            ApprovalRequest(request.tool, arguments, message, approver.lasting), digest, tool
        )
        return approver.reply(asked) or Wait(partial(_wait, call, approver, asked))


def approval_gates(
    request: CallRequest, spec: ServerSpec, definition: Definition | None
) -> tuple[ApprovalGate, ...]:
    """Return the gate of a route whose calls may need approval; nothing for other routes."""
    listed = b"" if definition is None else definition.raw
    if not approve_rule(spec.approve).may_apply(request.method, request.tool.tool, listed):
        return ()
    return (ApprovalGate(spec, definition),)


def _name(request: CallRequest) -> str:
    """The tool, the URI of the resource, or the prompt."""
    if request.method == TOOLS_CALL:
        return request.tool.tool
    member = "uri" if request.method == READ else "name"
    return msgspec.json.decode(request.params[member], type=str)


def _written(request: CallRequest) -> bytes:
    """The request with every byte of its parameters, without answers to questions of its server."""
    return msgspec.json.encode((request.tool, request.method, request.without_answers().params))


def _verified(call: Call, digest: bytes, approvals: SessionApprovals) -> Refusal | None:
    """Refuse a call that differs from what was approved, or is sent too late."""
    approval = call.approval
    if approval is None or approval.digest != digest:
        return Refusal(denied(call.request.tool, CHANGED))
    if not call.sent and approvals.clock() > approval.until:
        return Refusal(denied(call.request.tool, EXPIRED))
    return None


async def _wait(call: Call, approver: Approver, asked: Asked) -> Refusal | None:
    approvals = approver.approvals
    approvals.waiting += 1
    answer: Answer = "late"
    try:
        async with asyncio.timeout(approvals.lifetime):
            answer = await approver.answer(asked)
    except TimeoutError:
        pass
    finally:
        approvals.waiting -= 1
    call.approval = approvals.approve(answer, asked.digest, asked.tool)
    return Refusal(not_approved(call.request.tool, answer)) if call.approval is None else None


# Errors


def denied(tool: ToolIdentifier, reason: str, hint: str = _AGAIN) -> CallFailed:
    error = CallFailed("denied", tool, reason, may_have_run=False)
    error.hint = hint
    return error


def not_approved(tool: ToolIdentifier, answer: Answer) -> CallFailed:
    """The error of a call that a person did not approve."""
    hint = _DECLINED if answer in ("no", "dismissed") else _AGAIN
    return denied(tool, f"{NEEDED}: {_REASONS.get(answer, _REASONS['failed'])}", hint)


def _nobody(call: Call, reason: str) -> CallFailed:
    tool = call.request.tool
    hint = "Nothing was sent to the server. Use a host that supports elicitation"
    if call.request.method == TOOLS_CALL:
        hint += ", run mcp-workbench call in a terminal"
    hint += f", or change 'approve' of {tool.address} in the configuration."
    return denied(tool, f"{NEEDED}, and nobody can be asked: {reason}", hint)


# Programs


class ProgramApprover:
    """A Python program that asks its person itself."""

    lasting = True

    def __init__(self, approvals: SessionApprovals, on_approval: OnApproval) -> None:
        self.approvals = approvals
        self._on_approval = on_approval

    def reply(self, asked: Asked) -> None:
        return None

    async def answer(self, asked: Asked) -> Answer:
        return await self._on_approval(asked.request)
