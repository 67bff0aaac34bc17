"""The issuer in the file: what it needs, what it opens, and that its secret is never shown."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from mcp_workbench.config.http_settings import resolve_http
from mcp_workbench.config.json_schema import json_schema
from mcp_workbench.core.errors import ConfigError
from mcp_workbench.core.spec import ClaimGrant, Introspection, IssuerSettings, Snapshot
from tests.config.scenes import load, problems
from tests.kit.command import run_command
from tests.kit.config import write_config

SERVER = {"mcpServers": {"a": {"command": sys.executable}}}
BOXES: dict[str, Any] = {"dev": SERVER, "ops": SERVER}
ISSUER = "https://login.example.com"
URL = "https://workbench.example.com/mcp"
BOTH: dict[str, Any] = {"issuer": ISSUER, "audience": URL}
CANARY = "canary-0123456789abcdef"


def file(**auth: Any) -> dict[str, Any]:
    return {"toolboxes": BOXES, "http": {"auth": auth}}


def resolved(found: Snapshot, environ: dict[str, str] | None = None) -> IssuerSettings:
    auth = resolve_http(found, environ or {}, loopback=True).auth
    assert auth is not None
    return auth


def test_issuer_and_audience_are_enough(tmp_path: Path) -> None:
    auth = resolved(load(tmp_path, file(**BOTH)))

    assert auth == IssuerSettings(ISSUER, URL, URL, toolboxes=("*",))


def test_grants_replace_that_everything_is_open(tmp_path: Path) -> None:
    scopes = {"wb:dev": ["dev"], "wb:all": ["*"]}
    claims = {"groups": {"engineering": ["dev", "ops"], "ops": ["ops"]}}
    auth = resolved(load(tmp_path, file(**BOTH, scopes=scopes, claims=claims)))

    assert auth.toolboxes == ()
    assert auth.scopes == (("wb:dev", ("dev",)), ("wb:all", ("*",)))
    assert auth.claims == (
        ClaimGrant("groups", "engineering", ("dev", "ops")),
        ClaimGrant("groups", "ops", ("ops",)),
    )


@pytest.mark.parametrize("grants", [{"toolboxes": []}, {"scopes": {}}, {"claims": {"groups": {}}}])
def test_an_empty_grant_opens_nothing(tmp_path: Path, grants: dict[str, Any]) -> None:
    found = load(tmp_path, file(**BOTH, **grants))

    assert resolved(found).toolboxes == ()
    assert "WB-CONF-017" in [warning.code for warning in found.warnings]


def test_every_text_may_come_from_a_variable(tmp_path: Path) -> None:
    asking = {"clientId": "${ID}", "clientSecret": "${SECRET}", "url": "${ASK}"}
    written = {"issuer": "${ISSUER}", "audience": "${AUDIENCE}", "resource": "${URL}"}
    environ = {
        "ISSUER": ISSUER,
        "AUDIENCE": "api://workbench",
        "URL": URL,
        "KEYS": "https://keys.example.com/jwks",
        "ID": "workbench",
        "SECRET": CANARY,
        "ASK": f"{ISSUER}/introspect",
    }
    whole = file(**written, jwksUri="${KEYS}", introspection=asking)
    found = load(tmp_path, whole, environ)
    unset = load(tmp_path, whole, {})

    assert found.warnings == ()
    assert resolved(found, environ) == IssuerSettings(
        ISSUER,
        "api://workbench",
        URL,
        "https://keys.example.com/jwks",
        Introspection("workbench", CANARY, f"{ISSUER}/introspect"),
        ("*",),
    )
    assert {warning.code for warning in unset.warnings} == {"WB-CONF-021"}
    assert len(unset.warnings) == 7
    with pytest.raises(ConfigError, match="variable SECRET is not set"):
        resolved(unset, {name: text for name, text in environ.items() if name != "SECRET"})
    assert CANARY not in repr(resolved(found, environ))


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"audience": URL}, "WB-CONF-044", "http.auth"),
    ({"issuer": ISSUER}, "WB-CONF-044", "http.auth"),
    ({**BOTH, "issuer": "login.example.com"}, "WB-CONF-010", "http.auth.issuer"),
    ({**BOTH, "audience": 5}, "WB-CONF-010", "http.auth.audience"),
    ({**BOTH, "toolboxes": "dev"}, "WB-CONF-010", "http.auth.toolboxes"),
    ({**BOTH, "scopes": ["dev"]}, "WB-CONF-010", "http.auth.scopes"),
    ({**BOTH, "scopes": {"a": "dev"}}, "WB-CONF-010", "http.auth.scopes.a"),
    ({**BOTH, "claims": {"a": ["dev"]}}, "WB-CONF-010", "http.auth.claims.a"),
    ({**BOTH, "claims": {"a": {"b": [1]}}}, "WB-CONF-010", "http.auth.claims.a.b[0]"),
    ({**BOTH, "introspection": {}}, "WB-CONF-010", "http.auth.introspection"),
    (
        {**BOTH, "introspection": {"clientId": "a"}},
        "WB-CONF-044",
        "http.auth.introspection",
    ),
]


@pytest.mark.parametrize(("auth", "code", "path"), WRONG)
def test_what_has_the_wrong_form_is_told_and_editors_agree(
    auth: dict[str, Any], code: str, path: str, tmp_path: Path
) -> None:
    found = problems(tmp_path, file(**auth))

    assert [(p.code, p.path) for p in found] == [(code, path)]
    assert found[0].fix
    editor = Draft202012Validator(json_schema())
    assert not editor.is_valid(file(**auth))  # pyright: ignore[reportUnknownMemberType]
    assert editor.is_valid(file(**BOTH))  # pyright: ignore[reportUnknownMemberType]


@pytest.mark.parametrize(
    ("auth", "path", "words"),
    [
        ({"issuer": "http://login.example.com"}, "issuer", "must be https"),
        ({"issuer": "http://10.0.0.1"}, "issuer", "must be https"),
        ({"issuer": "https://user:pass@login.example.com"}, "issuer", "must not carry"),
        ({"issuer": f"{ISSUER}?tenant=1"}, "issuer", "no query"),
        ({"audience": "api://workbench"}, "audience", "the URL of this workbench"),
        ({"audience": "https://workbench.example.com"}, "audience", "ends with /mcp"),
        ({"resource": f"{URL}/dev"}, "resource", "ends with /mcp"),
        ({"jwksUri": "http://keys.example.com"}, "jwksUri", "must be https"),
        ({"scopes": {"two words": ["dev"]}}, 'scopes["two words"]', "is not a scope"),
        ({"scopes": {'a"': ["dev"]}}, "scopes", "is not a scope"),
    ],
)
def test_what_has_the_wrong_value_is_told(
    auth: dict[str, str], path: str, words: str, tmp_path: Path
) -> None:
    [found] = problems(tmp_path, file(**{**BOTH, **auth}))

    assert found.code == "WB-CONF-044"
    assert found.path.startswith(f"http.auth.{path}")
    assert words in found.message
    assert "pass" not in f"{found.message}{found.fix}".replace("password", "")


@pytest.mark.parametrize("issuer", ["http://127.0.0.1:9000", "http://localhost:9000/tenant"])
def test_an_issuer_on_this_machine_may_be_http(issuer: str, tmp_path: Path) -> None:
    auth = resolved(load(tmp_path, file(issuer=issuer, audience="http://127.0.0.1:7411/mcp")))

    assert auth.issuer == issuer


def test_a_toolbox_that_is_not_there_is_told_wherever_it_stands(tmp_path: Path) -> None:
    grants: dict[str, Any] = {
        "toolboxes": ["devv"],
        "scopes": {"a": ["opz"]},
        "claims": {"groups": {"b": ["dev", "dve"]}},
    }
    found = problems(tmp_path, file(**BOTH, **grants))

    assert [(p.code, p.path) for p in found] == [
        ("WB-CONF-041", "http.auth.toolboxes[0]"),
        ("WB-CONF-041", "http.auth.scopes.a[0]"),
        ("WB-CONF-041", "http.auth.claims.groups.b[1]"),
    ]


def test_a_secret_in_the_file_is_a_doubt_and_is_not_shown(tmp_path: Path) -> None:
    asking = {"clientId": "workbench", "clientSecret": CANARY}
    write_config(tmp_path, file(**BOTH, introspection=asking))
    done = [run_command("check", *form, cwd=tmp_path) for form in ((), ("--json",), ("-v",))]

    assert [one.status for one in done] == [0, 0, 0]
    assert all("WB-CONF-043" in one.out + one.err for one in done)
    assert all("canary" not in one.out + one.err for one in done)


def test_an_issuer_is_enough_for_an_address_that_others_reach(tmp_path: Path) -> None:
    found = load(tmp_path, file(**BOTH))
    with pytest.raises(ConfigError) as caught:
        resolve_http(found, {}, loopback=False)
    whole = {"toolboxes": BOXES, "http": {"auth": BOTH, "allowedHosts": ["workbench.example.com"]}}

    assert [p.path for p in caught.value.problems] == ["http.allowedHosts"]
    assert resolve_http(load(tmp_path, whole), {}, loopback=False).auth


WITHOUT_EXTRA = """
import sys
sys.modules["jwt"] = None
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name == "jwt" else find(name)
sys.argv = ["mcp-workbench", *sys.argv[1:]]
from mcp_workbench.cli.main import main
main()
"""


def test_without_the_extra_the_port_says_how_to_get_it(tmp_path: Path) -> None:
    config = tmp_path / "workbench-config.json"
    config.write_bytes(msgspec.json.encode(file(**BOTH)))
    config.chmod(0o644)
    argv = ["serve", "--http", "0", "--config", str(config)]

    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRA, *argv], capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 2
    assert "WB-CONF-045" in done.stderr
    assert "pip install 'mcp-workbench-gateway[auth]'" in done.stderr
    assert "Traceback" not in done.stderr
