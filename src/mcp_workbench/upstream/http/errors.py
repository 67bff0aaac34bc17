"""HTTP failures as reasons that say what to do next. No I/O."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

import msgspec

from mcp_workbench.core.redact import redact_cut
from mcp_workbench.transport.http.client_response import (
    ClientResponse,
    ExchangeFailed,
    ResponseTimeout,
    ResponseTooLarge,
)
from mcp_workbench.upstream.responses import Failure, RequestFailed

SHOWN = 200  # characters of a page that came instead of a message
LONGEST_WAIT = 3600  # seconds; a longer Retry-After is cut
LOGIN = (401, 403)
REMEDY = '"headers": {"Authorization": "Bearer ${TOKEN}"}'


class ErrorContext(msgspec.Struct, frozen=True):
    """What error messages about one server need: secrets to mask, login, size limit."""

    secrets: dict[str, str] = {}
    has_login: bool = False  # the entry has an `Authorization` header
    limit: int = 0

    def __repr__(self) -> str:
        return "ErrorContext()"


def not_run(code: str, reason: str) -> RequestFailed:
    return RequestFailed(Failure(code, reason, may_have_run=False))


def failure_of(error: ExchangeFailed, context: ErrorContext) -> Failure:
    """The failure for an exchange that broke off."""
    if isinstance(error, ResponseTooLarge):
        return Failure(
            "too_large",
            f"a message of it is too large: {error}; the limit is {context.limit} bytes "
            "(limits.messageBytes)",
        )
    if isinstance(error, ResponseTimeout):
        return Failure("timeout", f"the server is silent: {error}")
    if not error.sent:
        return Failure("connect_failed", str(error), may_have_run=False)
    return Failure("server_exited", str(error))


def is_refusal(answer: ClientResponse) -> bool:
    """Is this response from the HTTP server rather than the MCP server, whatever its body?"""
    return answer.status in (*LOGIN, 429) or (
        answer.status == 503 and "retry-after" in answer.headers
    )


def failure_for(answer: ClientResponse, body: bytes, context: ErrorContext) -> Failure:
    """The failure for a response without a message."""
    status = answer.status
    if status in LOGIN:
        return Failure("needs_login", _wants_login(answer, context), may_have_run=False)
    wait = retry_after(answer.headers, time.time())
    if status == 429 or (status == 503 and wait is not None):
        return rate_limited(wait, f"HTTP {status}")
    if status == 202:
        return Failure(
            "protocol_error", "the server took the request and answers nothing (HTTP 202)"
        )
    kind = answer.content_type or "no content type"
    shown = _shown(body, context)
    page = f": {shown}" if shown else ""
    reason = f"the server answered HTTP {status} with {kind} instead of a message{page}"
    return Failure("protocol_error", reason, may_have_run=not 400 <= status < 500)


def rate_limited(wait: float | None, why: str) -> Failure:
    """The server asks us to wait."""
    reason = f"the server takes no requests now ({why}){_when(wait)}"
    return Failure("rate_limited", reason, may_have_run=False, retry_after=wait)


def without_time(failure: Failure) -> Failure:
    """The same without the seconds, for a reason that is shown later."""
    reason = failure.reason
    if failure.retry_after is not None:
        reason = reason.removesuffix(_when(failure.retry_after))
    return msgspec.structs.replace(failure, reason=reason)


def _when(wait: float | None) -> str:
    return "; try again later" if wait is None else f"; try again in {max(math.ceil(wait), 1)} s"


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """The seconds of a Retry-After header, given as a number or as a date."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():  # a superscript is a digit too, but no number
        return float(min(int(text[:9]), LONGEST_WAIT))
    if not text:
        return None
    from email.utils import parsedate_to_datetime  # heavy and rarely needed

    try:
        until = parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None
    return min(max(until - now, 0.0), LONGEST_WAIT)


def foreign_redirect(origin: str) -> RequestFailed:
    return not_run(
        "protocol_error",
        f"the server redirects to another origin, {origin}, which is not followed: "
        "write that address in 'url' if it is the right one",
    )


def _wants_login(answer: ClientResponse, context: ErrorContext) -> str:
    if context.has_login:
        return (
            f"needs login: the server refused the credentials of its entry (HTTP {answer.status}); "
            "renew what 'headers' sends as Authorization"
        )
    return (
        f"needs login: the server answered HTTP {answer.status}; "
        f"send a token from a variable with {REMEDY} in its entry"
    )


def _shown(body: bytes, context: ErrorContext) -> str:
    text = redact_cut(body[: 8 * SHOWN].decode("utf-8", "replace"), context.secrets)
    return "".join(c if c.isprintable() else " " for c in " ".join(text.split()))[:SHOWN]
