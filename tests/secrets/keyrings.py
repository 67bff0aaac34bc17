"""Keyrings for the tests, as a user installs them: one that asks on a terminal, one that never answers, one that is locked."""

from __future__ import annotations

import time
from getpass import getpass

from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked


class _Ours(KeyringBackend):
    priority = 1  # type: ignore[assignment]

    def set_password(self, service: str, username: str, password: str) -> None:
        raise NotImplementedError

    def delete_password(self, service: str, username: str) -> None:
        raise NotImplementedError


class Asking(_Ours):
    """Wants a password before it gives anything, as `keyrings.alt.file.EncryptedKeyring` does."""

    def get_password(self, service: str, username: str) -> str:
        return getpass("Please enter password for encrypted keyring: ")


class Hanging(_Ours):
    """Waits for somebody who never comes."""

    def get_password(self, service: str, username: str) -> str:
        time.sleep(3600)
        return "too late"


class Locked(_Ours):
    def get_password(self, service: str, username: str) -> str:
        raise KeyringLocked("secret-of-the-keyring")
