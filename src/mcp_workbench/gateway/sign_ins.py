"""Sign-ins that calls wait for: each has an address for one person, and is shared by all who need it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from mcp_workbench.config.expand import Unexpandable, expand_target
from mcp_workbench.core.spec import HttpEndpoint, ServerAddress, ServerSpec
from mcp_workbench.protocol.oauth import Challenge, SignInFailed, read_challenge
from mcp_workbench.upstream.oauth.sign_in import SignIn

if TYPE_CHECKING:
    from mcp_workbench.upstream.pool import ConnectionPool


class OpenSignIn:
    """One that waits for its person."""

    def __init__(self) -> None:
        self.url = ""
        self.issuer = ""
        self.failure: SignInFailed | None = None
        self.prepared = asyncio.Event()  # there is an address, or a failure
        self._ended = asyncio.Event()

    async def done(self) -> None:
        """Wait until the person has signed in. Raises SignInFailed."""
        await self._ended.wait()
        if self.failure is not None:
            raise self.failure

    def end(self) -> None:
        self.prepared.set()
        self._ended.set()


class SignIns:
    """The sign-ins of a gateway that are open."""

    def __init__(self, pool: ConnectionPool, environ: Mapping[str, str]) -> None:
        self._pool = pool
        self._environ = environ
        self._open: dict[tuple[ServerAddress, str], OpenSignIn] = {}

    async def begin(self, spec: ServerSpec, principal: str) -> tuple[OpenSignIn, bool]:
        """Return the open sign-in of this principal at this server, and whether it is new. Raises SignInFailed."""
        key = (spec.address, principal)
        known = self._open.get(key)
        is_new = known is None
        if known is None:
            sign_in = SignIn(self._target(spec), self._environ, principal, self._challenge(spec))
            known = self._open[key] = OpenSignIn()
            self._pool.start(self._run(key, sign_in, known), f"sign in to {spec.address}")
        await known.prepared.wait()
        if known.failure is not None:
            raise known.failure
        return known, is_new

    def _target(self, spec: ServerSpec) -> HttpEndpoint:
        try:
            target = expand_target(spec, self._environ)
        except Unexpandable as error:
            raise SignInFailed("WB-AUTH-001", error.message) from None
        if not isinstance(target, HttpEndpoint):
            raise SignInFailed("WB-AUTH-001", "only servers behind a URL have a login")
        return target

    def _challenge(self, spec: ServerSpec) -> Challenge | None:
        last = self._pool.last(spec.address)
        header = "" if last is None else last.conversation.login_challenge
        return read_challenge(header) if header else None

    async def _run(
        self, key: tuple[ServerAddress, str], sign_in: SignIn, opened: OpenSignIn
    ) -> None:
        complete = False
        try:
            async with sign_in.open() as pending:
                opened.url, opened.issuer = pending.url, pending.issuer
                opened.prepared.set()
                await pending.done()
                complete = True
        except SignInFailed as error:
            opened.failure = error
        finally:
            del self._open[key]
            if opened.failure is None and not complete:
                opened.failure = SignInFailed("WB-AUTH-007", "the workbench ended meanwhile")
            opened.end()
