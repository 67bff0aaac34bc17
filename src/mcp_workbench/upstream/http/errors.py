"""What goes wrong between us and a server over HTTP, in words that help. Pure."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

import msgspec

from mcp_workbench.core.redact import redact_cut
from mcp_workbench.upstream.responses import Loss
from mcp_workbench.wire.http_answer import Answer, Broken, Oversized, Slow

SHOWN = 200  # characters of a page that came instead of an answer
LONGEST_WAIT = 3600  # seconds that we let a server keep us away
LOGIN = (401, 403)
REMEDY = '"headers": {"Authorization": "Bearer ${TOKEN}"}'


class Failed(Exception):
    """A request has no answer; the loss says why."""

    def __init__(self, loss: Loss) -> None:
        super().__init__(loss.reason)
        self.loss = loss


class Keeping(msgspec.Struct, frozen=True):
    """What a message about a server has to know and may not show."""

    secrets: dict[str, str] = {}
    has_login: bool = False  # the entry has an `Authorization` header
    limit: int = 0

    def __repr__(self) -> str:
        return "Keeping()"


def not_run(code: str, reason: str) -> Failed:
    return Failed(Loss(code, reason, may_have_run=False))


def loss_of(error: Broken, keeping: Keeping) -> Loss:
    """An exchange that broke."""
    if isinstance(error, Oversized):
        return Loss(
            "too_large",
            f"a message of it is too large: {error}; the limit is {keeping.limit} bytes "
            "(limits.messageBytes)",
        )
    if isinstance(error, Slow):
        return Loss("timeout", f"the server is silent: {error}")
    if not error.sent:
        return Loss("connect_failed", str(error), may_have_run=False)
    return Loss("server_exited", str(error))


def is_refusal(answer: Answer) -> bool:
    """Is it the HTTP server that speaks here, and not the MCP server, whatever the body says?"""
    return answer.status in (*LOGIN, 429) or (
        answer.status == 503 and "retry-after" in answer.headers
    )


def loss_for(answer: Answer, body: bytes, keeping: Keeping) -> Loss:
    """An answer that holds no message."""
    status = answer.status
    if status in LOGIN:
        return Loss("needs_login", _wants_login(answer, keeping), may_have_run=False)
    wait = retry_after(answer.headers, time.time())
    if status == 429 or (status == 503 and wait is not None):
        return rate_limited(wait, f"HTTP {status}")
    if status == 202:
        return Loss("protocol_error", "the server took the request and answers nothing (HTTP 202)")
    kind = answer.content_type or "no content type"
    shown = _shown(body, keeping)
    page = f": {shown}" if shown else ""
    told = f"the server answered HTTP {status} with {kind} instead of a message{page}"
    return Loss("protocol_error", told, may_have_run=not 400 <= status < 500)


def rate_limited(wait: float | None, why: str) -> Loss:
    """The server wants to be left alone for a while."""
    reason = f"the server takes no requests now ({why}){_when(wait)}"
    return Loss("rate_limited", reason, may_have_run=False, retry_after=wait)


def without_time(loss: Loss) -> Loss:
    """The same for a reason that is told for longer: by then so many seconds are not right any more."""
    reason = loss.reason
    if loss.retry_after is not None:
        reason = reason.removesuffix(_when(loss.retry_after))
    return msgspec.structs.replace(loss, reason=reason)


def _when(wait: float | None) -> str:
    return "; try again later" if wait is None else f"; try again in {max(math.ceil(wait), 1)} s"


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """The seconds that a server wants us to wait, however it spells them."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():  # a superscript is a digit too, and no number
        return float(min(int(text[:9]), LONGEST_WAIT))
    if not text:
        return None
    from email.utils import parsedate_to_datetime  # heavy, and rarely wanted

    try:
        until = parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None
    return min(max(until - now, 0.0), LONGEST_WAIT)


def leads_away(there: str) -> Failed:
    return not_run(
        "protocol_error",
        f"the server redirects to another origin, {there}, which is not followed: "
        "write that address in 'url' if it is the right one",
    )


def _wants_login(answer: Answer, keeping: Keeping) -> str:
    if keeping.has_login:
        return (
            f"needs login: the server refused the credentials of its entry (HTTP {answer.status}); "
            "renew what 'headers' sends as Authorization"
        )
    return (
        f"needs login: the server answered HTTP {answer.status}; "
        f"send a token from a variable with {REMEDY} in its entry"
    )


def _shown(body: bytes, keeping: Keeping) -> str:
    text = redact_cut(body[: 8 * SHOWN].decode("utf-8", "replace"), keeping.secrets)
    return "".join(c if c.isprintable() else " " for c in " ".join(text.split()))[:SHOWN]
