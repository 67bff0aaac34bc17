"""Ids of tasks as hosts get them: they name the server that has the task, and are signed.

An id is valid for the principal that it was given to, in every process that has the key. It does not expire: how long a
task is kept is its server's decision. It is safe in a header (`Mcp-Name`). Nothing in it is secret.
"""

import base64
import binascii
import hashlib
import hmac

import msgspec

from mcp_workbench.core.spec import ServerAddress

PREFIX = "wbt1."
LONGEST = 16 << 10  # bytes of an id that a host returns

_MAC = 32


class TaskRef(msgspec.Struct, frozen=True, array_like=True):
    """The task of one server, and whose it is."""

    address: ServerAddress
    id: str  # the server's own
    principal: str
    run: str  # the connection on which it was created
    is_remote: bool  # other connections lead to the same server
    created: str = ""  # as the server wrote the time


class TaskSeal:
    """Signs and verifies ids with one key."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._id = hashlib.sha256(b"tasks" + key).digest()[:4]

    def close(self, ref: TaskRef) -> str:
        """Return the id for hosts."""
        body = self._id + msgspec.json.encode(ref)
        return _token(body + self._mac(body))

    def open(self, token: str, principal: str) -> TaskRef | None:
        """Return what the id stands for, if it is ours, unchanged, and was given to this principal."""
        ref = self.verified(token)
        fits = ref is not None and hmac.compare_digest(ref.principal.encode(), principal.encode())
        return ref if fits else None

    def verified(self, token: str) -> TaskRef | None:
        """Return what the id stands for, whoever it was given to, if it is ours and unchanged."""
        if not token.startswith(PREFIX) or len(token) > LONGEST:
            return None
        text = token[len(PREFIX) :]
        try:
            raw = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
        except (binascii.Error, ValueError):
            return None
        body, mac = raw[:-_MAC], raw[-_MAC:]
        if _token(raw) != token or not hmac.compare_digest(mac, self._mac(body)):
            return None
        return msgspec.json.decode(body[4:], type=TaskRef)

    def _mac(self, body: bytes) -> bytes:
        return hmac.digest(self._key, b"task " + body, "sha256")


def _token(raw: bytes) -> str:
    """Return the only encoding of these bytes that we accept."""
    return PREFIX + base64.urlsafe_b64encode(raw).decode().rstrip("=")
