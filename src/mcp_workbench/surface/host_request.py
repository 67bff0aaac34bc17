"""One request of a host to one server, other than a call: sent on, translated back, answered once."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any, Protocol

import msgspec

from mcp_workbench.core.call import ToolCall
from mcp_workbench.core.errors import CallFailed, WorkbenchError
from mcp_workbench.core.names import ToolIdentifier
from mcp_workbench.core.offers import Owned
from mcp_workbench.era.translate import PAIRS, Members, Pair, asks_for_input
from mcp_workbench.offering import Offering
from mcp_workbench.surface import texts
from mcp_workbench.surface.errands import Work
from mcp_workbench.surface.host_call import Desk, HostCall
from mcp_workbench.surface.question_desk import ANSWERS, QuestionDesk, as_call
from mcp_workbench.surface.reading import HostEra
from mcp_workbench.wire import envelope

Calls = MutableMapping[bytes, HostCall | None]
Result = msgspec.Raw | bytes


class Host(Desk, Protocol):
    """The session that a request came in."""

    @property
    def era(self) -> HostEra: ...
    def run(self, id: bytes, work: Work, *args: Any) -> None: ...


class Request(msgspec.Struct, frozen=True):
    """What came from the host: an id, the members of `params`, and `_meta`."""

    id: bytes
    members: Members
    meta: Members


class Enquiry(msgspec.Struct, frozen=True):
    """What is asked of which server, and how its answer has to be changed for the host."""

    owner: Owned
    method: str
    members: Members  # in the server's own words
    result: Callable[[Result], Result] = lambda result: result
    error: Callable[[Pair, bytes], bytes] = lambda pair, error: error
    unknown_method: bytes = b""  # the result where the server does not know the method


class HostRequest(HostCall):
    """It is held, repeated and cancelled like a call, for its server may ask questions like one's."""

    def __init__(self, sending: Sending, id: bytes, call: ToolCall, enquiry: Enquiry) -> None:
        super().__init__(sending.host, id, call, flat=False)
        self._sending = sending
        self._enquiry = enquiry

    async def send(self) -> None:
        """Bring it to its server. Raises a WorkbenchError where that can't be reached."""
        answers = {key: self.call.params[key] for key in ANSWERS if key in self.call.params}
        members = {**self._enquiry.members, **answers}
        await self._sending.offering.send(self, self._enquiry.method, members)

    def repeat(self) -> bool:
        """Send it again, now with answers."""
        self._sending.host.run(self.id, self._send_answers)
        return True

    async def _send_answers(self) -> None:
        try:
            await self.send()
        except WorkbenchError as error:
            self.failed(error)

    def is_harmless(self) -> bool:
        return True  # it reads

    # Its outcome

    def answered(self, result: Result) -> None:
        if not asks_for_input(msgspec.Raw(bytes(result))):
            result = self._enquiry.result(result)
        super().answered(result)

    def refused(self, error: msgspec.Raw) -> None:
        known = envelope.read_error(error).code != envelope.METHOD_NOT_FOUND
        if self._enquiry.unknown_method and not known:
            self._desk.reply_own(self.id, self._enquiry.unknown_method)
            return
        modern_server = self.connection is not None and self.connection.modern
        told = self._enquiry.error(PAIRS[self.call.modern_host, modern_server], bytes(error))
        super().refused(msgspec.Raw(told))

    def failed(self, error: WorkbenchError) -> None:
        if self.suspended:
            super().failed(error)
            return
        text = error.message
        if isinstance(error, CallFailed):
            text = f"[{self.call.tool.address}] Error: {error.reason}"
        self._desk.refuse(self.id, texts.refused_request(error, text))


class Sending:
    """One host's way to send requests on."""

    def __init__(
        self, host: Host, questions: QuestionDesk, offering: Offering, calls: Calls
    ) -> None:
        self.host = host
        self.offering = offering
        self._questions = questions
        self._calls = calls

    def opening(self, method: str, id: bytes, members: Members, meta: Members) -> Members | None:
        """What a request says that may have to wait for servers; None where it goes no further."""
        return self._questions.opening(id, ToolIdentifier("", "", method), members, meta)

    async def send(self, request: Request, enquiry: Enquiry) -> None:
        """Send it; where it brings answers to an earlier one's questions, that one goes on."""
        call = self._questions.returned(request.id, self._as_call(request, enquiry))
        if call is None:
            return
        sent = self._calls[request.id] = HostRequest(self, request.id, call, enquiry)
        await sent.send()

    def _as_call(self, request: Request, enquiry: Enquiry) -> ToolCall:
        address = enquiry.owner.address
        asked = ToolIdentifier(address.toolbox, address.server, enquiry.method)
        declared = self._questions.declared(request.meta)
        modern = self.host.era.modern
        return as_call(asked, request.members, request.meta, declared, modern=modern)
