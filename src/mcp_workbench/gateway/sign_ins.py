"""Sign-ins that calls wait for: each has an address for one person, and is shared by all who need it.

The local user's address is that of the authorization server, which sends the browser back to the loopback. The
address of another principal is a page of ours (`SignInLink`, served by `server/http/sign_in_pages.py`): whoever
opens it proves to be that principal first, and only the browser in which that happened may come back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Hashable
from typing import TYPE_CHECKING

from mcp_workbench.config.expand import Environment, Unexpandable, expand_target
from mcp_workbench.core.spec import SUBJECT, HttpEndpoint, ServerAddress, ServerSpec
from mcp_workbench.protocol.oauth import Challenge, SignInFailed, read_challenge, same
from mcp_workbench.upstream.oauth.redirect import Visits
from mcp_workbench.upstream.oauth.sign_in import SignIn

if TYPE_CHECKING:
    from mcp_workbench.upstream.pool import ConnectionPool

PAGES = "/sign-in/"  # the path of our pages on the HTTP port
CALLBACK = PAGES + "callback"
MOST_OF_ONE = 8  # links of one principal that are open
MOST_LINKS = 512  # of all
TRIES = 5  # to prove to be the principal of a link
ALPHABET = "BCDFGHJKLMNPQRSTVWXZ"  # of codes: no vowels, nothing that looks like a digit
CODE_LETTERS = 8

Key = tuple[ServerAddress, str, Hashable]  # server, principal, and the session of a link


class SignInLink:
    """A page of ours for one principal, server and session. It can be used once.

    `code` is shown to the person by the host that asks. A principal with a token enters that instead.
    """

    def __init__(self, origin: str, spec: ServerSpec) -> None:
        self.principal = spec.principal
        self.address = spec.address
        self.visits = Visits(origin + CALLBACK)
        self.state = ""  # of the request for consent
        self.browser = b""  # the digest of the cookie of the browser that was used
        self._origin = origin
        self.renew()

    def __repr__(self) -> str:
        return f"SignInLink({self.address})"

    def renew(self) -> None:
        """Make a new link: the old one was used."""
        import secrets

        self.id = secrets.token_urlsafe(24)
        self.code = "".join(secrets.choice(ALPHABET) for _ in range(CODE_LETTERS))
        self.used = False
        self.tries = TRIES

    @property
    def by_code(self) -> bool:
        """Is it proved by the code? The host of somebody who signed in at an issuer keeps the token to itself."""
        return self.principal.startswith(SUBJECT)

    @property
    def origin(self) -> str:
        return self._origin

    @property
    def page(self) -> str:
        return self._origin + PAGES + self.id

    @property
    def shown_code(self) -> str:
        half = CODE_LETTERS // 2
        return f"{self.code[:half]}-{self.code[half:]}"

    def is_code(self, text: str) -> bool:
        return same("".join(filter(str.isalpha, text.upper())), self.code)


class OpenSignIn:
    """One that waits for its person."""

    def __init__(self, link: SignInLink | None = None) -> None:
        self.url = ""  # of the authorization server
        self.issuer = ""
        self.link = link
        self.failure: SignInFailed | None = None
        self.prepared = asyncio.Event()  # there is an address, or a failure
        self.task: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()

    @property
    def address(self) -> str:
        """What the person opens."""
        return self.url if self.link is None else self.link.page

    @property
    def is_waiting(self) -> bool:
        """Is there something that a person can do?"""
        return bool(self.url) and not self._ended.is_set()

    async def done(self) -> None:
        """Wait until the person has signed in. Raises SignInFailed."""
        await self._ended.wait()
        if self.failure is not None:
            raise self.failure

    def end(self) -> None:
        self.prepared.set()
        self._ended.set()

    def complete(self) -> None:
        """The principal has signed in elsewhere."""
        self.end()
        if self.task is not None:
            self.task.cancel()

    def give_up(self, failure: SignInFailed) -> None:
        """End it without the person, unless it has ended."""
        if self._ended.is_set():
            return
        self.failure = self.failure or failure
        self.end()
        if self.task is not None:
            self.task.cancel()


class SignIns:
    """The sign-ins of a gateway that are open."""

    def __init__(self, pool: ConnectionPool, environ: Environment) -> None:
        self._pool = pool
        self._environ = environ
        self._open: dict[Key, OpenSignIn] = {}

    async def begin(
        self, spec: ServerSpec, origin: str = "", session: Hashable = None, *, again: bool = False
    ) -> tuple[OpenSignIn, bool]:
        """Return the open sign-in at this server, and whether it is new. Raises SignInFailed.

        `origin` is where the person reaches our pages, and `session` who asks, if a principal signs in for
        itself; `again`: it was given the address before.
        """
        key = (spec.address, spec.principal, session if spec.principal else None)
        known = self._open.get(key)
        is_new = known is None
        if known is None:
            known = self._opened(spec, origin, key)
        elif known.link is not None and known.link.used and not again:
            known.link.renew()
        await known.prepared.wait()
        if known.failure is not None:
            raise known.failure
        return known, is_new

    def _opened(self, spec: ServerSpec, origin: str, key: Key) -> OpenSignIn:
        link = None
        if spec.principal:
            self._require_room(spec.principal, origin)
            link = SignInLink(origin, spec)
        opened = self._open[key] = OpenSignIn(link)
        run = self._run(key, spec, opened)
        opened.task = self._pool.start(run, f"sign in to {spec.address}")
        return opened

    def _require_room(self, principal: str, origin: str) -> None:
        if not origin:
            raise SignInFailed("WB-AUTH-015", f"{principal} can sign in over HTTP only")
        own = sum(1 for _, owner, _ in self._open if owner == principal)
        if own >= MOST_OF_ONE or len(self._open) >= MOST_LINKS:
            raise SignInFailed(
                "WB-AUTH-015", "too many sign-ins are open: complete one, or wait ten minutes"
            )

    # Links

    def linked(self, matches: Callable[[SignInLink], bool]) -> OpenSignIn | None:
        """The open sign-in with such a link."""
        for opened in self._open.values():
            link = opened.link
            if link is not None and opened.is_waiting and matches(link):
                return opened
        return None

    def forget(self, session: Hashable) -> None:
        """The session has ended, and with it what it asked its person."""
        for key, opened in tuple(self._open.items()):
            if key[2] is not None and key[2] == session:
                self._give_up(key, opened, "the session that asked has ended")

    def reloaded(
        self, changed: Collection[ServerAddress], removed: Collection[ServerAddress]
    ) -> None:
        """The entries of these servers are others now, or gone: whoever signs in does so for the old ones."""
        for key, opened in tuple(self._open.items()):
            if key[0] in changed or key[0] in removed:
                what = "removed" if key[0] in removed else "changed"
                self._give_up(
                    key, opened, f"the entry of {key[0]} was {what} meanwhile: call again"
                )

    def _give_up(self, key: Key, opened: OpenSignIn, reason: str) -> None:
        """End a sign-in; whoever needs one from now on begins another."""
        self._open.pop(key, None)
        opened.give_up(SignInFailed("WB-AUTH-007", reason))

    # Of one sign-in

    async def _target(self, spec: ServerSpec) -> HttpEndpoint:
        try:
            await self._environ.prepare(spec)
            target = expand_target(spec, self._environ)
        except Unexpandable as error:
            raise SignInFailed("WB-AUTH-001", error.message) from None
        if not isinstance(target, HttpEndpoint):
            raise SignInFailed("WB-AUTH-001", "only servers behind a URL have a login")
        return target

    def _challenge(self, spec: ServerSpec) -> Challenge | None:
        last = self._pool.last(spec)
        header = "" if last is None else last.conversation.login_challenge
        return read_challenge(header) if header else None

    async def _run(self, key: Key, spec: ServerSpec, opened: OpenSignIn) -> None:
        link, complete = opened.link, False
        try:
            target = await self._target(spec)
            sign_in = SignIn(target, self._environ, spec.principal, self._challenge(spec))
            async with sign_in.open(None if link is None else link.visits) as pending:
                opened.url, opened.issuer = pending.url, pending.issuer
                if link is not None:
                    link.state = pending.state
                opened.prepared.set()
                await pending.done()
                complete = True
            self._end_others(key)
        except SignInFailed as error:
            opened.failure = error
        except asyncio.CancelledError:
            opened.give_up(SignInFailed("WB-AUTH-007", "the workbench ended meanwhile"))
            raise
        finally:
            if self._open.get(key) is opened:  # otherwise there may be another one by now
                del self._open[key]
            if opened.failure is None and not complete:
                opened.failure = SignInFailed("WB-AUTH-007", "the workbench ended meanwhile")
            opened.end()

    def _end_others(self, key: Key) -> None:
        """The principal has signed in: its other sessions need not ask for the same."""
        for other, opened in tuple(self._open.items()):
            if other != key and other[:2] == key[:2]:
                opened.complete()
