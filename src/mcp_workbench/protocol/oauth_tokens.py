"""Requests to an authorization server's token endpoint, and what it answers. Nothing is sent here."""

from __future__ import annotations

from base64 import b64decode, b64encode, urlsafe_b64decode
from collections.abc import Iterable, Mapping
from urllib.parse import parse_qsl, quote, unquote, urlencode

import msgspec

from mcp_workbench.protocol.oauth import (
    DEVICE_GRANT,
    AuthorizationRequest,
    OAuthClient,
    SignInFailed,
    read_document,
    shown,
)
from mcp_workbench.transport.json_text import too_deep

ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"  # of `private_key_jwt`
LONGEST_LIFETIME = 10 * 365 * 86400.0  # seconds; more is treated as this

_SECRET_FIELDS = (
    *("code", "code_verifier", "refresh_token", "token", "client_secret"),
    *("device_code", "assertion", "client_assertion"),
)


class Tokens(msgspec.Struct, frozen=True):
    """What the token endpoint gave."""

    access_token: str
    refresh_token: str = ""
    expires_in: float | None = None
    scope: str = ""
    account: str = ""  # who signed in, as far as an ID token says so

    def __repr__(self) -> str:
        return "Tokens()"


class _TokenResponse(msgspec.Struct, frozen=True):
    access_token: str
    token_type: str = "bearer"  # noqa: S105 - a kind
    refresh_token: str | None = None
    expires_in: float | str | None = None
    scope: str | None = None
    id_token: str | None = None

    def __repr__(self) -> str:
        return "_TokenResponse()"


class _ErrorResponse(msgspec.Struct, frozen=True):
    error: str = ""
    error_description: str = ""


class _Claims(msgspec.Struct, frozen=True):
    email: str = ""
    preferred_username: str = ""
    name: str = ""
    sub: str = ""


def code_grant(request: AuthorizationRequest, code: str) -> dict[str, str]:
    return {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": request.redirect_uri,
        "code_verifier": request.verifier,
        "resource": request.resource,
    }


def refresh_grant(refresh_token: str, resource: str) -> dict[str, str]:
    return {"grant_type": "refresh_token", "refresh_token": refresh_token, "resource": resource}


def client_grant(scopes: Iterable[str], resource: str) -> dict[str, str]:
    scope = " ".join(scopes)
    body = {"grant_type": "client_credentials", "resource": resource}
    return {**body, "scope": scope} if scope else body


def token_request(client: OAuthClient, fields: Mapping[str, str]) -> tuple[bytes, bytes]:
    """The extra headers and the body of a request to the token endpoint, with the client's proof."""
    fields = dict(fields)
    headers = b""
    if client.method == "client_secret_basic":
        pair = f"{quote(client.id, safe='')}:{quote(client.secret, safe='')}"
        headers = b"Authorization: Basic %b\r\n" % b64encode(pair.encode())
    else:
        fields["client_id"] = client.id
    if client.method == "client_secret_post":
        fields["client_secret"] = client.secret
    return headers, urlencode(fields).encode()


def secrets_in(headers: bytes, body: bytes) -> dict[str, str]:
    """The secrets of a request to the token endpoint: a server may repeat them in its error."""
    secrets = {
        value: name.replace("_", " ")
        for name, value in parse_qsl(body.decode("latin-1"))
        if name in _SECRET_FIELDS
    }
    _, _, basic = headers.decode("latin-1").partition("Basic ")
    if basic:
        pair = b64decode(basic.strip()).decode()
        secret = pair.partition(":")[2]
        secrets |= dict.fromkeys((basic.strip(), pair, secret, unquote(secret)), "client secret")
    return secrets


def read_tokens(body: bytes, source: str) -> Tokens:
    """The tokens of a response. Raises SignInFailed."""
    given = read_document(body, _TokenResponse, source)
    if given.token_type.lower() != "bearer" or not header_safe(given.access_token):
        raise SignInFailed(
            "WB-AUTH-005",
            f"{source} gave a token that is no bearer token: report it to whoever runs the server",
        )
    return Tokens(
        given.access_token,
        given.refresh_token or "",
        _lifetime(given.expires_in),
        given.scope or "",
        _account(given.id_token or ""),
    )


def read_error(body: bytes) -> tuple[str, str]:
    """The code and the description of an error response; empty where it is none."""
    try:
        error = msgspec.json.decode(body, type=_ErrorResponse)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "", ""
    return shown(error.error) if error.error else "", shown(
        error.error_description
    ) if error.error_description else ""


def header_safe(token: str) -> bool:
    """Can this stand in a header?"""
    return bool(token) and all("!" <= c <= "~" for c in token)


def _lifetime(seconds: float | str | None) -> float | None:
    try:
        value = None if seconds is None else float(seconds)
    except ValueError:
        return None
    return None if value is None or not value >= 0 else min(value, LONGEST_LIFETIME)


def _account(id_token: str) -> str:
    """Who signed in, for people to read. It came from the token endpoint itself; nothing is decided by it."""
    try:
        payload = id_token.split(".")[1]
        text = urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
        claims = msgspec.json.decode(text, type=_Claims)
    except (IndexError, ValueError, msgspec.DecodeError, RecursionError):
        return ""
    if too_deep(text):
        return ""
    name = claims.email or claims.preferred_username or claims.name or claims.sub
    return "".join(c for c in name[:100] if c.isprintable())


# Device authorization (RFC 8628)


class DeviceCode(msgspec.Struct, frozen=True):
    """What a person needs to sign in on another device."""

    device_code: str
    user_code: str
    verification_uri: str
    verification_uri_complete: str = ""
    expires_in: float = 600.0
    interval: float = 5.0

    def __repr__(self) -> str:
        return "DeviceCode()"


def read_device_code(body: bytes, source: str) -> DeviceCode:
    return read_document(body, DeviceCode, source)


def device_grant(code: DeviceCode, resource: str) -> dict[str, str]:
    return {"grant_type": DEVICE_GRANT, "device_code": code.device_code, "resource": resource}
