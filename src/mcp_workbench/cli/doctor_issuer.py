"""`doctor`: whether the issuer of `http.auth` answers, and has keys that we can use."""

from __future__ import annotations

import os
from collections.abc import Iterator

from mcp_workbench.cli.doctor_checks import CheckResult, problem_result
from mcp_workbench.core.errors import ConfigError, Problem
from mcp_workbench.core.spec import IssuerSettings, Snapshot

SUBJECT = "sign-in"
UNSET = "WB-CONF-021"
UNREACHED = "WB-CONN-106"


def check_issuer(snapshot: Snapshot) -> Iterator[CheckResult]:
    """Checks the issuer as the port would use it; a variable that is not set was reported before."""
    if snapshot.http.auth is None:
        return
    from mcp_workbench.config.http_auth import resolve_auth
    from mcp_workbench.config.http_settings import with_http_secrets

    problems: list[Problem] = []
    try:
        environ = with_http_secrets(snapshot, os.environ)
    except ConfigError as error:
        yield from (problem_result(p, snapshot.origin, SUBJECT) for p in error.problems)
        return
    settings = resolve_auth(snapshot.http.auth, environ, problems)
    yield from (
        problem_result(problem, snapshot.origin, SUBJECT)
        for problem in problems
        if problem.code != UNSET
    )
    if not problems:
        yield _asked(settings)


def _asked(settings: IssuerSettings) -> CheckResult:
    from mcp_workbench.app import run_interruptible  # the event loop, and cryptography
    from mcp_workbench.server.http.issuer import IssuerUnavailable
    from mcp_workbench.server.http.signing_keys import read_keys

    try:
        count = len(read_keys(run_interruptible(_keys(settings))))
    except (IssuerUnavailable, ValueError) as error:
        message = f"the keys of {settings.issuer} can't be read: {error}"
        fix = "compare http.auth with the issuer's documentation, and see that it can be reached"
        return CheckResult("bad", SUBJECT, message, fix, UNREACHED)
    if not count:
        message = f"{settings.issuer} has no key that signs in a way we accept"
        fix = "let it sign with RSA, an elliptic curve or EdDSA, and a 'kid'"
        return CheckResult("bad", SUBJECT, message, fix, UNREACHED)
    keys = "1 key" if count == 1 else f"{count} keys"
    return CheckResult("good", SUBJECT, f"{settings.issuer} answers, with {keys}")


async def _keys(settings: IssuerSettings) -> bytes:
    from mcp_workbench.server.http.issuer import Issuer

    issuer = Issuer(settings, os.environ)
    try:
        return await issuer.keys()
    finally:
        issuer.close()
