"""What is asked of one server: a call of a tool, or another request on somebody's behalf."""

import msgspec

from mcp_workbench.core.names import ToolIdentifier

TOOLS_CALL = "tools/call"
# Members of `params` that belong to a question which a server has asked, not to the request itself.
ANSWERS = ("inputResponses", "requestState")


class CallRequest(msgspec.Struct, frozen=True):
    """One request as its sender wrote it, without the name of the tool.

    With a method other than `tools/call`, the method takes the place of the tool's name.
    """

    tool: ToolIdentifier
    params: dict[str, msgspec.Raw]  # without `_meta`; of a call, without `name`
    meta: dict[str, msgspec.Raw] = {}
    modern_host: bool = False
    capabilities: msgspec.Raw = msgspec.Raw(b"{}")  # what the host may be asked for, to be declared
    method: str = TOOLS_CALL

    @property
    def body(self) -> msgspec.Raw | bytes:
        """What the request is about, the same before and after questions."""
        if self.method == TOOLS_CALL:
            return self.params["arguments"]
        return msgspec.json.encode(self.without_answers().params)

    def without_answers(self) -> "CallRequest":
        """The request as it was before any question."""
        if not any(key in self.params for key in ANSWERS):
            return self
        params = {key: value for key, value in self.params.items() if key not in ANSWERS}
        return msgspec.structs.replace(self, params=params)
