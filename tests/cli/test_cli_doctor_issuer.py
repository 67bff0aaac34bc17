"""`doctor` and the issuer of `http.auth`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kit.command import Person, newcomer
from tests.kit.config import demo_server, write_config
from tests.kit.issuer import AUDIENCE, CLIENT, TokenIssuer, token_issuer


def line(person: Person, issuer: str, **variables: str) -> dict[str, Any] | None:
    """What `doctor` says about signing in."""
    asking = {"clientId": CLIENT[0], "clientSecret": "${SECRET}"}
    auth = {"issuer": issuer, "audience": AUDIENCE, "introspection": asking}
    config = {"mcpServers": {"basics": demo_server()}, "http": {"auth": auth}}
    write_config(person.folder, config)
    done = person.types("doctor", "--json", **variables)
    assert CLIENT[1] not in done.out + done.err
    lines = [one for one in json.loads(done.out)["lines"] if one["subject"] == "sign-in"]
    assert len(lines) <= 1
    assert done.status == (1 if lines and lines[0]["state"] == "bad" else 0), done.out
    return lines[0] if lines else None


def no_keys(issuer: TokenIssuer) -> None:
    issuer.keys = []


def another(issuer: TokenIssuer) -> None:
    issuer.metadata["issuer"] += "/"


def broken(issuer: TokenIssuer) -> None:
    issuer.status["/jwks"] = 500


def test_an_issuer_that_answers_is_good(tmp_path: Path) -> None:
    with token_issuer() as issuer:
        said = line(newcomer(tmp_path), issuer.url, SECRET=CLIENT[1])

    assert said is not None
    assert (said["state"], said["message"]) == ("good", f"{issuer.url} answers, with 2 keys")


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (no_keys, "has no key that signs"),
        (another, "another issuer: correct http.auth.issuer"),
        (broken, "HTTP 500 from"),
    ],
)
def test_one_that_is_no_good_is_told_with_the_reason(
    tmp_path: Path, fault: Any, words: str
) -> None:
    with token_issuer() as issuer:
        fault(issuer)
        said = line(newcomer(tmp_path), issuer.url, SECRET=CLIENT[1])

    assert said is not None
    assert (said["state"], said["code"]) == ("bad", "WB-CONN-106")
    assert words in said["message"]
    assert said["fix"]


def test_without_its_variables_nobody_is_asked(tmp_path: Path) -> None:
    with token_issuer() as issuer:
        assert line(newcomer(tmp_path), issuer.url) is None
        assert issuer.requests == []
