"""A request to one server on somebody's behalf, and whether it may be sent again."""

from typing import Any

import msgspec

from mcp_workbench.core.spec import ToolIdentifier

TOOLS_CALL = "tools/call"
READS = frozenset({"prompts/get", "resources/read", "completion/complete"})  # change nothing
# Members of `params` that belong to a server's question, not to the request itself.
ANSWERS = ("inputResponses", "requestState")
# The connection broke. Any other failure would only be repeated, or has been already.
BROKEN = frozenset({"server_exited", "connect_failed"})


class CallRequest(msgspec.Struct, frozen=True, gc=False):
    """One request as its sender wrote it, without the name of the tool.

    With a method other than `tools/call`, the method takes the place of the tool's name.
    """

    tool: ToolIdentifier
    params: dict[str, msgspec.Raw]  # without `_meta`; of a tool call, without `name`
    meta: dict[str, msgspec.Raw] = {}
    modern_host: bool = False
    capabilities: msgspec.Raw = msgspec.Raw(b"{}")  # of the host, to be declared to the server
    method: str = TOOLS_CALL

    @property
    def body(self) -> msgspec.Raw | bytes:
        """What identifies the request, the same before and after a server's questions."""
        if self.method == TOOLS_CALL:
            return self.params["arguments"]
        return msgspec.json.encode(self.without_answers().params)

    def without_answers(self) -> "CallRequest":
        """Returns the request as it was before any question."""
        if not any(key in self.params for key in ANSWERS):
            return self
        params = {key: value for key, value in self.params.items() if key not in ANSWERS}
        return msgspec.structs.replace(self, params=params)


# Sending again: a call that may have run is not sent twice, unless its tool declares that harmless


class _Hints(msgspec.Struct, frozen=True):
    readOnlyHint: bool | None = None  # noqa: N815 - the wire's word
    idempotentHint: bool | None = None  # noqa: N815


class _Tool(msgspec.Struct, frozen=True):
    annotations: _Hints | None = None


def is_harmless(definition: bytes) -> bool:
    """Does the tool declare that a second run changes nothing?"""
    try:
        hints = msgspec.json.decode(definition, type=_Tool).annotations
    except msgspec.DecodeError:
        return False
    return hints is not None and bool(hints.readOnlyHint or hints.idempotentHint)


def may_send_again(code: str, *, may_have_run: bool, harmless: bool) -> bool:
    return code in BROKEN and (harmless or not may_have_run)


# Arguments of the meta-tools, for Python programs


class UseToolInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of `use_tool`: the tool, and its arguments."""

    tool: ToolIdentifier
    arguments: dict[str, Any] = {}


class OpenToolboxInput(msgspec.Struct, frozen=True):
    """Arguments of `open_toolbox`; other keys are ignored."""

    toolbox_name: str
