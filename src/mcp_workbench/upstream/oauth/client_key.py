"""The private key with which a client proves who it is (`private_key_jwt`, RFC 7523).

What signs is in the extra `auth`, and is loaded at the first signature. The key is read from its file each
time, so that a new one counts at once.
"""

from __future__ import annotations

import logging
import os
import secrets
import stat
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING

from mcp_workbench.config.file_access import read_plain
from mcp_workbench.config.http_auth import INSTALL, MODULES
from mcp_workbench.core.spec import AuthSettings
from mcp_workbench.protocol.oauth import OAuthClient, SignInFailed
from mcp_workbench.protocol.oauth_tokens import ASSERTION

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

log = logging.getLogger(__name__)

CODE = "WB-AUTH-020"
LIFETIME = 300  # seconds that an assertion is good for; the clocks of two machines may differ
LARGEST = 1 << 16  # bytes of a key file
_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")  # the first that the server accepts


def key_file(settings: AuthSettings) -> str:
    """The path of the key; one that is relative starts at the configuration file."""
    path = os.path.expanduser(settings.private_key)  # noqa: PTH111 - text in, text out
    return os.path.join(settings.folder, path)  # noqa: PTH118


def key_problem(settings: AuthSettings) -> tuple[str, str]:
    """What is wrong with the key, and what to do; empty if nothing is. It is read, and not used."""
    try:
        _algorithms(_load(key_file(settings)), key_file(settings))
    except SignInFailed as error:
        what, _, fix = str(error).partition(": ")
        return what, fix
    return _exposed(key_file(settings)), f"chmod 600 {key_file(settings)}"


def proof(settings: AuthSettings, client: OAuthClient, issuer: str) -> dict[str, str]:
    """The fields of a token request that prove who the client is. Raises SignInFailed."""
    if not settings.private_key:
        raise SignInFailed(
            CODE,
            "this sign-in was made with a private key, and 'auth' names none now: write its 'privateKey', or sign "
            "in again",
        )
    path = key_file(settings)
    key = _load(path)
    algorithm = _accepted(_algorithms(key, path), client, issuer)
    if exposed := _exposed(path):
        log.warning("%s: chmod 600 %s", exposed, path)
    import jwt

    now = int(time.time())
    claims = {
        "iss": client.id,
        "sub": client.id,
        "aud": issuer,  # not the token endpoint: an assertion for one server must not be good for another
        "iat": now,
        "exp": now + LIFETIME,
        "jti": secrets.token_urlsafe(24),
    }
    try:
        signed = jwt.encode(claims, key, algorithm)  # type: ignore[arg-type]
    except (jwt.PyJWTError, ValueError, TypeError) as error:
        raise _unusable(path, f"can't sign with {algorithm} ({error})") from None
    return {"client_assertion_type": ASSERTION, "client_assertion": signed}


def _load(path: str) -> PrivateKeyTypes:
    if any(find_spec(module) is None for module in MODULES):
        raise SignInFailed(
            CODE, f"the packages that sign with 'privateKey' are not installed: {INSTALL}"
        )
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        data = read_plain(path, LARGEST)
    except OSError as error:
        raise SignInFailed(
            CODE,
            f"the key file {path} can't be read ({error.strerror or error}): correct 'privateKey', or the rights "
            "of the file",
        ) from None
    try:
        return load_pem_private_key(data, password=None)
    except TypeError:
        raise _unusable(path, "has a passphrase, which nobody could enter here") from None
    except (ValueError, UnsupportedAlgorithm):
        raise _unusable(path, "holds no private key in PEM format") from None


def _algorithms(key: PrivateKeyTypes, path: str) -> tuple[str, ...]:
    """The algorithms that this key can sign with, best first."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa

    if isinstance(key, rsa.RSAPrivateKey):
        return _RSA
    if isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name in _CURVES:
        return (_CURVES[key.curve.name],)
    if isinstance(key, ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey):
        return ("EdDSA",)
    raise _unusable(path, "holds a key of a kind that can't be used")


def _accepted(own: tuple[str, ...], client: OAuthClient, issuer: str) -> str:
    accepted = client.signing_algorithms
    if not accepted:
        return own[0]
    for algorithm in own:
        if algorithm in accepted:
            return algorithm
    raise SignInFailed(
        CODE,
        f"{issuer} accepts no signature of this kind of key ({own[0]}): use a key for {', '.join(accepted)}",
    )


def _unusable(path: str, why: str) -> SignInFailed:
    return SignInFailed(
        CODE, f"the key file {path} {why}: give it an RSA, EC or Ed25519 key in PEM format"
    )


def _exposed(path: str) -> str:
    """Who else can read the key; empty if nobody can."""
    if os.name != "posix":
        return ""
    status = os.stat(path)  # noqa: PTH116 - follows symbolic links
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        return f"the key file {path} is open to other users of this machine"
    if status.st_uid not in (0, os.geteuid()):
        return f"the key file {path} belongs to another user of this machine"
    return ""
