"""`auth.privateKey`: what a client signs with it, and what is said where it can't be used."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from mcp_workbench.core.spec import AuthSettings
from mcp_workbench.protocol.oauth import OAuthClient, SignInFailed
from mcp_workbench.upstream.oauth.client_key import LIFETIME, proof
from tests.kit.command import run_command
from tests.kit.config import write_config
from tests.kit.private_keys import MAKERS, key_file, pem, private_key

ISSUER = "https://login.example.com"
INSTALL = "pip install 'mcp-workbench-gateway[auth]'"
KIND = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


def client(*accepted: str) -> OAuthClient:
    return OAuthClient("robot", method="private_key_jwt", signing_algorithms=accepted)


def settings(folder: Path, name: str = "client-key.pem") -> AuthSettings:
    return AuthSettings("robot", private_key=name, folder=str(folder))


@pytest.mark.parametrize("algorithm", MAKERS)
def test_an_assertion_says_who_the_client_is_and_for_whom_it_is(
    tmp_path: Path, algorithm: str
) -> None:
    key = private_key(algorithm)
    key_file(tmp_path, key)
    fields = proof(settings(tmp_path), client(), ISSUER)
    claims = jwt.decode(
        fields["client_assertion"],
        key.public_key(),
        [algorithm],
        audience=ISSUER,
        issuer="robot",
        subject="robot",
        options={"require": ["exp", "iat", "jti"]},
    )
    assert fields["client_assertion_type"] == KIND
    assert claims["aud"] == ISSUER  # one text: RFC 7523 as it is being revised
    assert 0 < claims["exp"] - time.time() <= LIFETIME


def test_no_two_assertions_are_the_same(tmp_path: Path) -> None:
    key_file(tmp_path, private_key("ES256"))
    both = [proof(settings(tmp_path), client(), ISSUER)["client_assertion"] for _ in range(2)]
    ids = {jwt.decode(one, options={"verify_signature": False})["jti"] for one in both}
    assert len(ids) == 2


@pytest.mark.parametrize(
    ("accepted", "algorithm"),
    [((), "RS256"), (("ES256", "PS256"), "PS256"), (("PS256", "RS256"), "RS256")],
)
def test_the_algorithm_is_one_that_the_server_accepts(
    tmp_path: Path, accepted: tuple[str, ...], algorithm: str
) -> None:
    key_file(tmp_path, private_key("RS256"))
    assertion = proof(settings(tmp_path), client(*accepted), ISSUER)["client_assertion"]
    assert jwt.get_unverified_header(assertion)["alg"] == algorithm


def refusal(folder: Path, *accepted: str) -> str:
    with pytest.raises(SignInFailed) as caught:
        proof(settings(folder), client(*accepted), ISSUER)
    assert caught.value.code == "WB-AUTH-020"
    return str(caught.value)


def test_a_key_of_another_kind_than_the_server_accepts(tmp_path: Path) -> None:
    key_file(tmp_path, private_key("EdDSA"))
    assert refusal(tmp_path, "ES256") == (
        "https://login.example.com accepts no signature of this kind of key (EdDSA): use a key for ES256"
    )


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert refusal(tmp_path) == (
        f"the key file {tmp_path}/client-key.pem can't be read (No such file or directory): correct "
        "'privateKey', or the rights of the file"
    )


CURVE = ec.generate_private_key(ec.SECP256K1())
CERTIFICATE = b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "holds no private key in PEM format"),
        (b"\x00\xff secret", "holds no private key in PEM format"),
        (CERTIFICATE, "holds no private key in PEM format"),
        (
            pem(private_key("ES256"), "passphrase"),
            "has a passphrase, which nobody could enter here",
        ),
        (pem(CURVE), "holds a key of a kind that can't be used"),
    ],
)
def test_a_file_without_a_usable_key(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "client-key.pem").write_bytes(content)
    assert refusal(tmp_path) == (
        f"the key file {tmp_path}/client-key.pem {why}: give it an RSA, EC or Ed25519 key in PEM format"
    )


def test_a_key_that_others_can_read_is_used_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = key_file(tmp_path, private_key("ES256"))
    file.chmod(0o640)
    with caplog.at_level(logging.WARNING):
        assert proof(settings(tmp_path), client(), ISSUER)
    assert caplog.messages == [
        f"the key file {file} is open to other users of this machine: chmod 600 {file}"
    ]


# The command line


def entry(**auth: Any) -> str:
    server = {"url": "https://mcp.example.com/mcp", "auth": auth}
    return json.dumps({"mcpServers": {"robot": server}})


def test_check_names_a_key_that_others_can_read(tmp_path: Path) -> None:
    key_file(tmp_path, private_key("ES256")).chmod(0o644)
    write_config(tmp_path, entry(clientId="robot", privateKey="client-key.pem"))
    done = run_command("check", cwd=tmp_path)
    assert done.status == 0
    assert "is open to other users of this machine" in done.err
    assert "WB-AUTH-020" in done.err
    assert f"fix: chmod 600 {tmp_path}/client-key.pem" in done.err


def test_a_relative_path_starts_at_the_configuration_file(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    key_file(folder, private_key("ES256"))
    file = write_config(folder, entry(clientId="robot", privateKey="client-key.pem"))
    done = run_command("check", "--config", str(file), cwd=tmp_path)
    assert (done.status, done.err) == (0, "")


def test_check_wants_a_client_beside_the_key(tmp_path: Path) -> None:
    write_config(tmp_path, entry(privateKey="client-key.pem", clientSecret="${A}"))
    done = run_command("check", cwd=tmp_path)
    assert done.status == 2
    assert "'privateKey' needs 'clientId'" in done.err
    assert "has no effect beside 'privateKey'" in done.err


WITHOUT_EXTRA = """
import sys
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name == "cryptography" else find(name)
sys.argv = ["mcp-workbench", *sys.argv[1:]]
from mcp_workbench.cli.main import main
main()
"""


def test_without_the_extra_the_command_to_install_it_is_shown(tmp_path: Path) -> None:
    key_file(tmp_path, private_key("ES256"))
    file = write_config(tmp_path, entry(clientId="robot", privateKey="client-key.pem"))
    argv = [sys.executable, "-c", WITHOUT_EXTRA, "check", "--config", str(file)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert "the packages that sign with 'privateKey' are not installed" in done.stderr
    assert f"fix: {INSTALL}" in done.stderr
