"""One call of a host, from its request to its one answer."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

from mcp_workbench.bounded import TooManyParts
from mcp_workbench.callers import Caller
from mcp_workbench.core.call import ToolCall
from mcp_workbench.core.errors import CallFailed, WorkbenchError
from mcp_workbench.core.names import ServerAddress
from mcp_workbench.era.questions import progress_of
from mcp_workbench.era.revision import FOR_THE_HOST, OF_OUR_HOP, URL_ELICITATION_NEEDED
from mcp_workbench.era.translate import with_token
from mcp_workbench.surface import texts
from mcp_workbench.wire import envelope

if TYPE_CHECKING:
    from mcp_workbench.surface.asking import Sender
    from mcp_workbench.surface.holding import Held


# Servers write `isError` last, or nearly so, or as the very first: nothing else of a result is read.
TAIL = 256  # bytes
FIRST = b'{"isError"'
IS_ERROR = re.compile(rb'"isError"\s*:\s*true').search


def may_be_error(result: msgspec.Raw | bytes) -> bool:
    """Is it worth a closer look whether the tool has failed?"""
    is_short = len(result) <= TAIL
    tail = bytes(result) if is_short else bytes(memoryview(result)[-TAIL:])
    if tail.find(b"true") >= 0 and IS_ERROR(tail):  # `find`, as in `envelope.has`
        return True
    return not is_short and bytes(memoryview(result)[: len(FIRST)]) == FIRST


class UnderWay(dict[bytes, "HostCall | None"]):
    """A host's requests without an answer, by id; those that concern no server have no call."""

    def has(self, host_call: HostCall) -> bool:
        """Is this still what its request waits for?"""
        return self.get(host_call.id) is host_call

    def waiting_for(self, address: ServerAddress) -> HostCall | None:
        """The oldest that can't begin before this server is ready."""
        calls = [call for call in self.values() if call is not None]
        return next((call for call in calls if call.waits_for(address)), None)


class Questions(Protocol):
    """What becomes of an outcome that asks something."""

    declared_once: msgspec.Raw  # what a legacy host can be asked for

    def questioned(self, host_call: HostCall, result: msgspec.Raw) -> None: ...
    def needs_addresses(self, host_call: HostCall, error: msgspec.Raw) -> None: ...


class Desk(Protocol):
    """Where answers go: each request is answered there once, or not at all when cancelled."""

    @property
    def sender(self) -> Sender: ...
    @property
    def under_way(self) -> UnderWay: ...
    @property
    def questions(self) -> Questions: ...
    def stop(self, id: bytes) -> None: ...
    def reply(self, id: bytes, result: msgspec.Raw | bytes) -> None: ...
    def reply_own(self, id: bytes, result: bytes) -> None: ...
    def refuse(self, id: bytes, error: msgspec.Raw | bytes) -> None: ...
    def notify(self, method: str, params: bytes = b"", about: bytes = b"") -> None: ...


