"""State that a host returns to us with its answers: signed, so that nobody can change or reuse it.

A modern host repeats a call together with the `requestState` that it received. Ours is signed with an
HMAC, and bound to the call, the principal and a lifetime. It is not encrypted.
"""

import base64
import binascii
import hashlib
import hmac
from contextlib import suppress
from typing import Literal

import msgspec

from mcp_workbench.core.spec import ServerAddress

MOST_SORTED = 128 << 10  # bytes of arguments whose keys are sorted
LIFETIME = 600.0  # seconds that a question may stay open

# "relay": carries the server's own state; "held": a call that waits at its server; "again": a request
# that is sent again; "approve": a call that a person must approve.
Kind = Literal["relay", "held", "again", "approve"]

encode = msgspec.json.encode


class SignedState(msgspec.Struct, frozen=True):
    """What we attach to a question, so that only its own answer is accepted."""

    kind: Kind
    route: ServerAddress
    digest: str  # of the call that it belongs to
    principal: str
    born: float  # seconds, by the clock of the process that signs
    handle: str = ""  # of a held call
    state: msgspec.Raw = msgspec.Raw(b"null")  # the server's own


class Seal:
    """Signs and verifies state by HMAC; nothing secret is inside."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._id = hashlib.sha256(key).digest()[:4]

    def close(self, state: SignedState) -> str:
        """Return the token for this state."""
        body = self._id + encode(state)
        return _token(body + self._mac(body))

    def open(self, token: str, principal: str, digest: str, now: float) -> SignedState | None:
        """Return the state, if the token is ours, unchanged, fresh, and of this call and principal."""
        state = self.verified(token)
        fits = state is not None and state.principal == principal and state.digest == digest
        return state if state and fits and 0 <= now - state.born <= LIFETIME else None

    def verified(self, token: str) -> SignedState | None:
        """Return the state, of whatever call and age, if the token is ours and unchanged."""
        try:
            raw = base64.b64decode(token[4:] + "=" * (-len(token[4:]) % 4), b"-_", validate=True)
        except (binascii.Error, ValueError):
            return None
        body, mac = raw[:-32], raw[-32:]
        if _token(raw) != token or not hmac.compare_digest(mac, self._mac(body)):
            return None
        return msgspec.json.decode(body[4:], type=SignedState)

    def _mac(self, body: bytes) -> bytes:
        return hmac.digest(self._key, body, "sha256")


def _token(raw: bytes) -> str:
    """Return the only encoding of these bytes that we accept."""
    return "wb1." + base64.urlsafe_b64encode(raw).decode().rstrip("=")


def digest_of(name: str, arguments: msgspec.Raw | bytes) -> str:
    """Return the digest of a call, regardless of key order unless its arguments are very long."""
    body = msgspec.json.format(bytes(arguments), indent=-1)
    if len(body) <= MOST_SORTED:
        with suppress(msgspec.ValidationError, RecursionError):  # thousands of digits, or of levels
            body = encode(_read_as_written(arguments), order="sorted")
    return hashlib.sha256(encode(name) + body).hexdigest()


def _as_written(number: str) -> msgspec.Raw:
    return msgspec.Raw(number.encode())


_read_as_written = msgspec.json.Decoder(float_hook=_as_written).decode
