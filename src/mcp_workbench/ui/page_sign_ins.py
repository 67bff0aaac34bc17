"""Sign-ins that a person begins at the page: as `mcp-workbench login`, where the page is served."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Literal

import msgspec

from mcp_workbench.core.errors import InvalidCall, NotFound, WorkbenchError
from mcp_workbench.core.spec import HttpEndpoint, ServerSpec
from mcp_workbench.gateway.reload import restart
from mcp_workbench.server.http.access import is_loopback
from mcp_workbench.transport.http.urls import parse_url

if TYPE_CHECKING:
    from mcp_workbench.core.spec import ServerAddress
    from mcp_workbench.gateway.sign_ins import OpenSignIn
    from mcp_workbench.gateway.workbench import Gateway

SignInState = Literal["waiting", "done", "failed"]


class PageSignIn(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a sign-in is. It has nothing that a person may not see: no code, no token."""

    state: SignInState
    url: str = ""  # of the authorization server, for a browser on this machine
    issuer: str = ""
    reason: str = ""  # why it failed


class SignInRefused(WorkbenchError):
    """The sign-in could not be begun; `code` is one that `explain` knows."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message, hint=f"mcp-workbench explain {code}")
        self.code = code


class PageSignIns:
    """The last sign-in at each server that was begun at the page."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._known: dict[ServerAddress, PageSignIn] = {}

    def find(self, address: ServerAddress) -> PageSignIn | None:
        return self._known.get(address)

    async def begin(self, address: ServerAddress) -> PageSignIn:
        """Ask the server where to sign in, and wait for the person. Raises NotFound, SignInRefused.

        The address that a person opens comes from the server's entry and from what its authorization server
        publishes. Nothing of it comes from the page.
        """
        from mcp_workbench.protocol.oauth import SignInFailed  # few servers want a sign-in

        spec = self._gateway.view.spec(address)
        if not can_sign_in(spec):
            raise InvalidCall("nobody can sign in to this server at the page")
        try:
            opened, is_new = await self._gateway.view.begin_sign_in(address)
        except SignInFailed as error:
            raise SignInRefused(error.code, str(error)) from None
        if not is_openable(opened.address):
            raise SignInRefused("WB-AUTH-005", "the address to sign in is neither https nor local")
        known = self._known.get(address)
        if is_new or known is None or known.url != opened.address:
            self._forget_removed()
            known = PageSignIn("waiting", opened.address, opened.issuer)
            self._known[address] = known
            self._gateway.pool.start(self._outcome(address, opened), f"page: sign in to {address}")
        return known

    async def _outcome(self, address: ServerAddress, opened: OpenSignIn) -> None:
        from mcp_workbench.protocol.oauth import SignInFailed

        try:
            await opened.done()
        except SignInFailed as error:
            self._known[address] = PageSignIn("failed", reason=str(error))
            return
        self._known[address] = PageSignIn("done", issuer=opened.issuer)
        with suppress(NotFound):  # it was removed meanwhile
            restart(self._gateway, address)

    def _forget_removed(self) -> None:
        find = self._gateway.snapshot.find
        self._known = {a: known for a, known in self._known.items() if find(a) is not None}


def can_sign_in(spec: ServerSpec) -> bool:
    """Whether the user of this machine can sign in to this server with a browser."""
    target = spec.target
    if not isinstance(target, HttpEndpoint) or spec.scope == "principal":
        return False
    return target.auth.grant != "client_credentials"  # it needs no person


def is_openable(url: str) -> bool:
    """Whether a browser may be sent there: https, or a server of this machine."""
    address = parse_url(url)
    return address.scheme == "https" or is_loopback(address.host)