class HostCall(Caller):
    """A call whose outcome goes back to a host's request."""

    rounds = 0  # of questions
    _furthest = -1.0  # the progress that the host has heard of
    suspended = False  # its request was answered with a question, and the next one has not come
    _kept: Callable[[], None] | None = None  # what it is to be told then
    withdrawals: tuple[Callable[[], None], ...] = ()  # of questions that are open for it
    held: Held | None = None  # the questions that are open for it, while its host is modern

    _flat = False  # asked for under a flat name

    def __init__(self, desk: Desk, id: bytes, call: ToolCall, *, flat: bool) -> None:
        self.call = call
        self._desk = desk
        self.id = id
        self._flat = flat

    @property
    def sender(self) -> Sender:
        return self._desk.sender

    @property
    def asker(self) -> object:
        """On whose behalf the call is made."""
        return self._desk

    def answered(self, result: msgspec.Raw | bytes) -> None:
        if may_be_error(result):
            result = self._taught(result)
        if self.suspended:
            self._kept = lambda: self._desk.reply(self.id, result)
        else:
            self._desk.reply(self.id, result)

    def refused(self, error: msgspec.Raw) -> None:
        """A server's own error passes as it is; under a flat name it becomes words for the model."""
        if self.suspended:
            self._kept = lambda: self.refused(error)
            return
        told = envelope.read_error(error)
        if told.code == URL_ELICITATION_NEEDED and self.call.modern_host:
            self._desk.questions.needs_addresses(self, error)
            return
        if told.code in OF_OUR_HOP and self.connection is not None and self.connection.modern:
            why = f"the server refused what the workbench sent: {told.message} ({told.code})"
            error = msgspec.Raw(envelope.error_object(envelope.INTERNAL_ERROR, why))
        lesson = self._lesson() if told.code == envelope.INVALID_PARAMS else ""
        if not self._flat or told.code in FOR_THE_HOST:
            if lesson:
                from mcp_workbench.surface.teaching import taught_error

                error = taught_error(error, told.message, lesson)
            self._desk.refuse(self.id, error)
            return
        text = f"[{self.call.tool}] Error: {told.message}"
        self._desk.reply_own(self.id, texts.error_texts("server_error", text, lesson))

    def _lesson(self) -> str:
        """What is wrong with the arguments and what the tool takes, if that can be said."""
        from mcp_workbench.surface.teaching import lesson  # not before a call has missed

        known = {} if self.connection is None else self.connection.catalogue.tools
        definition = known.get(self.call.tool.tool)
        return "" if definition is None else lesson(definition, self.call)

    def _taught(self, result: msgspec.Raw | bytes) -> msgspec.Raw | bytes:
        """A failed result, with what the tool takes where the arguments were wrong."""
        from mcp_workbench.surface.teaching import has_failed, taught_result

        told = self._lesson() if has_failed(result) else ""
        return taught_result(result, told) if told else result

    def failed(self, error: WorkbenchError) -> None:
        if self.suspended:
            self._kept = lambda: self.failed(error)
            return
        text = texts.flat_text(error, self.call.tool) if self._flat else error.message
        self._desk.reply_own(self.id, texts.failed_call(error, text))

    def give_up(self, code: str, reason: str) -> None:
        self.failed(CallFailed(code, self.call.tool, reason, may_have_run=True))

    def progressed(self, params: msgspec.Raw) -> None:
        token = self.call.meta.get("progressToken")
        if token is None or self.suspended or not self._gets_on(params):
            return
        try:
            notice = with_token(params, token)
        except TooManyParts:
            return
        self._desk.notify("notifications/progress", notice, self.id)

    def is_repeatable(self) -> bool:
        return not self.suspended and not self.rounds  # nobody is asked the same twice

    def _gets_on(self, params: msgspec.Raw) -> bool:
        """Is it news? A call that is repeated with answers begins anew, which its host need not know."""
        if self.call.modern_host or self.connection is None or not self.connection.modern:
            return True
        progress = progress_of(params)
        if progress is None or progress > self._furthest:
            self._furthest = self._furthest if progress is None else progress
            return True
        return False

    # Questions

    def repeat(self) -> bool:
        """Send it again in a way of its own; False where a session knows the way."""
        return False

    def questioned(self, result: msgspec.Raw) -> None:
        self._desk.questions.questioned(self, result)

    def cancel(self, reason: str) -> None:
        self.withdraw()
        super().cancel(reason)

    def withdraw(self) -> None:
        """Take back the questions that are open for this call."""
        withdrawals, self.withdrawals = self.withdrawals, ()
        for withdraw in withdrawals:
            withdraw()

    def waits_for(self, address: ServerAddress) -> bool:
        """Does it begin only when this server is ready?"""
        return self.connection is None and self.call.tool.address == address

    def stop(self) -> None:
        """Do not begin: its server wants to know something first."""
        self._desk.stop(self.id)

    def suspend(self) -> bool:
        """Wait for the host to come back; False where nobody waits for the answer any more."""
        if self.suspended or not self._desk.under_way.has(self):
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
        self._desk.reply(self.id, result)

    def resume(self, desk: Desk, id: bytes) -> None:
        """The host is back, with a new request; what was kept for it is told at once."""
        self._desk, self.id, self.suspended = desk, id, False
        desk.under_way[id] = self
        self.proceed()
        if self._kept is not None:
            kept, self._kept = self._kept, None
            kept()


class Opening(HostCall):
    """A request that may have to wait for servers: all those of a toolbox, or of every one."""

    def waits_for(self, address: ServerAddress) -> bool:
        return self.call.tool.toolbox in ("", address.toolbox)
