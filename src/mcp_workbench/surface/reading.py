"""What a host's request says, and whether it fits the era of the conversation."""

from __future__ import annotations

from typing import Any

import msgspec

from mcp_workbench.era.revision import MODERN, UNSUPPORTED_VERSION
from mcp_workbench.era.translate import Members, read_members
from mcp_workbench.surface.greeting import EnvelopeFault, is_stamped, offered_revision, read_stamp
from mcp_workbench.wire import envelope

# Requests that may come before an opening: two of them are one, and a sign of life is always allowed.
_BEFORE_OPENING = ("initialize", "server/discover", "ping")


_read_text = msgspec.json.Decoder(str).decode


class Refusal(Exception):
    """A request is answered with this JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.error = envelope.error_object(code, message, data)


class HostEra:
    """What the conversation speaks: fixed by the first request that opens it."""

    def __init__(self) -> None:
        self._revision = ""
        self.legacy = False
        self.modern = False

    @property
    def revision(self) -> str:
        return self._revision

    @revision.setter
    def revision(self, value: str) -> None:
        self._revision = value
        self.modern = value == MODERN
        self.legacy = not self.modern

    def check(self, method: str, members: Members, meta: Members) -> None:
        """Raise a Refusal where the request does not fit; a modern one may fix the era."""
        if self.legacy and not meta:
            return
        stamped = is_stamped(meta)
        if self.legacy:
            if stamped:
                opened = f"this conversation was opened by initialize ({self._revision})"
                raise Refusal(envelope.INVALID_REQUEST, opened)
        elif stamped or self.modern:
            self._check_modern(method, members, meta)
        elif method not in _BEFORE_OPENING:
            raise Refusal(
                envelope.INVALID_PARAMS,
                f"open the conversation first: initialize, or a request with _meta for {MODERN}",
            )

    def _check_modern(self, method: str, members: Members, meta: Members) -> None:
        if method == "initialize":
            raise _unsupported(offered_revision(members))
        try:
            requested = read_stamp(meta)
        except EnvelopeFault as fault:
            raise Refusal(envelope.INVALID_PARAMS, str(fault)) from None
        if requested != MODERN:
            raise _unsupported(requested)
        if method != "server/discover" and not self.modern:
            self.revision = MODERN


def _unsupported(requested: str) -> Refusal:
    data = {"supported": [MODERN], "requested": requested}
    return Refusal(UNSUPPORTED_VERSION, "Unsupported protocol version", data)


def read_params(params: msgspec.Raw) -> Members:
    if not params or envelope.is_null(params):
        return {}
    try:
        return read_members(params)
    except msgspec.DecodeError:
        raise Refusal(envelope.INVALID_PARAMS, "params must be an object") from None


def read_meta(meta: msgspec.Raw | None) -> Members:
    if not meta or envelope.is_null(meta):
        return {}
    try:
        return read_members(meta)
    except msgspec.DecodeError:
        raise Refusal(envelope.INVALID_PARAMS, "params._meta must be an object") from None


def read_name(members: Members) -> str:
    """Take `name` out of `members`."""
    try:
        return _read_text(members.pop("name"))
    except (KeyError, msgspec.DecodeError):
        raise Refusal(envelope.INVALID_PARAMS, "params.name must be a string") from None


def read_uri(members: Members) -> str:
    """`uri`, which must be there."""
    try:
        uri = _read_text(members["uri"])
    except (KeyError, msgspec.DecodeError):
        uri = ""
    if not uri:
        raise Refusal(envelope.INVALID_PARAMS, "params.uri must be a string")
    return uri


def cancelled_id(params: msgspec.Raw) -> bytes:
    """The id that a cancellation names; empty where it names none."""
    try:
        return bytes(read_members(params).get("requestId", b""))
    except (msgspec.DecodeError, RecursionError):
        return b""
