"""A host's calls: each request of it is answered exactly once, or not at all where it was cancelled."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from mcp_workbench.bounded import TooManyParts
from mcp_workbench.core.call import CallRequest
from mcp_workbench.core.errors import CallFailed, WorkbenchError
from mcp_workbench.core.names import ServerAddress
from mcp_workbench.era.questions import progress_of
from mcp_workbench.era.revision import FOR_THE_HOST, OF_OUR_HOP, URL_ELICITATION_NEEDED
from mcp_workbench.era.translate import with_token
from mcp_workbench.gateway.arguments import may_be_error
from mcp_workbench.gateway.calls import Call
from mcp_workbench.gateway.interceptors import (
    CallOutcome,
    Completed,
    Failed,
    Rejected,
)
from mcp_workbench.surface import texts
from mcp_workbench.wire import envelope
from mcp_workbench.wire.envelope import Outcome

if TYPE_CHECKING:
    from mcp_workbench.surface.holding import Held
    from mcp_workbench.surface.session import HostSession


class UnderWay(dict[bytes, "HostCall | None"]):
    """A host's requests without an answer, by id; those that concern no server have no call."""

    def has(self, call: HostCall) -> bool:
        """Is this still what its request waits for?"""
        return self.get(call.id) is call

    def waiting_for(self, address: ServerAddress) -> HostCall | None:
        """The oldest that can't begin before this server is ready."""
        calls = [call for call in self.values() if call is not None]
        return next((call for call in calls if call.waits_for(address)), None)


class HostCall(Call):
    """A call whose outcome is the answer to a host's request."""

    explains = True
    rounds = 0  # of questions
    suspended = False  # its request was answered with a question, and the next one has not come
    withdrawals: tuple[Callable[[], None], ...] = ()  # of questions that are open for it
    held: Held | None = None  # the questions that are open for it, while its host is modern
    _furthest = -1.0  # the progress that the host has heard of
    _kept: CallOutcome | None = None  # while it is suspended

    def __init__(
        self, session: HostSession, id: bytes, request: CallRequest, *, flat: bool = False
    ) -> None:
        super().__init__(session.view, request)
        self.session = session
        self.id = id
        self._flat = flat  # asked for under a flat name

    @property
    def host_name(self) -> str:
        return self.session.host_name

    @property
    def results_owner(self) -> object:
        return self.session.results_owner

    @property
    def asker(self) -> object:
        """On whose behalf the call is made."""
        return self.session

    # Its outcome

    def settled(self, answer: Outcome) -> None:
        result = answer.result
        if self.plain and result and not may_be_error(result):
            self.session.reply(self.id, result)
        else:
            super().settled(answer)

    def rejected(self, error: msgspec.Raw) -> None:
        needs_address = envelope.read_error(error).code == URL_ELICITATION_NEEDED
        if needs_address and self.request.modern_host:
            self.session.questions.needs_addresses(self, error)
        else:
            super().rejected(error)

    def give_up(self, code: str, reason: str) -> None:
        self.fail(CallFailed(code, self.request.tool, reason, may_have_run=True))

    def deliver(self, outcome: CallOutcome) -> None:
        if self.suspended:
            self._kept = outcome
        elif isinstance(outcome, Completed):
            self.reply(outcome.result)
        elif isinstance(outcome, Rejected):
            self.refuse(outcome)
        elif isinstance(outcome, Failed):
            self.reply_failure(outcome.error)

    def reply(self, result: msgspec.Raw | bytes) -> None:
        self.session.reply(self.id, result)

    def refuse(self, outcome: Rejected) -> None:
        """A server's own error passes as it is; under a flat name it becomes words for the model."""
        error, hint = outcome.error, outcome.hint
        if outcome.is_ours:
            self.session.refuse(self.id, error)
            return
        read = envelope.read_error(error)
        if read.code in OF_OUR_HOP and self.connection is not None and self.connection.modern:
            why = f"the server refused what the workbench sent: {read.message} ({read.code})"
            error = msgspec.Raw(envelope.error_object(envelope.INTERNAL_ERROR, why))
        if self._flat and read.code not in FOR_THE_HOST:
            text = f"[{self.request.tool}] Error: {read.message}"
            self.session.reply_own(self.id, texts.error_texts("server_error", text, hint))
            return
        if hint:
            from mcp_workbench.gateway.argument_hints import error_with_hint

            error = error_with_hint(error, read.message, hint)
        self.session.refuse(self.id, error)

    def reply_failure(self, error: WorkbenchError) -> None:
        text = texts.flat_text(error, self.request.tool) if self._flat else error.message
        self.session.reply_own(self.id, texts.failed_call(error, text))

    # Progress

    def progressed(self, params: msgspec.Raw) -> None:
        token = self.request.meta.get("progressToken")
        if token is None or self.suspended or not self._gets_on(params):
            return
        try:
            notice = with_token(params, token)
        except TooManyParts:
            return
        self.session.notify("notifications/progress", notice, self.id)

    def _gets_on(self, params: msgspec.Raw) -> bool:
        """Is it news? A call that is repeated with answers begins anew, which its host need not know."""
        if self.request.modern_host or self.connection is None or not self.connection.modern:
            return True
        progress = progress_of(params)
        if progress is None or progress > self._furthest:
            self._furthest = self._furthest if progress is None else progress
            return True
        return False

    # Questions

    def is_repeatable(self) -> bool:
        return not self.suspended and not self.rounds  # nobody is asked the same twice

    def questioned(self, result: msgspec.Raw) -> None:
        self.session.questions.questioned(self, result)

    def abandon(self, reason: str) -> None:
        self.withdraw()
        super().abandon(reason)

    def withdraw(self) -> None:
        """Take back the questions that are open for this call."""
        withdrawals, self.withdrawals = self.withdrawals, ()
        for withdraw in withdrawals:
            withdraw()

    def waits_for(self, address: ServerAddress) -> bool:
        """Does it begin only when this server is ready? Its target may not be known whole yet."""
        if self.connection is not None:
            return False
        tool = self.request.tool
        return tool.toolbox in ("", address.toolbox) and tool.server in ("", address.server)

    def stop(self) -> None:
        """Do not begin: its server wants to know something first."""
        self.session.stop(self.id)

    def suspend(self) -> bool:
        """Wait for the host to come back; False where nobody waits for the answer any more."""
        if self.suspended or not self.session.under_way.has(self):
            return False
        self.suspended, self.plain = True, False
        self.pause()
        return True

    def give_way(self) -> bool:
        """A held call whose host has not come back leaves its place to others."""
        if self.suspended and self.held is not None:
            self.held.expire()
        return self.suspended

    def reply_questions(self, result: bytes) -> None:
        self.session.reply(self.id, result)

    def resume(self, session: HostSession, id: bytes) -> None:
        """The host is back, with a new request; what was kept for it is delivered at once."""
        self.session, self.id, self.suspended = session, id, False
        session.under_way[id] = self
        self.proceed()
        if self._kept is not None:
            kept, self._kept = self._kept, None
            self.deliver(kept)


class OwnCall(HostCall):
    """A request for one of our own tools, which may have to wait for servers: nobody is called."""

    def cancel(self, reason: str) -> None:
        self.abandon(reason)
