"""`limits` of tokens and of an issuer in the file, and the real command that follows it."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from mcp_workbench.config.http_settings import resolve_http
from mcp_workbench.config.json_schema import json_schema
from mcp_workbench.core.spec import (
    HttpSettings,
    IssuerSettings,
    NamedToken,
    PrincipalLimits,
    Snapshot,
)
from mcp_workbench.gateway.reload import applied_now
from tests.config.scenes import load, problems
from tests.kit.command import serving, stopped
from tests.kit.config import config_file, entry
from tests.kit.http_host import Port
from tests.kit.processes import unmeasured
from tests.limits.scenes import NOISY, QUIET, accepted, modern_call, refused

AUTH = {
    "issuer": "https://login.example.com",
    "audience": "https://workbench.example.com/mcp",
    "limits": {"sessions": 3},
}
TELL = """
import atexit, os, sys
OURS = ("mcp_workbench.gateway.call_limits", "mcp_workbench.core.principal_limits")
atexit.register(lambda: os.write(2, b"LOADED %d" % any(name in sys.modules for name in OURS)))
from mcp_workbench.cli.main import main
sys.argv = ["mcp-workbench", *sys.argv[1:]]
main()
"""


def file(limits: Any) -> dict[str, Any]:
    tokens = {"a": {"token": "${A}", "limits": limits}}
    return {"mcpServers": {"fs": {"command": "fs"}}, "http": {"tokens": tokens}}


def test_limits_are_read_and_stay_when_tokens_get_their_values(tmp_path: Path) -> None:
    text = file({"callsPerMinute": 60, "concurrentCalls": 4})
    text["http"]["auth"] = AUTH
    snapshot = load(tmp_path, text)
    http = resolve_http(snapshot, {"A": NOISY}, loopback=True)
    for settings in (snapshot.http, http):
        assert settings.tokens[0].limits == PrincipalLimits(60, 4, None)
        assert settings.auth is not None
        assert settings.auth.limits == PrincipalLimits(None, None, 3)
        assert settings.has_limits


@pytest.mark.parametrize(
    ("limits", "place"),
    [
        ({"callsPerMinute": 0}, ".callsPerMinute"),
        ({"callsPerMinute": "60"}, ".callsPerMinute"),
        ({"concurrentCalls": 1.5}, ".concurrentCalls"),
        ({"sessions": -1}, ".sessions"),
        ({"sessions": True}, ".sessions"),
        ({"callsPerMinute": 1e300}, ".callsPerMinute"),
        ({}, ""),
        (60, ""),
        (None, ""),
    ],
)
def test_what_is_wrong_with_limits_is_told_and_editors_agree(
    limits: Any, place: str, tmp_path: Path
) -> None:
    [found] = problems(tmp_path, file(limits), {"A": NOISY})
    assert (found.code, found.path) == ("WB-CONF-010", f"http.tokens.a.limits{place}")
    editor = Draft202012Validator(json_schema())
    assert not editor.is_valid(file(limits))  # pyright: ignore[reportUnknownMemberType]
    assert editor.is_valid(file({"sessions": 1}))  # pyright: ignore[reportUnknownMemberType]


def test_new_limits_apply_at_once_and_new_tokens_do_not() -> None:
    auth = IssuerSettings("https://login.example.com", "a", "a", limits=PrincipalLimits(7))
    other = IssuerSettings("https://login.example.com", "a", "a", limits=PrincipalLimits(8))
    running = Snapshot({}, http=HttpSettings(tokens=(NamedToken("a", "x"),), auth=auth))
    limited = NamedToken("a", "x", limits=PrincipalLimits(5))
    wanted = Snapshot({}, http=HttpSettings(tokens=(limited,), auth=other))
    assert applied_now(running, wanted) == (wanted, ())

    more = Snapshot({}, http=HttpSettings(tokens=(limited, NamedToken("b", "y"))))
    possible, later = applied_now(running, more)
    assert later == ("http",)
    assert possible.http.tokens == (limited,)
    assert possible.http.auth == IssuerSettings("https://login.example.com", "a", "a")


@pytest.mark.parametrize("limits", [{}, {"limits": {"sessions": 5}}])
def test_a_port_without_limits_loads_nothing_of_them(limits: Any, tmp_path: Path) -> None:
    http = {"tokens": {"a": {"token": "${A_TOKEN}", **limits}}}
    config = config_file(tmp_path, {}, http=http)
    command = [sys.executable, "-c", TELL]
    with serving(config, "0", {**unmeasured(), "A_TOKEN": "t" * 32}, command=command) as port:
        code, _, err = stopped(port, signal.SIGTERM)
    assert code == 0
    assert err.endswith(f"LOADED {int(bool(limits))}")


async def test_the_command_follows_limits_in_the_file_and_keeps_its_counts(tmp_path: Path) -> None:
    def write(most: int) -> Path:
        tokens = {
            "noisy": {"token": "${NOISY}", "limits": {"callsPerMinute": most}},
            "quiet": {"token": "${QUIET}"},
        }
        return config_file(tmp_path, {"fixture": entry()}, http={"tokens": tokens})

    with serving(write(3), "0", {"NOISY": NOISY, "QUIET": QUIET}) as command:
        opened = Port(command.port)
        outcomes = [accepted(await modern_call(opened, NOISY)) for _ in range(4)]
        assert outcomes == [True, True, True, False]
        write(50)
        command.process.send_signal(signal.SIGHUP)
        while not accepted(await modern_call(opened, NOISY)):  # until the file was read
            assert accepted(await modern_call(opened, QUIET))
        outcomes = [accepted(await modern_call(opened, NOISY)) for _ in range(60)]
        assert outcomes.count(True) == 50 - 3 - 1
        assert 1 <= refused(await modern_call(opened, NOISY)) <= 61
