"""The keys of an issuer, and the signatures of its tokens. Loads cryptography."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from typing import Any, cast

import jwt
import msgspec
from jwt.algorithms import get_default_algorithms

from mcp_workbench.server.http.token_claims import MALFORMED, Claims, TokenRefused

MOST_KEYS = 64
LEAST_RSA_BITS = 2048
MOST_RSA_BITS = 8192  # a larger one takes milliseconds for each signature
# By the type of a key, or its curve. Nothing symmetric: there, whoever can check can sign.
ALGORITHMS = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "P-256": ("ES256",),
    "P-384": ("ES384",),
    "P-521": ("ES512",),
    "Ed25519": ("EdDSA",),
}
# Of access tokens; other kinds are made for other purposes (RFC 8725, 3.11).
TYPES = ("jwt", "at+jwt", "application/at+jwt", "application/jwt")

UNKNOWN_KEY = "its key is not one of the issuer's"
WRONG_ALGORITHM = "it is signed in a way that is not accepted"
WRONG_SIGNATURE = "its signature is wrong"
WRONG_TYPE = "it is not an access token"


class JwtHeader(msgspec.Struct, frozen=True):
    """The protected header of a JWT."""

    alg: str = ""
    kid: str = ""
    typ: str = "jwt"
    crit: Any = None


class _Jwk(msgspec.Struct, frozen=True):
    kty: str = ""
    crv: str = ""
    kid: str = ""
    use: str = "sig"
    alg: str = ""


class _JwkSet(msgspec.Struct, frozen=True):
    keys: list[dict[str, Any]]


class SigningKey(msgspec.Struct, frozen=True):
    """A public key, and what it may be used for."""

    key: Any
    algorithms: tuple[str, ...]


_read_header = msgspec.json.Decoder(JwtHeader).decode
_read_claims = msgspec.json.Decoder(dict[str, Any]).decode
_signatures = jwt.PyJWS(algorithms=[alg for algs in ALGORITHMS.values() for alg in algs])


def read_header(token: str) -> JwtHeader | None:
    """The header of a token that has the form of a signed JWT; None if it has another."""
    parts = token.split(".")
    if len(parts) != len(("header", "claims", "signature")):
        return None
    start = parts[0]
    try:
        return _read_header(urlsafe_b64decode(start + "=" * (-len(start) % 4)))
    except (binascii.Error, ValueError, msgspec.DecodeError, RecursionError):
        return None


def read_keys(text: bytes) -> dict[str, tuple[SigningKey, ...]]:
    """The usable keys of a JWK set by `kid`. Raises ValueError if it is none."""
    try:
        listed = msgspec.json.decode(text, type=_JwkSet).keys[:MOST_KEYS]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ValueError("not a set of keys") from None
    keys: dict[str, tuple[SigningKey, ...]] = {}
    for jwk in listed:
        for kid, key in _usable(jwk):
            keys[kid] = (*keys.get(kid, ()), key)
    return keys


def _usable(jwk: dict[str, Any]) -> Iterator[tuple[str, SigningKey]]:
    try:
        about = msgspec.convert(jwk, _Jwk)
    except msgspec.ValidationError:
        return
    kind = about.kty if about.kty == "RSA" else about.crv
    possible = ALGORITHMS.get(kind, ())
    algorithms = tuple(alg for alg in possible if about.alg in ("", alg))
    if not about.kid or about.use != "sig" or not algorithms:
        return
    public = {name: jwk[name] for name in ("kty", "crv", "n", "e", "x", "y") if name in jwk}
    try:
        key: Any = get_default_algorithms()[algorithms[0]].from_jwk(public)
    except (jwt.PyJWTError, ValueError, TypeError):
        return
    if kind != "RSA" or LEAST_RSA_BITS <= key.key_size <= MOST_RSA_BITS:
        yield about.kid, SigningKey(key, algorithms)


def check_header(header: JwtHeader) -> None:
    """Raise TokenRefused for a token that no key of ours could make good."""
    if header.typ.lower() not in TYPES or header.crit is not None:
        raise TokenRefused(WRONG_TYPE)
    if not any(header.alg in algorithms for algorithms in ALGORITHMS.values()):
        raise TokenRefused(WRONG_ALGORITHM)
    if not header.kid:
        raise TokenRefused(UNKNOWN_KEY)


def signed_claims(token: str, header: JwtHeader, keys: tuple[SigningKey, ...]) -> Claims:
    """The claims of a token that one of these keys has signed. Raises TokenRefused."""
    fitting = [signing.key for signing in keys if header.alg in signing.algorithms]
    if not fitting:
        raise TokenRefused(WRONG_ALGORITHM)
    for key in fitting:
        try:
            payload = cast("bytes", _signatures.decode(token, key, [header.alg]))
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            continue
        return _decoded(payload)
    raise TokenRefused(WRONG_SIGNATURE)


def _decoded(payload: bytes) -> Claims:
    try:
        return _read_claims(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise TokenRefused(MALFORMED) from None
