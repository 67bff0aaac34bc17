"""Calls from the page: a tool is tried with arguments that a person has typed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from mcp_workbench import __version__
from mcp_workbench.core.call_request import CallRequest
from mcp_workbench.core.errors import WorkbenchError
from mcp_workbench.core.spec import ToolIdentifier
from mcp_workbench.gateway.calls import Call, Door
from mcp_workbench.gateway.interceptors import CallOutcome, Completed, Failed, Rejected

if TYPE_CHECKING:
    from mcp_workbench.gateway.approvals import Approver
    from mcp_workbench.gateway.views import View

MOST_SHOWN = 2 << 20  # bytes of a result; browsers get slow with more in one text
_NO_APPROVAL = "the page approves nothing: use a host, or mcp-workbench call at a terminal"


class PageCall(Call):
    """A person at the page waits for the result."""

    def __init__(self, view: View, request: CallRequest) -> None:
        super().__init__(view, request)
        self._done: asyncio.Future[CallOutcome] = asyncio.get_running_loop().create_future()

    @property
    def door(self) -> Door:
        return "page"

    @property
    def host(self) -> tuple[str, str]:
        return "mcp-workbench ui", __version__

    def approver(self) -> Approver | str:
        return _NO_APPROVAL

    async def outcome(self) -> CallOutcome:
        try:
            await self.view.dispatch(self)
        except WorkbenchError as error:
            self.fail(error)
        except asyncio.CancelledError:
            self.cancel("the page was closed")
            raise
        try:
            return await self._done
        except asyncio.CancelledError:
            self.cancel("the page was closed")
            raise

    def deliver(self, outcome: CallOutcome) -> None:
        if not self._done.done():
            self._done.set_result(outcome)

    def progressed(self, params: msgspec.Raw) -> None:
        """The page shows no progress."""


class Tried(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """How a call from the page ended."""

    milliseconds: float
    result: msgspec.Raw | None = None
    error: str = ""
    code: str = ""
    bytes: int = 0
    is_cut: bool = False  # the result is too long to be shown


async def try_tool(view: View, tool: ToolIdentifier, arguments: msgspec.Raw) -> Tried:
    """Call a tool on behalf of the person at the page."""
    loop = asyncio.get_running_loop()
    compact = msgspec.json.format(bytes(arguments), indent=-1)  # a message is one line
    params: dict[str, Any] = {"arguments": msgspec.Raw(compact)}
    since = loop.time()
    outcome = await PageCall(view, CallRequest(tool, params, {})).outcome()
    spent = round((loop.time() - since) * 1000, 1)
    if isinstance(outcome, Completed):
        size = len(outcome.result)
        if size > MOST_SHOWN:
            return Tried(spent, bytes=size, is_cut=True)
        return Tried(spent, msgspec.Raw(bytes(outcome.result)), bytes=size)
    if isinstance(outcome, Rejected):
        about = outcome.read()
        return Tried(spent, error=about.message, code=str(about.code))
    if isinstance(outcome, Failed):
        return Tried(spent, error=outcome.error.message, code=outcome.error.code)
    return Tried(spent, error="the call was cancelled", code="cancelled")
