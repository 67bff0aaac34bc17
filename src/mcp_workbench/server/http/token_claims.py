"""What an access token says, in a JWT or in the issuer's own words, and whether it holds here. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

import msgspec

from mcp_workbench.core.spec import ALL_TOOLBOXES, IssuerSettings

SKEW = 30.0  # seconds by which two clocks may differ
LATEST = 1e15  # seconds; a claim beyond is no time, and may be no float
LONGEST_SUBJECT = 255  # characters; the limit of OpenID Connect
_SUBJECT = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")

Claims = dict[str, Any]

# Why a token is refused; the sender is told, so none quotes a value.
WRONG_ISSUER = "it has another issuer"
WRONG_AUDIENCE = "it is for another server"
NO_EXPIRY = "it never expires"
EXPIRED = "it has expired"
NOT_YET = "it is not valid yet"
NO_SUBJECT = "it does not say who it is for"
BOUND = "it is bound to a key, and came as a bearer token"
MALFORMED = "it is malformed"


class TokenRefused(Exception):
    """The token does not hold here; the message says why."""


class TokenFacts(msgspec.Struct, frozen=True):
    """What follows from a valid token."""

    subject: str
    audiences: tuple[str, ...]
    toolboxes: tuple[str, ...] | None  # that it opens; None is all
    until: float  # seconds since the epoch; later it has to be checked again


def token_facts(
    claims: Claims, settings: IssuerSettings, now: float, longest: float, *, signed: bool
) -> TokenFacts:
    """Check what a token says; the facts hold for `longest` seconds at most. Raises TokenRefused.

    A JWT (`signed`) has to name its issuer and its end. The answer to an introspection comes from the
    issuer, which may leave out both.
    """
    if claims.get("iss", None if signed else settings.issuer) != settings.issuer:
        raise TokenRefused(WRONG_ISSUER)
    until = min(_end(claims, now, signed=signed), now + longest)
    audiences = tuple(_texts(claims.get("aud")))
    if not audiences:
        raise TokenRefused(WRONG_AUDIENCE)
    if claims.get("cnf") is not None:
        raise TokenRefused(BOUND)
    subject = claims.get("sub")
    if not _is_subject(subject):
        raise TokenRefused(NO_SUBJECT)
    return TokenFacts(cast("str", subject), audiences, _opened(claims, settings), until)


def _end(claims: Claims, now: float, *, signed: bool) -> float:
    """When the token ends; it has begun and not ended yet."""
    for name in ("nbf", "iat"):
        begin = claims.get(name)
        if begin is not None and _time(begin) > now + SKEW:
            raise TokenRefused(NOT_YET)
    end = claims.get("exp")
    if end is None:
        if signed:
            raise TokenRefused(NO_EXPIRY)
        return float("inf")
    if _time(end) + SKEW <= now:
        raise TokenRefused(EXPIRED)
    return _time(end) + SKEW


def _time(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > LATEST:
        raise TokenRefused(MALFORMED)
    return value


def _is_subject(value: Any) -> bool:
    return (
        isinstance(value, str)
        and len(value) <= LONGEST_SUBJECT
        and _SUBJECT.fullmatch(value) is not None
    )


# Grants


def _opened(claims: Claims, settings: IssuerSettings) -> tuple[str, ...] | None:
    """The toolboxes that the configuration grants to these claims; what it does not name grants nothing."""
    opened = set(settings.toolboxes)
    scopes = set(_scopes(claims))
    for scope, boxes in settings.scopes:
        if scope in scopes:
            opened.update(boxes)
    for grant in settings.claims:
        if grant.value in _texts(_at(claims, grant.claim)):
            opened.update(grant.toolboxes)
    return None if ALL_TOOLBOXES in opened else tuple(sorted(opened))


def _scopes(claims: Claims) -> Iterator[str]:
    """`scope` is the standard's word; some issuers say `scp`, or write a list."""
    for name in ("scope", "scp"):
        for text in _texts(claims.get(name)):
            yield from text.split()


def _at(claims: Claims, name: str) -> Any:
    """The claim of this name; with dots, also one inside objects, as in `realm_access.roles`."""
    if name in claims:
        return claims[name]
    value: Any = claims
    for part in name.split("."):
        if not isinstance(value, dict):
            return None
        value = cast("Claims", value).get(part)
    return value


def _texts(value: Any) -> list[str]:
    """A string as a list of one, the strings of a list, and nothing of anything else."""
    if isinstance(value, str):
        return [value]
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [item for item in items if isinstance(item, str)]
