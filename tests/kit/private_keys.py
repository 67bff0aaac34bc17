"""Private keys of clients: each kind that can sign, as PEM and as a set of public keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey

# By the algorithm that signs with it.
MAKERS = {
    "RS256": lambda: rsa.generate_private_key(65537, 2048),
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "ES384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
}


def private_key(algorithm: str) -> Key:
    """A new key for this algorithm."""
    return MAKERS[algorithm]()


def pem(key: Key, passphrase: str = "") -> bytes:
    """The text of its file."""
    encryption: KeySerializationEncryption = NoEncryption()
    if passphrase:
        encryption = BestAvailableEncryption(passphrase.encode())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


def key_file(folder: Path, key: Key, mode: int = 0o600) -> Path:
    """A file `client-key.pem` with this key."""
    file = folder / "client-key.pem"
    file.touch(mode)
    file.write_bytes(pem(key))
    return file


def public_keys(key: Key) -> dict[str, Any]:
    """The JSON Web Key Set that a client is registered with."""
    if isinstance(key, rsa.RSAPrivateKey):
        text = RSAAlgorithm.to_jwk(key.public_key())
    elif isinstance(key, ec.EllipticCurvePrivateKey):
        text = ECAlgorithm.to_jwk(key.public_key())
    else:
        text = OKPAlgorithm.to_jwk(key.public_key())
    return {"keys": [{**json.loads(text), "use": "sig"}]}
