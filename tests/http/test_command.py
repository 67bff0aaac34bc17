"""`mcp-workbench serve --http`, the real command: what it says, whom it lets in, how it ends."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.config.http_settings import TOKEN_VARIABLE, resolve_http
from mcp_workbench.config.load import load_config
from mcp_workbench.core.errors import ConfigError
from mcp_workbench.core.spec import HttpSettings, Snapshot
from tests.kit.clock import eventually
from tests.kit.command import run_command, serving, stopped
from tests.kit.config import config_file, entry
from tests.kit.http_host import ACCEPT, rpc
from tests.kit.processes import alive, pids_in
from tests.kit.results import INITIALIZE, use_tool

pytestmark = pytest.mark.usefixtures("forked_commands")

TOKEN = "0123456789abcdef0123456789abcdef"


@pytest.mark.usefixtures("real_commands")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_the_port_its_sessions_and_its_servers(
    tmp_path: Path, number: signal.Signals, status: int
) -> None:
    pids = tmp_path / "pids"
    fixture = entry(env={"PIDFILE": str(pids)})
    with serving(config_file(tmp_path, {"fixture": fixture})) as command:
        session = command.open()
        _, _, answer = command.post(
            rpc("tools/call", use_tool("fixture", "stats"), 2), mcp_session_id=session
        )
        assert "result" in answer
        assert len(pids_in(pids)) == 1

        ended, out, err = stopped(command, number)

    assert (ended, out, err) == (status, "", "")
    assert command.remark == (
        "no token is set: every process of this machine may call (http.token ends that)\n"
    )
    eventually(lambda: not any(map(alive, pids_in(pids))), "its servers end")


def test_the_first_line_says_where_it_listens_and_how_to_stop(tmp_path: Path) -> None:
    with serving(
        config_file(tmp_path, {"fixture": entry()}), env={TOKEN_VARIABLE: TOKEN}
    ) as command:
        assert command.line == (
            f"listening on {command.url}   one toolbox: /mcp/dev   stop with Ctrl-C\n"
        )
        assert command.post(rpc("ping", id=1))[0] == 401
        bearer = f"Bearer {TOKEN}"
        params: dict[str, Any] = INITIALIZE
        assert command.post(rpc("initialize", params, 1), authorization=bearer)[0] == 200

        _, _, err = stopped(command, signal.SIGTERM)

    assert err == ""
    assert TOKEN not in command.line


def test_the_token_reaches_nobody_behind_the_port(tmp_path: Path) -> None:
    config = config_file(tmp_path, {"fixture": entry()}, http={"token": "${CANARY}"})
    with serving(config, env={TOKEN_VARIABLE: TOKEN, "CANARY": TOKEN[::-1]}) as command:
        bearer = f"Bearer {TOKEN}"
        params: dict[str, Any] = INITIALIZE
        _, headers, _ = command.post(rpc("initialize", params, 1), authorization=bearer)
        told = {"authorization": bearer, "mcp_session_id": headers["Mcp-Session-Id"]}
        for tool in ("env", "echo"):
            _, _, answer = command.post(rpc("tools/call", use_tool("fixture", tool), 2), **told)
            assert "result" in answer
            assert TOKEN not in json.dumps(answer)
            assert TOKEN[::-1] not in json.dumps(answer)


def test_what_is_under_way_for_too_long_is_cut_off(tmp_path: Path) -> None:
    config = config_file(tmp_path, {"fixture": entry()}, limits={"drain": 0.5})
    with serving(config) as command:
        session = command.open()
        command.post(rpc("tools/call", use_tool("fixture", "stats"), 2), mcp_session_id=session)
        body = rpc("tools/call", use_tool("fixture", "hold", {"key": "k"}), 3)
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: {command.url[7:-4]}\r\nContent-Type: application/json\r\n"
            f"Accept: {ACCEPT}\r\nMcp-Session-Id: {session}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        port = int(command.url[7:-4].rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as held:
            held.sendall(head.encode() + body)
            command.post(rpc("ping", id=4), mcp_session_id=session)  # it was read before this
            status, _, err = stopped(command, signal.SIGTERM)
            answer = held.recv(65536)

    assert status == 0
    assert "Traceback" not in err
    assert answer.startswith(b"HTTP/1.1 404")  # its time is up: the session has ended


@pytest.mark.parametrize(
    ("http", "env", "missing"),
    [
        ({}, {}, ["no token", "no host name"]),
        ({"token": TOKEN}, {}, ["no host name"]),
        ({"allowedHosts": ["box.example"]}, {}, ["no token"]),
        ({}, {TOKEN_VARIABLE: TOKEN}, ["no host name"]),
    ],
)
def test_an_address_that_others_can_reach_needs_a_token_and_a_name(
    tmp_path: Path, http: dict[str, Any], env: dict[str, str], missing: list[str]
) -> None:
    config = config_file(tmp_path, {"fixture": entry()}, http=http)
    argv = ("serve", "--config", str(config), "--http", "0.0.0.0:0")

    done = run_command(*argv, cwd=tmp_path, **env)

    assert done.status == 2
    assert done.out == ""
    for words in missing:
        assert words in done.err
    assert done.err.count("WB-CONF-030") == len(missing)
    assert "fix:" in done.err
    assert TOKEN not in done.err


def test_with_both_any_address_is_served() -> None:
    wish = HttpSettings("${T}", ("box.example",))
    found = resolve_http(Snapshot({}, http=wish), {"T": TOKEN}, loopback=False)

    assert (found.token, found.allowed_hosts) == (TOKEN, ("box.example",))
    assert TOKEN not in repr(found)


@pytest.mark.parametrize(
    ("token", "environ", "code"),
    [
        ("${T}", {}, "WB-CONF-021"),
        ("${T:-}", {}, "WB-CONF-031"),
        ("two words", {}, "WB-CONF-031"),
        ("schlüssel", {}, "WB-CONF-031"),
    ],
)
def test_a_token_that_cannot_be_used_is_a_problem_of_the_configuration(
    token: str, environ: dict[str, str], code: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_http(Snapshot({}, http=HttpSettings(token)), environ, loopback=True)

    assert [problem.code for problem in caught.value.problems] == [code]
    assert token not in str(caught.value) or "$" in token


def test_a_token_of_the_variable_that_cannot_be_used_names_the_variable() -> None:
    wish = HttpSettings("${T}", ("box.example",))
    environ = {"MCP_WORKBENCH_HTTP_TOKEN": "short", "T": TOKEN}
    with pytest.raises(ConfigError) as caught:
        resolve_http(Snapshot({}, http=wish, origin="a-file.json"), environ, loopback=False)

    [problem] = caught.value.problems
    assert (caught.value.file, problem.path) == ("$MCP_WORKBENCH_HTTP_TOKEN", "")
    assert problem.code == "WB-CONF-031"
    assert "a-file.json" not in str(caught.value)


@pytest.mark.parametrize(
    ("http", "path"),
    [
        ({"allowedHosts": ["https://box.example"]}, "http.allowedHosts[0]"),
        ({"allowedHosts": ["box.example", "box/x"]}, "http.allowedHosts[1]"),
        ({"allowedHosts": "box.example"}, "http.allowedHosts"),
        ({"allowedOrigins": ["*"]}, "http.allowedOrigins[0]"),
        ({"allowedOrigins": ["null"]}, "http.allowedOrigins[0]"),
        ({"allowedOrigins": ["https://page.example/"]}, "http.allowedOrigins[0]"),
        ({"token": ""}, "http.token"),
        ({"token": 5}, "http.token"),
    ],
)
def test_what_can_never_match_is_a_problem_of_the_file(
    tmp_path: Path, http: dict[str, Any], path: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(config_file(tmp_path, {"fixture": entry()}, http=http))

    assert [problem.path for problem in caught.value.problems] == [path]


def test_names_and_origins_of_every_form_are_taken(tmp_path: Path) -> None:
    hosts = ["box", "box.example:7411", "[::1]:80", "10.0.0.1"]
    origins = ["https://page.example", "http://localhost:3000", "vscode-webview://abc"]
    http = {"allowedHosts": hosts, "allowedOrigins": origins, "token": "${T}"}
    wish = load_config(config_file(tmp_path, {"fixture": entry()}, http=http)).http

    assert wish == HttpSettings("${T}", tuple(hosts), tuple(origins))


def test_the_variable_wins_over_the_file() -> None:
    snapshot = Snapshot({}, http=HttpSettings("from-the-file"))

    assert resolve_http(snapshot, {TOKEN_VARIABLE: TOKEN}, loopback=True).token == TOKEN


@pytest.mark.parametrize(
    "address", ["", "x", "1:2:3", "::1:80", "70000", "-1", "localhost:", "\u0661\u0662"]
)
def test_an_address_that_is_none_is_told(tmp_path: Path, address: str) -> None:
    config = config_file(tmp_path, {"fixture": entry()})
    done = run_command("serve", "--config", str(config), f"--http={address}", cwd=tmp_path)

    assert done.status == 2
    assert "7411" in done.err


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    config = config_file(tmp_path, {"fixture": entry()})
    with serving(config) as command:
        number = command.url[7:-4].rpartition(":")[2]
        done = run_command("serve", "--config", str(config), "--http", number, cwd=tmp_path)

    assert done.status == 1
    assert "address already in use" in done.err.lower()
    assert f"error: can't listen on 127.0.0.1:{number}: address already in use\n" in done.err
    assert "\n  fix: end what listens there, or name another port with --http\n" in done.err


def test_an_address_of_another_machine_is_told(tmp_path: Path) -> None:
    config = config_file(
        tmp_path, {"fixture": entry()}, http={"token": TOKEN, "allowedHosts": ["x"]}
    )
    argv = ("serve", "--config", str(config), "--http", "192.0.2.1:0")

    done = run_command(*argv, cwd=tmp_path)

    assert done.status == 1
    assert "error: can't listen on 192.0.2.1:0: " in done.err
    assert "\n  fix: name an address of this machine with --http, such as " in done.err
