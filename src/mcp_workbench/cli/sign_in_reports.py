"""What commands show about sign-ins: who is signed in where, and until when."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from mcp_workbench.cli.terminal import glyph, plain, say
from mcp_workbench.config.expand import Unexpandable, expand_target
from mcp_workbench.config.state_home import has_credentials
from mcp_workbench.core.spec import HttpEndpoint, ServerAddress, Snapshot

if TYPE_CHECKING:
    from mcp_workbench.upstream.oauth.store import Credential

NEEDS_LOGIN = "needs login"  # the beginning of the reason why a server is not available
_COMMAND = re.compile(r"`(mcp-workbench login [^`]+)`")


def code_and_fix(reason: str, address: ServerAddress) -> tuple[str, str]:
    """The code, and the command to run next, for a server that is not available for this reason."""
    code = "WB-AUTH-012" if reason.startswith(NEEDS_LOGIN) else "WB-CONN-101"
    command = _COMMAND.search(reason) if reason.startswith(NEEDS_LOGIN) else None
    return code, command[1] if command else f"mcp-workbench doctor {address}"


class SignedIn(msgspec.Struct, frozen=True, rename="camel"):
    """One sign-in, as `--json` shows it."""

    server: str
    issuer: str
    account: str = ""
    expires_at: float | None = None  # of the access token
    refreshes: bool = False
    ended: str = ""  # why a new sign-in is needed


def sign_ins(snapshot: Snapshot, environ: Mapping[str, str] = os.environ) -> list[SignedIn]:
    """The sign-ins at the servers of this configuration. Nothing is asked, nothing refreshed."""
    if not has_credentials(environ):
        return []
    return [document(address, credential) for address, credential in _stored(snapshot, environ)]


def _stored(
    snapshot: Snapshot, environ: Mapping[str, str]
) -> Iterator[tuple[ServerAddress, Credential]]:
    from mcp_workbench.upstream.oauth.sign_in import store_of  # only where somebody has signed in

    for spec in (s for box in snapshot.toolboxes.values() for s in box.servers.values()):
        try:
            target = expand_target(spec, environ)
        except Unexpandable:
            continue
        if isinstance(target, HttpEndpoint):
            credential = store_of(target, environ, "").read()
            if credential is not None:
                yield spec.address, credential


def document(address: ServerAddress, credential: Credential) -> SignedIn:
    return SignedIn(
        str(address),
        credential.issuer,
        credential.account,
        credential.expires_at or None,
        bool(credential.refresh_token),
        credential.ended,
    )


def describe(signed_in: SignedIn) -> str:
    """`signed in as alice at https://…, until …`."""
    if signed_in.ended:
        return f"the sign-in at {plain(signed_in.issuer)} has ended: {plain(signed_in.ended)}"
    who = f" as {plain(signed_in.account)}" if signed_in.account else ""
    return f"signed in{who} at {plain(signed_in.issuer)}, {_lasts(signed_in)}"


def _lasts(signed_in: SignedIn) -> str:
    if signed_in.expires_at is None:
        return "until the server ends it"
    moment = time.strftime("%Y-%m-%d %H:%M", time.localtime(signed_in.expires_at))
    return f"until {moment}, then refreshed" if signed_in.refreshes else f"until {moment}"


def is_over(signed_in: SignedIn) -> bool:
    """Is a new sign-in needed?"""
    expired = signed_in.expires_at is not None and signed_in.expires_at < time.time()
    return bool(signed_in.ended) or (expired and not signed_in.refreshes)


def print_sign_ins(found: list[SignedIn]) -> None:
    for one in found:
        over = is_over(one)
        again = f"; mcp-workbench login {one.server}" if over else ""
        say(f"{glyph('bad' if over else 'good')} {one.server}: {describe(one)}{again}")
