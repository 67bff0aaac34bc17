"""The authorization of the requests to one server: the stored token, kept fresh.

A connection has one `Authorization`. `line` is the header for the next request. A token that ends soon is
refreshed in the background, while calls go on with it; only one that has ended makes them wait. The lock of
the store makes sure that one process refreshes, and the others take what it wrote.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Mapping

import msgspec

from mcp_workbench.core.spec import HttpEndpoint
from mcp_workbench.protocol import oauth_tokens
from mcp_workbench.protocol.oauth import Challenge, SignInFailed
from mcp_workbench.transport.tasks import TaskScope, completed
from mcp_workbench.upstream.oauth.sign_in import (
    FINAL,
    FORM,
    SignIn,
    outgoing_of,
    read_reply,
    store_of,
    token_request,
    with_tokens,
)
from mcp_workbench.upstream.oauth.store import Credential

log = logging.getLogger(__name__)

MOST_MASKED = 16  # tokens that are masked in messages: the last ones


class Authorization:
    """Gives requests their token, and renews it."""

    def __init__(
        self,
        target: HttpEndpoint,
        environ: Mapping[str, str],
        secrets: dict[str, str],
        principal: str = "",
    ) -> None:
        self.line = b""  # the header, complete
        self.problem = ""  # why there is none, where there was one
        self._target = target
        self._environ = environ
        self._principal = principal
        self._secrets = secrets  # masked in every message
        self._masked: deque[str] = deque()  # those of ours, oldest first
        self._store = store_of(target, environ, principal)
        self._outgoing = outgoing_of(target, environ)
        self._credential: Credential | None = None
        self._refreshing: asyncio.Task[None] | None = None  # in the background
        self._turn = asyncio.Lock()  # of those in this process that need a new token
        self._failure = SignInFailed("", "")  # of the last refresh that failed,
        self._failed_at = 0.0  # at this time
        self._due_at = 0.0  # when it should be refreshed; 0: not known
        self.adopt()

    # State

    @property
    def is_fresh(self) -> bool:
        """Can the next request be sent without a thought?"""
        return not self._due_at or time.time() < self._due_at

    @property
    def signed_in(self) -> bool:
        return bool(self.line)

    def adopt(self) -> None:
        """Take the credential that is stored."""
        self._use(self._store.read())

    def _use(self, credential: Credential | None) -> None:
        self._credential = credential
        usable = credential is not None and credential.usable
        self.problem = credential.ended if credential is not None else ""
        if credential is None or not usable:
            self.line, self._due_at = b"", 0.0
            return
        self.line = b"Authorization: Bearer %b\r\n" % credential.access_token.encode("latin-1")
        self._due_at = credential.due_at
        self._mask(credential)

    def _mask(self, credential: Credential) -> None:
        """Mask these tokens in messages, and for a while those before: they may still be printed."""
        for secret, name in (
            (credential.access_token, "access token"),
            (credential.refresh_token, "refresh token"),
            (credential.client.secret, "client secret"),
        ):
            if secret and secret not in self._secrets:
                self._secrets[secret] = name
                self._masked.append(secret)
        while len(self._masked) > MOST_MASKED:
            self._secrets.pop(self._masked.popleft(), None)

    # Before a request

    async def prepare(self, scope: TaskScope | None) -> None:
        """Make the token usable: wait for a new one if it has ended, renew it meanwhile if it ends soon."""
        if self.is_fresh:
            return
        credential = self._credential
        if credential is None or not credential.can_refresh(self._machine):
            return  # the server decides whether it is still good
        if credential.is_expired(time.time()) or scope is None:
            await self._refresh()
        elif self._refreshing is None or self._refreshing.done():
            self._refreshing = scope.start(self._refresh_quietly(), "refresh the sign-in")

    async def _refresh_quietly(self) -> None:
        try:
            await self._refresh()
        except SignInFailed as error:
            log.info("the sign-in was not refreshed: %s", error)
            self._due_at = time.time() + 1.0  # tried again soon; the old token is good

    async def _refresh(self, *, refused: bool = False) -> bool:
        """Get a new token. Whoever waits for it meanwhile shares it, or its failure: see `_renew`."""
        held, began = self._credential, time.monotonic()
        async with self._turn:
            if self._credential is not held:
                return bool(self.line)
            if self._failed_at > began:
                raise self._failure
            try:
                return await self._renew(refused=refused)
            except SignInFailed as error:
                self._failure, self._failed_at = error, time.monotonic()
                raise

    @property
    def _machine(self) -> bool:
        return self._target.auth.grant == "client_credentials"

    # After a refusal

    async def refused(self, status: int, challenge: Challenge, line: bytes | None) -> bool:
        """The server refused a request that was sent with this header; is there a better one now?"""
        if status == 403 or challenge.error == "insufficient_scope":
            await self._store.refresh()
            stored = self._store.read()
            self._use(stored)  # somebody may have signed in again, with more scopes
            return bool(self.line) and self.line != line
        if self.line and self.line != line:
            return True  # it was refreshed meanwhile
        if self._credential is None or not self._credential.usable:
            await self._store.refresh()
            self.adopt()
            if self.line and self.line != line:
                return True
        if self._credential is None and not self._machine:
            return False
        if self._credential is not None and self._credential.was_just_refused(time.time()):
            return False  # the next would be refused like this one, and cost the issuer a request
        return await self._refresh(refused=True)

    async def accepted(self, line: bytes | None) -> None:
        """The token that came after a refusal was good: when it is refused one day, another is asked for at once."""
        async with self._store.locked():
            stored, held = self._store.read(), self._credential
            if stored is None or held is None or line != self.line:
                return
            if stored.access_token != held.access_token:
                return
            if stored.refused_at:  # otherwise another process has noted it
                stored = msgspec.structs.replace(stored, refused_at=0.0)
                self._store.write(stored)
            self._use(stored)

    async def _renew(self, *, refused: bool = False) -> bool:
        """Refresh the token, unless another process did. Raises SignInFailed if that may pass.

        A refresh token is good for one request: once that is sent, its response must be kept, whoever
        was waiting for it.
        """
        held = self._credential
        refused_at = time.time() if refused else 0.0
        async with self._store.locked():
            stored = self._store.read()
            if stored is not None and stored.usable and _is_newer(stored, held):
                self._use(stored)
                return True
            if self._machine:
                pass
            elif stored is None or not stored.usable or not stored.refresh_token:
                self._use(stored)
                return False
            else:
                return await completed(self._exchange(stored, refused_at))
        machine = SignIn(self._target, self._environ, self._principal)
        machine.refused_at = refused_at
        self._use(await machine.for_machine())
        return True

    async def _exchange(self, stored: Credential, refused_at: float) -> bool:
        fields = oauth_tokens.refresh_grant(stored.refresh_token, stored.resource)
        headers, body = await token_request(self._target.auth, stored.client, stored.issuer, fields)
        reply = await self._outgoing.post(stored.token_endpoint, headers, body, FORM)
        try:
            tokens = read_reply(reply, stored.token_endpoint)
        except SignInFailed as error:
            if error.code not in FINAL:
                raise
            log.warning("the sign-in at %s has ended: %s", stored.issuer, error)
            ended = msgspec.structs.replace(
                stored, access_token="", refresh_token="", expires_at=0.0, ended=str(error)
            )
            self._store.write(ended)
            self._use(ended)
            return False
        credential = with_tokens(stored, tokens)
        if refused_at:
            credential = msgspec.structs.replace(credential, refused_at=refused_at)
        self._use(credential)  # first: it is good even where it can't be kept
        self._store.write(credential)
        return True


def _is_newer(stored: Credential, held: Credential | None) -> bool:
    if stored.is_expired(time.time()):
        return False
    return held is None or stored.access_token != held.access_token
