"""Keys that follow from the key of the cluster, and how values are encrypted before they leave us."""

from __future__ import annotations

import hmac
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

NONCE = 12  # bytes, as AES-GCM wants them
TAG = 16


def derive(key: bytes, purpose: bytes) -> bytes:
    """Returns 32 bytes for one purpose; from them nobody learns the key, or those of another purpose."""
    return hmac.digest(key, b"mcp-workbench cluster 1: " + purpose, "sha256")


class ValueSeal:
    """Encrypts values for the engine. Whoever runs it can neither read them, nor make one, nor swap two."""

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(derive(key, b"values in the engine"))

    def close(self, name: bytes, value: bytes) -> bytes:
        """Returns the value as it may lie under this name."""
        nonce = os.urandom(NONCE)
        return nonce + self._cipher.encrypt(nonce, value, name)

    def open(self, name: bytes, sealed: object) -> bytes | None:
        """Returns the value; None for everything that was not written by a replica under this name."""
        if not isinstance(sealed, bytes) or len(sealed) < NONCE + TAG:
            return None
        try:
            return self._cipher.decrypt(sealed[:NONCE], sealed[NONCE:], name)
        except InvalidTag:
            return None
