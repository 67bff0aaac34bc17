"""The encrypted store: values of secrets in the state folder, written by `mcp-workbench secret set`.

Each value is sealed on its own with ChaCha20-Poly1305, bound to its name, so that no value can be moved to
another name or changed unnoticed. The key is a file beside the store, for this user alone. That protects
values in a store that is shown, searched, synchronized or backed up without its key; it does not protect
them from programs of this user, who can read both (docs/decisions/0017).

Names and times are not encrypted: they are listed without the key, and without `cryptography`.
"""

from __future__ import annotations

import os
import time
from base64 import b64decode, b64encode
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from importlib.util import find_spec

import msgspec

from mcp_workbench.config.file_access import exclusive
from mcp_workbench.config.state_home import SECRETS, private_folder, read_own, write_whole
from mcp_workbench.core.errors import SecretUnavailable

STORE = "store.json"
KEY = "key"
FORMAT = 1
KEY_BYTES = 32
NONCE_BYTES = 12
MOST_BYTES = 16 << 20  # of the store
LONGEST = 64 << 10  # characters of a value
MODULE = "cryptography"
INSTALL = "pip install 'mcp-workbench-gateway[secrets]'"
NOTHING, UNUSABLE = "WB-SEC-604", "WB-SEC-605"


class _Sealed(msgspec.Struct, frozen=True):
    at: float
    sealed: str  # nonce, value and tag in base64


class _Store(msgspec.Struct, frozen=True, rename="camel"):
    mcp_workbench_secrets: int
    secrets: dict[str, _Sealed] = {}


def can_encrypt() -> bool:
    """Is the extra `secrets` installed?"""
    return find_spec(MODULE) is not None


class SecretStore:
    """The store of this user. Every method raises SecretUnavailable if that can't be used."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._folder = os.path.join(home, SECRETS) if home else ""  # noqa: PTH118 - text in, text out

    def names(self) -> dict[str, float]:
        """Returns the names in the store, and when each was set."""
        return {name: sealed.at for name, sealed in self._read().secrets.items()}

    def require(self, name: str) -> None:
        """Raises SecretUnavailable if this secret certainly can't be read. Does not read it."""
        if name not in self.names():
            raise _nothing(name)
        require_cryptography()

    def read(self, names: Iterable[str]) -> dict[str, str | SecretUnavailable]:
        """Returns each value, or why there is none."""
        known = self._read().secrets
        values: dict[str, str | SecretUnavailable] = {}
        for name in names:
            try:
                values[name] = self._opened(name, known)
            except SecretUnavailable as error:
                values[name] = error
        return values

    def write(self, values: dict[str, str]) -> None:
        """Adds these values, or replaces those of the same names."""
        require_cryptography()
        now = time.time()
        with self._locked():
            key = self._make_key()
            sealed = {n: _Sealed(now, _seal(key, n, value)) for n, value in values.items()}
            self._write({**self._read().secrets, **sealed})

    def remove(self, names: Iterable[str]) -> list[str]:
        """Removes these; returns those that were there."""
        with self._locked():
            known = self._read().secrets
            removed = [name for name in names if name in known]
            if removed:
                self._write({name: s for name, s in known.items() if name not in removed})
        return removed

    def _opened(self, name: str, known: dict[str, _Sealed]) -> str:
        if name not in known:
            raise _nothing(name)
        require_cryptography()
        return _open(self._key(), name, known[name].sealed)

    def _read(self) -> _Store:
        try:
            data = read_own(self._path(STORE), MOST_BYTES) if self._folder else b""
            store = msgspec.json.decode(data, type=_Store) if data else _Store(FORMAT)
        except FileNotFoundError:
            return _Store(FORMAT)
        except (OSError, msgspec.DecodeError) as error:
            reason = getattr(error, "strerror", None) or "it was changed, or is incomplete"
            raise _unusable(f"the encrypted store can't be read: {reason}") from None
        if store.mcp_workbench_secrets != FORMAT:
            raise _unusable(f"the encrypted store has format {store.mcp_workbench_secrets}")
        return store

    def _write(self, secrets: dict[str, _Sealed]) -> None:
        data = msgspec.json.encode(_Store(FORMAT, dict(sorted(secrets.items()))))
        try:
            write_whole(self._path(STORE), data, durable=True)
        except OSError as error:
            raise _unusable(f"the encrypted store can't be written: {_why(error)}") from None

    def _key(self) -> bytes:
        try:
            key = read_own(self._path(KEY), KEY_BYTES + 1)
        except OSError as error:
            raise _unusable(
                f"the key of the encrypted store can't be read: {_why(error)}"
            ) from None
        if len(key) != KEY_BYTES:
            raise _unusable("the key of the encrypted store is damaged")
        return key

    def _make_key(self) -> bytes:
        """Returns the key; makes one only where no value depends on another one."""
        if not os.path.lexists(self._path(KEY)) and not self._read().secrets:
            try:
                write_whole(self._path(KEY), os.urandom(KEY_BYTES), replace=False, durable=True)
            except OSError as error:
                raise _unusable(f"no key can be kept: {_why(error)}") from None
        return self._key()

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)  # noqa: PTH118

    @contextmanager
    def _locked(self) -> Generator[None]:
        """Keeps other processes from writing the store. A crash releases the lock."""
        try:
            folder = private_folder(self._home, SECRETS)
            with exclusive(folder):
                yield
        except OSError as error:
            raise _unusable(f"the encrypted store can't be kept: {_why(error)}") from None


def require_cryptography() -> None:
    if not can_encrypt():
        message = "the encrypted store needs the package cryptography, which is not installed"
        raise SecretUnavailable(UNUSABLE, message, hint=INSTALL)


def _nothing(name: str) -> SecretUnavailable:
    message = "the encrypted store has no value of this name"
    return SecretUnavailable(NOTHING, message, hint=f"mcp-workbench secret set {name}")


def _unusable(message: str) -> SecretUnavailable:
    return SecretUnavailable(UNUSABLE, message, hint="mcp-workbench explain WB-SEC-605")


def _why(error: OSError) -> str:
    return error.strerror or str(error)


# Encryption


def _seal(key: bytes, name: str, value: str) -> str:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    nonce = os.urandom(NONCE_BYTES)
    sealed = ChaCha20Poly1305(key).encrypt(nonce, value.encode("utf-8"), _bound_to(name))
    return b64encode(nonce + sealed).decode()


def _open(key: bytes, name: str, sealed: str) -> str:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    try:
        data = b64decode(sealed, validate=True)
        cipher = ChaCha20Poly1305(key)
        return cipher.decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], _bound_to(name)).decode()
    except (InvalidTag, ValueError):
        message = "it was not sealed with this key, or has been changed since"
        raise SecretUnavailable(
            UNUSABLE, message, hint=f"mcp-workbench secret set {name}"
        ) from None


def _bound_to(name: str) -> bytes:
    return f"mcp-workbench secret {FORMAT} {name}".encode()
