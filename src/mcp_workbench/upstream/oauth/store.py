"""Credentials on disk: one private file for each sign-in, and a lock beside it.

Several processes use one credential: windows of hosts, the shared workbench, the command line. Whoever
holds the lock may refresh it; the others read what it wrote. A refresh token is used once only, so
nothing is refreshed without the lock. With replicas (`CredentialSharing`) the lock and the credential are those of all of
them: the file is what this replica knows, and is brought up to date under the lock.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from hashlib import sha256
from typing import Protocol, TypeVar

import msgspec

from mcp_workbench.config.state_home import (
    CREDENTIALS,
    NotPrivate,
    private_folder,
    read_own,
    require_private,
    write_whole,
)
from mcp_workbench.protocol.oauth import OAuthClient, SignInFailed
from mcp_workbench.protocol.oauth_tokens import header_safe
from mcp_workbench.timing import deadline, pause

log = logging.getLogger(__name__)
Kept = TypeVar("Kept")

LARGEST = 1 << 18  # bytes of a file
LATEST = 1e11  # seconds since the epoch: what is later is no time
POLL = pause(0.03)  # seconds between two attempts to get the lock
REFUSED_PAUSE = 30.0  # seconds between two refreshes because the server refused: it might for ever
PATIENCE = deadline(45.0)  # seconds; longer than any refresh takes


class Credential(msgspec.Struct, frozen=True, omit_defaults=True):
    """A sign-in at one server: its tokens, and all that is needed to refresh them."""

    url: str
    issuer: str
    token_endpoint: str
    resource: str
    client: OAuthClient
    access_token: str = ""
    refresh_token: str = ""
    expires_at: float = 0.0  # seconds since the epoch; 0: not known
    lifetime: float = 0.0  # seconds that the access token was given for
    scope: str = ""
    account: str = ""
    signed_in_at: float = 0.0
    revocation_endpoint: str = ""
    ended: str = ""  # why a new sign-in is needed
    trusted: tuple[str, ...] = ()  # origins that the operator listed at that time
    refused_at: float = 0.0  # when it was last refreshed because the server refused it
    principal: str = ""  # whose it is (scope: principal); empty: the local user's

    def __repr__(self) -> str:
        return f"Credential({self.issuer!r})"

    @property
    def is_sound(self) -> bool:
        """Can it be used as it is? A damaged file may hold anything."""
        times = (self.expires_at, self.lifetime, self.signed_in_at)
        return (not self.access_token or header_safe(self.access_token)) and all(
            0 <= at < LATEST for at in times
        )

    @property
    def usable(self) -> bool:
        return bool(self.access_token) and not self.ended

    def is_expired(self, now: float) -> bool:
        return bool(self.expires_at) and now >= self.expires_at

    @property
    def due_at(self) -> float:
        """When it should be refreshed, although it is good for a little longer; 0: not known."""
        return self.expires_at - min(60.0, self.lifetime / 4) if self.expires_at else 0.0

    def was_just_refused(self, now: float) -> bool:
        """Did the server refuse the token before this one, a moment ago?"""
        return 0 <= now - self.refused_at < REFUSED_PAUSE

    def can_refresh(self, machine: bool) -> bool:  # noqa: FBT001
        return machine or bool(self.refresh_token)


class CredentialSharing(Protocol):
    """The credentials of all replicas, by the names of their files."""

    async def newer(self, name: str, local: Credential | None) -> Credential | None:
        """Return the credential of another replica, if it is newer; a newer one of ours is sent there."""
        ...

    def publish(self, name: str, credential: Credential) -> None:
        """Send a credential that was written under the lock."""
        ...

    def offer(self, name: str, credential: Credential) -> None:
        """Send a credential that is used here, if there is none yet."""
        ...

    def lease(self, name: str) -> AbstractAsyncContextManager[None]:
        """Be the only replica that may refresh it. Raises SignInFailed."""
        ...


class ClientStore:
    """Our registrations at authorization servers, one file for each issuer."""

    def __init__(self, home: str, issuer: str) -> None:
        self._home = home
        self._name = f"client-{sha256(issuer.encode()).hexdigest()[:32]}.json"

    def read(self) -> OAuthClient | None:
        return _read(self._home, self._name, OAuthClient)

    def write(self, client: OAuthClient) -> None:
        """Replace the file in one step. Raises SignInFailed."""
        _write(self._home, self._name, msgspec.json.encode(client))


def of_principals(home: str) -> list[Credential]:
    """The credentials of other people than the local user, in no order."""
    folder = os.path.join(home, CREDENTIALS)  # noqa: PTH118 - text in, text out
    credentials: list[Credential] = []
    with suppress(OSError):
        for name in os.listdir(folder):  # noqa: PTH208
            if name.endswith(".json") and not name.startswith("client-"):
                with suppress(OSError, msgspec.DecodeError):
                    data = read_own(os.path.join(folder, name), LARGEST)  # noqa: PTH118
                    credentials.append(msgspec.json.decode(data, type=Credential))
    return [credential for credential in credentials if credential.principal]


class CredentialStore:
    """The credential file of one server, account and principal."""

    def __init__(
        self,
        home: str,
        url: str,
        account: str = "",
        principal: str = "",
        shared: CredentialSharing | None = None,
    ) -> None:
        self._home = home
        self._shared = shared
        self._url = url
        self.issuer = ""  # that the operator names; empty: whichever the server does
        name = "\0".join((url, account, principal)).encode()
        self.name = sha256(name).hexdigest()[:32]

    @property
    def _path(self) -> str:
        return os.path.join(self._home, CREDENTIALS, f"{self.name}.json")  # noqa: PTH118 - text in, text out

    def read(self) -> Credential | None:
        """The credential; None if there is none, or it can't be used."""
        credential = _read(self._home, f"{self.name}.json", Credential)
        if credential is None or not credential.is_sound:
            return None
        if not self._is_ours(credential):
            return None
        if self._shared is not None:
            self._shared.offer(self.name, credential)
        return credential

    def _is_ours(self, credential: Credential) -> bool:
        """Is it for this server, and of its issuer?

        A file under another's name would send a token to a server that it is not for; one of an issuer that the
        operator has replaced would go on with that one.
        """
        named = self.issuer.rstrip("/")
        return credential.url == self._url and named in ("", credential.issuer.rstrip("/"))

    async def refresh(self) -> None:
        """Bring the file up to date with what other replicas have. Raises SignInFailed."""
        if self._shared is None:
            return
        newer = await self._shared.newer(self.name, self.read())
        if newer is not None and newer.is_sound and self._is_ours(newer):
            _write(self._home, f"{self.name}.json", msgspec.json.encode(newer))

    def write(self, credential: Credential) -> None:
        """Replace the file in one step. Raises SignInFailed."""
        if self._shared is not None:
            self._shared.publish(self.name, credential)
        _write(self._home, f"{self.name}.json", msgspec.json.encode(credential))

    def delete(self) -> bool:
        """Remove the file; was there one? Raises SignInFailed."""
        try:
            os.unlink(self._path)  # noqa: PTH108
        except FileNotFoundError:
            return False
        except OSError as error:
            raise _not_kept(error) from None
        return True

    @asynccontextmanager
    async def locked(self) -> AsyncGenerator[None]:
        """Hold the lock of this credential, against all processes. A crash releases it."""
        try:
            folder = private_folder(self._home, CREDENTIALS)
            path = os.path.join(folder, f"{self.name}.lock")  # noqa: PTH118
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise _not_kept(error) from None
        try:
            await _lock(fd)
            if self._shared is None:
                yield
            else:
                async with self._shared.lease(self.name):
                    await self.refresh()
                    yield
        finally:
            os.close(fd)


def _read(home: str, name: str, type: type[Kept]) -> Kept | None:
    path = os.path.join(home, CREDENTIALS, name)  # noqa: PTH118 - text in, text out
    try:
        require_private(home, CREDENTIALS)
        return msgspec.json.decode(read_own(path, LARGEST), type=type)
    except NotPrivate as error:
        log.warning("a sign-in is not used: %s", error)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    return None


def _write(home: str, name: str, data: bytes) -> None:
    try:
        folder = private_folder(home, CREDENTIALS)
        write_whole(os.path.join(folder, name), data)  # noqa: PTH118
    except OSError as error:
        raise _not_kept(error) from None


def _not_kept(error: OSError) -> SignInFailed:
    reason = error.strerror or str(error)
    where = f" ({error.filename})" if error.filename else ""
    return SignInFailed("WB-AUTH-011", f"the sign-in can't be kept: {reason}{where}")


async def _lock(fd: int) -> None:
    import fcntl  # not on Windows

    end = time.monotonic() + PATIENCE
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        if time.monotonic() > end:
            raise SignInFailed(
                "WB-AUTH-011",
                f"another process has used the sign-in for more than {PATIENCE:g} s: end it, or try again later",
            )
        await asyncio.sleep(POLL)
