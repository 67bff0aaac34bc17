"""State that leaves us and comes back: sealed, so that nobody can change or borrow it."""

import base64
import binascii
import hashlib
import hmac
from typing import Literal

import msgspec

from mcp_workbench.core.names import ServerAddress

MOST_SORTED = 128 << 10  # bytes of arguments whose keys are put in order
LIFETIME = 600.0  # seconds that a question may stay open: people go for coffee

# The server's own state inside; a call that waits at its server; a request that is sent anew.
Kind = Literal["relay", "held", "again"]

encode = msgspec.json.encode


class Sealed(msgspec.Struct, frozen=True):
    """What we write on a question, so that its answer finds the way back, and no other does."""

    kind: Kind
    route: ServerAddress
    digest: str  # of the call that it belongs to
    principal: str
    born: float  # seconds, by the clock of the process that seals
    handle: str = ""  # of a held call
    state: msgspec.Raw = msgspec.Raw(b"null")  # the server's own


class Seal:
    """Integrity and binding by HMAC; nothing secret is inside."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._id = hashlib.sha256(key).digest()[:4]

    def close(self, what: Sealed) -> str:
        body = self._id + encode(what)
        return _spelled(body + self._mac(body))

    def open(self, token: str, principal: str, digest: str, now: float) -> Sealed | None:
        """What was sealed, if it is ours, unchanged, fresh, and meant for this call of this host."""
        try:
            raw = base64.b64decode(token[4:] + "=" * (-len(token[4:]) % 4), b"-_", validate=True)
        except (binascii.Error, ValueError):
            return None
        body, mac = raw[:-32], raw[-32:]
        if _spelled(raw) != token or not hmac.compare_digest(mac, self._mac(body)):
            return None
        found = msgspec.json.decode(body[4:], type=Sealed)
        fits = found.principal == principal and found.digest == digest
        return found if fits and 0 <= now - found.born <= LIFETIME else None

    def _mac(self, body: bytes) -> bytes:
        return hmac.digest(self._key, body, "sha256")


def _spelled(raw: bytes) -> str:
    """The one spelling of these bytes that we take back."""
    return "wb1." + base64.urlsafe_b64encode(raw).decode().rstrip("=")


def digest_of(name: str, arguments: msgspec.Raw | bytes) -> str:
    """What a call asks for, whatever the order of its keys. Nobody turns those of a very long one."""
    compact = msgspec.json.format(bytes(arguments), indent=-1)
    if len(compact) > MOST_SORTED:
        return hashlib.sha256(encode(name) + compact).hexdigest()
    canonical = msgspec.json.Decoder(float_hook=str).decode(arguments)
    body = encode(name) + msgspec.json.encode(canonical, order="sorted")
    return hashlib.sha256(body).hexdigest()
