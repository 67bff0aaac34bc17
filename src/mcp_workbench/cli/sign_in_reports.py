"""What commands show about sign-ins: who is signed in where, and until when."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from mcp_workbench.cli.terminal import glyph, plain, say
from mcp_workbench.config.expand import Unexpandable, expand_without_secrets
from mcp_workbench.config.state_home import has_credentials, state_home
from mcp_workbench.core.spec import HttpEndpoint, ServerAddress, Snapshot

if TYPE_CHECKING:
    from mcp_workbench.upstream.oauth.store import Credential

NEEDS_LOGIN = "needs login"  # the beginning of the reason why a server is not available
_SANDBOX = re.compile(r" \((WB-BOX-\d+); fix: ([^()]*)\)")
_COMMAND = re.compile(r"`(mcp-workbench login [^`]+)`")


def code_and_fix(reason: str, address: ServerAddress) -> tuple[str, str]:
    """The code, and the command to run next, for a server that is not available for this reason."""
    if reason.startswith("quarantined"):
        return "WB-LOCK-002", f"mcp-workbench lock diff {address}"
    if reason.startswith("sandbox: ") and (match := _SANDBOX.search(reason)):
        return match[1], match[2]
    code = "WB-AUTH-012" if reason.startswith(NEEDS_LOGIN) else "WB-CONN-101"
    command = _COMMAND.search(reason) if reason.startswith(NEEDS_LOGIN) else None
    return code, command[1] if command else f"mcp-workbench doctor {address}"


_LOGIN = re.compile(r"`(mcp-workbench login [^`]+)`")


class SignedIn(msgspec.Struct, frozen=True, rename="camel"):
    """One sign-in, as `--json` shows it."""

    server: str
    issuer: str
    account: str = ""
    expires_at: float | None = None  # of the access token
    refreshes: bool = False
    ended: str = ""  # why a new sign-in is needed
    principal: str = ""  # whose it is (scope: principal); empty: yours


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
            target = expand_without_secrets(spec, environ)
        except Unexpandable:
            continue
        if isinstance(target, HttpEndpoint):
            credential = store_of(target, environ, "").read()
            if credential is not None:
                yield spec.address, credential
            if spec.scope == "principal":
                yield from ((spec.address, other) for other in _of_principals(target, environ))


def _of_principals(target: HttpEndpoint, environ: Mapping[str, str]) -> list[Credential]:
    """The credentials of other people for this entry, by name."""
    from mcp_workbench.upstream.oauth.sign_in import store_of
    from mcp_workbench.upstream.oauth.store import of_principals

    names = {one.principal for one in of_principals(state_home(environ)) if one.url == target.url}
    stored = (store_of(target, environ, name).read() for name in sorted(names))
    return [credential for credential in stored if credential is not None]


def document(address: ServerAddress, credential: Credential) -> SignedIn:
    return SignedIn(
        str(address),
        credential.issuer,
        credential.account,
        credential.expires_at or None,
        bool(credential.refresh_token),
        credential.ended,
        credential.principal,
    )


def describe(signed_in: SignedIn) -> str:
    """`signed in as alice at https://…, until …`."""
    if signed_in.ended:
        whose = f" of {plain(signed_in.principal)}" if signed_in.principal else ""
        return (
            f"the sign-in{whose} at {plain(signed_in.issuer)} has ended: {plain(signed_in.ended)}"
        )
    who = f" as {plain(signed_in.account)}" if signed_in.account else ""
    who = f" for {plain(signed_in.principal)}{who}" if signed_in.principal else who
    return f"signed in{who} at {plain(signed_in.issuer)}, {_lasts(signed_in)}"


def _lasts(signed_in: SignedIn) -> str:
    if signed_in.expires_at is None:
        return "until the server ends it"
    moment = time.strftime("%Y-%m-%d %H:%M", time.localtime(signed_in.expires_at))
    return f"until {moment}, then refreshed" if signed_in.refreshes else f"until {moment}"


def login_command(reason: str) -> str:
    """The command that makes this server available; empty if its reason is another than a missing login."""
    found = _LOGIN.search(reason) if reason.startswith("needs login") else None
    return found[1] if found else ""


def is_over(signed_in: SignedIn) -> bool:
    """Is a new sign-in needed?"""
    expired = signed_in.expires_at is not None and signed_in.expires_at < time.time()
    return bool(signed_in.ended) or (expired and not signed_in.refreshes)


def renewal_command(signed_in: SignedIn) -> str:
    from shlex import quote  # an issuer may put anything into the name

    name = plain(signed_in.principal)
    return f"mcp-workbench login {signed_in.server}" + (
        f" --principal {quote(name)}" if name else ""
    )


def print_sign_ins(found: list[SignedIn]) -> None:
    for one in found:
        over = is_over(one)
        again = f"; {renewal_command(one)}" if over else ""
        say(f"{glyph('bad' if over else 'good')} {one.server}: {describe(one)}{again}")
