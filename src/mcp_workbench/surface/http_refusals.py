"""Answers to requests that never reach a conversation: a status, and an error that says why."""

from __future__ import annotations

from typing import Any

from mcp_workbench.surface import texts
from mcp_workbench.wire import envelope
from mcp_workbench.wire.http_message import JSON, Reply


def refused(  # noqa: PLR0913 - all that an answer may have
    status: int,
    message: str,
    *,
    id: bytes = b"",
    code: int = envelope.INVALID_REQUEST,
    headers: bytes = b"",
    data: Any = None,
) -> Reply:
    """The error carries the request's id as far as that is known."""
    error = envelope.error_object(code, message, data)
    return Reply(status, envelope.refusal(id, error), headers, JSON)


WRONG_HOST = refused(421, "this host name is not served here (http.allowedHosts)")
WRONG_ORIGIN = refused(403, "this origin is not allowed (http.allowedOrigins)")
NOT_FOUND = refused(404, "there is nothing at this path")
NO_TOKEN = refused(
    401,
    "a bearer token is needed",
    headers=b'WWW-Authenticate: Bearer realm="mcp-workbench"\r\n',
)
NOT_ACCEPTABLE = refused(406, "accept application/json and text/event-stream")
NO_EVENTS = refused(406, "accept text/event-stream")
WRONG_TYPE = refused(415, "send application/json")
CLOSING = refused(
    503,
    texts.ENDING,
    code=envelope.SERVER_ERROR,
    headers=b"Retry-After: 5\r\n",
    data={texts.CODE_KEY: texts.DRAINING},
)
CUT_OFF = refused(503, "the workbench has ended; the call may have run", code=envelope.SERVER_ERROR)
TOO_MANY = refused(503, "too many sessions", headers=b"Retry-After: 60\r\n")
