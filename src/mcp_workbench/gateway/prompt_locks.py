"""Prompts that the lock file hides can't be requested, nor their arguments completed."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from mcp_workbench.core.lock_states import quarantined_prompt
from mcp_workbench.gateway.interceptors import Interceptor, Refusal, Wait
from mcp_workbench.upstream.conversation import RequestFailed
from mcp_workbench.upstream.tool_list import Unlistable

if TYPE_CHECKING:
    from mcp_workbench.core.call_request import CallRequest
    from mcp_workbench.gateway.calls import Call
    from mcp_workbench.upstream.connection import Connection


class PromptLock(Interceptor):
    """Looks at requests for prompts of one connection. Their list is read first, if it never was."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def before(self, call: Call) -> Refusal | Wait | None:
        name = _prompt(call.request)
        if not name:
            return None
        if "prompts" not in self._connection.tools.reviews:
            return Wait(partial(self._read, call, name))
        return self._decision(call, name)

    def _decision(self, call: Call, name: str) -> Refusal | None:
        state = self._connection.tools.blocked("prompts", name)
        return (
            None if state is None else Refusal(quarantined_prompt(call.request.tool, name, state))
        )

    async def _read(self, call: Call, name: str) -> Refusal | None:
        with suppress(Unlistable, RequestFailed):  # then the server itself answers for the prompt
            await self._connection.primitives.listed("prompts")
        return self._decision(call, name)


class _Reference(msgspec.Struct, frozen=True):
    type: str = ""
    name: str = ""


def _prompt(request: CallRequest) -> str:
    """Returns the server's name of the prompt that is meant; empty for another request."""
    member = "name" if request.method == "prompts/get" else "ref"
    if member not in request.params:
        return ""
    try:
        if member == "name":
            return msgspec.json.decode(request.params[member], type=str)
        reference = msgspec.json.decode(request.params[member], type=_Reference)
    except msgspec.DecodeError:
        return ""  # the server refuses it
    return reference.name if reference.type == "ref/prompt" else ""
