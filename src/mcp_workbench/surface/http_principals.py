"""Who asks over HTTP: whose token it is, and which toolboxes are there for it."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from hmac import compare_digest

import msgspec

from mcp_workbench.core.spec import NamedToken


class Principal(msgspec.Struct, frozen=True):
    """Somebody whom we can tell from others. Sessions, questions and states belong to one."""

    name: str
    toolboxes: tuple[str, ...] | None = None  # all others do not exist for it; None is all
    among: int = 1  # how many there are: none may take what is there for all

    def sees(self, toolbox: str) -> bool:
        return self.toolboxes is None or toolbox in self.toolboxes


# No name in a configuration has a parenthesis or a number sign.
ANONYMOUS = Principal("(anonymous)")


class Principals:
    """Everybody who has a token. Tokens themselves are not kept."""

    def __init__(self, token: str = "", named: Iterable[NamedToken] = ()) -> None:
        named = tuple(named)
        among = len(named) + bool(token)
        self._known = [
            (_digest(one.token.encode()), Principal(one.name, one.toolboxes, among))
            for one in named
        ]
        if token:
            digest = _digest(token.encode())
            whose = Principal(f"#{_digest(digest).hex()[:16]}", None, among)
            self._known.append((digest, whose))
        # What one is shown is then not what another is shown.
        self.differ = any(one.toolboxes is not None for one in named)

    def __len__(self) -> int:
        return len(self._known)

    def bearer(self, authorization: bytes) -> Principal | None:
        """Whose token this header brings. It takes as long whichever it is, and if it is none."""
        scheme, _, token = authorization.partition(b" ")
        digest = _digest(token.strip())
        found = None
        for known, principal in self._known:
            if compare_digest(digest, known):
                found = principal
        return found if scheme.lower() == b"bearer" else None


def _digest(token: bytes) -> bytes:
    return sha256(token).digest()
