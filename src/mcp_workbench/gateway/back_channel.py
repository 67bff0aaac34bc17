"""Tools that ask their host while they run, as servers did before 2026-07-28.

Hosts share a modern connection, which has no such requests. A server that speaks both eras, and wanted to
send one there, gets a legacy connection for each legacy host that can be asked.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mcp_workbench.gateway.arguments import (
    MOST_READ,
    has_failed,
    may_be_error,
    result_with_hint,
)
from mcp_workbench.gateway.interceptors import CallOutcome, Completed, Interceptor, Rejected

if TYPE_CHECKING:
    from mcp_workbench.gateway.calls import Call

HINT = (
    "The tool has a question for the user, which this server can't ask on the connection that all hosts share. "
    "From now on it has a connection of its own here, on which it can: call the tool again."
)
# How the official SDKs say it: of Python, and of TypeScript.
_REFUSED = re.compile(
    rb"(?:elicitation/create|sampling/createMessage|roots/list)[^\n]{0,100}back-channel"
    rb"|Server-to-client requests are not available on protocol revision"
)


class BackChannelHints(Interceptor):
    """Notices that a server could not ask, and says that it can now."""

    failures_only = True

    def after(self, call: Call, outcome: CallOutcome) -> CallOutcome:
        if not could_not_ask(outcome) or not call.view.let_ask(call):
            return outcome
        if isinstance(outcome, Rejected):
            return Rejected(outcome.error, HINT, about=outcome.about)
        assert isinstance(outcome, Completed)  # noqa: S101 - for the type
        return Completed(result_with_hint(outcome.result, HINT))


def could_not_ask(outcome: CallOutcome) -> bool:
    """Did the server refuse to ask, because its connection has no requests of servers?"""
    if isinstance(outcome, Rejected):
        said = b"" if outcome.is_ours else outcome.error
    elif isinstance(outcome, Completed) and may_be_error(outcome.result):
        said = outcome.result
    else:
        return False
    text = b"" if len(said) > MOST_READ else bytes(said)
    if not _REFUSED.search(text):
        return False
    return isinstance(outcome, Rejected) or has_failed(text)
