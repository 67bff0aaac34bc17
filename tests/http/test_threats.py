"""What an open port is attacked with: names, pages, other people's headers, and what it could be made to start."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mcp_workbench.config.http_settings import TOKEN_VARIABLE
from mcp_workbench.core.spec import (
    HttpEndpoint,
    HttpSettings,
    NamedToken,
    ServerAddress,
    ServerSpec,
)
from tests.kit.clock import PATIENCE
from tests.kit.command import HttpCommand, serving, stopped
from tests.kit.config import config_file, entry, snapshot, spec, write_config
from tests.kit.http_host import Port, port, rpc
from tests.kit.processes import groups_below, pids_in
from tests.kit.results import INITIALIZE, Message, use_tool
from tests.kit.servers.bad_http import bad_http

ROUTES = ["/mcp", "/mcp/dev", "/mcp/nothing", "/healthz", "/readyz", "/", "/metrics", "/mcp/../mcp"]
VERBS = ["GET", "POST", "DELETE", "OPTIONS", "PUT", "HEAD"]
TOKEN = "canary-" + "t" * 32
WISH = HttpSettings(tokens=(NamedToken("ci", TOKEN),))


async def status(opened: Port, path: str, method: str, headers: Message) -> int:
    peer = await opened.connect()
    body = rpc("ping", id=1) if method == "POST" else b""
    peer.send(opened.request(body, headers, method=method, path=path))
    return (await peer.head())[0]


# A web page


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("wish", [HttpSettings(), WISH], ids=["open", "token"])
async def test_no_route_and_no_verb_answers_a_page_or_a_foreign_name(
    verb: str, wish: HttpSettings
) -> None:
    async with port(http=wish) as opened:
        known = {"authorization": f"Bearer {TOKEN}"}
        for path in ROUTES:
            rebound = {**known, "host": f"evil.example:{opened.server.port}"}
            assert await status(opened, path, verb, rebound) == 421
            page = {**known, "origin": "https://evil.example"}
            assert await status(opened, path, verb, page) == 403
            told = {**page, "origin": "null"}
            assert await status(opened, path, verb, told) == 403


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ({"x-forwarded-host": "evil.example"}, 200),
        ({"forwarded": "host=evil.example"}, 200),
        ({"host": "evil.example", "x-forwarded-host": "OURS"}, 421),
        ({"host": "evil.example", "forwarded": "host=OURS"}, 421),
        ({"host": "evil.example", "x-original-host": "OURS", ":authority": None}, 421),
        ({"host": ["OURS", "evil.example"]}, 421),
        ({"host": ["evil.example", "OURS"]}, 421),
        ({"host": ["OURS", "OURS"]}, 421),
        ({"host": "OURS."}, 421),
        ({"host": "user@OURS"}, 421),
        ({"host": "OURS/"}, 421),
        ({"origin": ["http://OURS", "https://evil.example"]}, 403),
        ({"origin": "http://OURS@evil.example"}, 403),
        ({"origin": "https://OURS"}, 403),
        ({"origin": "http://OURS"}, 200),
    ],
)
async def test_one_host_line_and_one_origin_line_decide(headers: Message, wanted: int) -> None:
    async with port() as opened:
        told = json.loads(json.dumps(headers).replace("OURS", opened.name))
        assert await status(opened, "/healthz", "GET", told) == wanted


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("GET http://evil.example/healthz HTTP/1.1", 404),
        ("GET http://OURS/mcp HTTP/1.1", 404),
        ("POST //mcp HTTP/1.1", 404),
        ("POST /mcp;x HTTP/1.1", 404),
        ("POST /MCP HTTP/1.1", 404),
        ("POST /%6dcp HTTP/1.1", 404),
        ("POST /healthz/../mcp HTTP/1.1", 404),
        ("OPTIONS * HTTP/1.1", 404),
        ("CONNECT evil.example:443 HTTP/1.1", 404),
        ("TRACE /mcp HTTP/1.1", 405),
    ],
)
async def test_the_path_as_it_came_decides(line: str, wanted: int) -> None:
    async with port(http=WISH) as opened:
        peer = await opened.connect()
        head = f"{line.replace('OURS', opened.name)}\r\nHost: {opened.name}\r\n\r\n"
        peer.send(head.encode())
        answered, headers = await peer.head()

        assert answered == wanted
        assert "set-cookie" not in headers


# Other people's headers


async def test_what_a_host_says_of_itself_goes_to_no_server() -> None:
    headers = {
        "authorization": f"Bearer {TOKEN}",
        "cookie": f"session={TOKEN}",
        "proxy-authorization": f"Basic {TOKEN}",
        "x-api-key": TOKEN,
        "x-forwarded-for": TOKEN,
        "forwarded": f"for={TOKEN}",
        "user-agent": TOKEN,
        "referer": f"http://x/{TOKEN}",
    }
    async with bad_http() as bad:
        servers = [
            ServerSpec(
                ServerAddress("dev", name), HttpEndpoint(bad.url(path), (("X-Own", "mine"),))
            )
            for name, path in (("old", "/session/ok"), ("new", "/modern/ok"))
        ]
        async with port(snapshot(*servers), WISH) as opened:
            for server in ("old", "new"):
                tool = {"toolbox": "dev", "server": server, "tool": "echo"}
                params: Message = {"name": "use_tool", "arguments": {"tool": tool, "arguments": {}}}
                body, told = opened.modern("tools/call", params)
                assert "content" in (await opened.ask(body, {**told, **headers})).result
                session = await opened.open(**headers)
                assert "content" in await session.result("tools/call", params)

        assert len(bad.calls()) == 4
        for request in bad.seen:
            assert request.headers["x-own"] == "mine"
            assert TOKEN not in json.dumps(request.headers) + request.raw.decode()


async def test_an_argument_can_not_become_a_header_of_its_own() -> None:
    evil = "a\r\nX-Injected: yes\r\n\r\nPOST /smuggled HTTP/1.1\r\n\r\n"
    schema = {"properties": {"text": {"type": "string", "x-mcp-header": "Text"}}}
    async with bad_http() as bad:
        bad.tools = [{"name": "echo", "inputSchema": schema}]
        target = HttpEndpoint(bad.url("/modern/ok"))
        async with port(snapshot(ServerSpec(ServerAddress("dev", "fixture"), target))) as opened:
            params = use_tool("fixture", "echo", {"text": evil})
            body, told = opened.modern("tools/call", params)
            await opened.ask(body, told)
        [call] = bad.calls()

    carried = call.headers["mcp-param-text"].removeprefix("=?base64?").removesuffix("?=")
    assert base64.b64decode(carried).decode() == evil
    assert not any("x-injected" in request.headers for request in bad.seen)
    assert {request.path for request in bad.seen} == {"/modern/ok"}


EVIL = "2025-11-25\r\nX-Injected: yes"


@pytest.mark.parametrize(
    ("version", "session", "moved"),
    [
        (EVIL, "s", False),
        ("2025-11-25", "s\tX-Injected: yes\xe4", False),
        ("2025-11-25", "s", True),
    ],
)
async def test_what_a_server_says_can_not_become_a_header_or_a_line(
    version: str, session: str, moved: bool
) -> None:
    async with bad_http() as bad:

        async def greet(request: Any, out: Any) -> None:
            if moved and request.path == "/start/evil":
                place = "/start/a b%0d%0aX-Injected:%20yes"
                await out.raw(
                    f"HTTP/1.1 307 X\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n".encode()
                )
            elif request.method == "initialize":
                found: Message = {"protocolVersion": version, "capabilities": {"tools": {}}}
                body: Message = {"jsonrpc": "2.0", "id": request.body["id"], "result": found}
                data = json.dumps(body).encode()
                head = f"HTTP/1.1 200 X\r\nContent-Type: application/json\r\nMcp-Session-Id: {session}\r\n"
                length = f"Content-Length: {len(data)}\r\n\r\n"
                await out.raw((head + length).encode("latin-1") + data)
            else:
                await bad.good(request, out)

        for path in ("/start/evil", "/start/a%20b%0d%0aX-Injected:%20yes"):
            bad.acts[path] = greet
        target = HttpEndpoint(bad.url("/start/evil"))
        evil = ServerSpec(ServerAddress("dev", "fixture"), target, era="legacy")
        async with port(snapshot(evil)) as opened:
            await opened.ask(*opened.modern("tools/call", use_tool("fixture", "echo")))

        assert bad.seen
        for request in bad.seen:
            assert "x-injected" not in request.headers
            assert request.verb in ("GET", "POST", "DELETE")
            assert request.path in bad.acts


@pytest.mark.parametrize("era", ["session", "modern"])
async def test_a_redirect_to_another_port_brings_nobody_there(era: str) -> None:
    async with bad_http() as canary, bad_http() as bad:

        async def lead_away(request: Any, out: Any) -> None:
            await out.reply(307, location=canary.url("/stolen"))

        target = HttpEndpoint(bad.on(f"/{era}/away", lead_away), (("Authorization", TOKEN),))
        async with port(snapshot(ServerSpec(ServerAddress("dev", "fixture"), target))) as opened:
            told = await opened.ask(*opened.modern("tools/call", use_tool("fixture", "echo")))

        assert canary.url("") in told.result["content"][0]["text"]
        assert TOKEN not in told.body.decode()
        assert canary.connects == 0


# What it could be made to start


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks at /proc")
async def test_no_request_starts_what_the_configuration_does_not_name(tmp_path: Path) -> None:
    """The routes and methods that there are, and those that others had holes in."""
    pids, tripwire, before = tmp_path / "pids", tmp_path / "tripwire", groups_below(os.getpid())
    launch = {"command": "/bin/sh", "args": ["-c", f"touch {tripwire}"], "env": {"PATH": "/bin"}}
    fixture = spec("fixture", env={"PIDFILE": str(pids)})
    methods = [
        "servers/add", "config/set", "initialize", "tools/call", "server/discover", "tools/list",
        "roots/list", "sampling/createMessage", "tasks/create", "logging/setLevel", "prompts/get",
    ]  # fmt: skip
    paths = ["/mcp", "/mcp/dev", "/mcp/x", "/api/servers", "/servers", "/config", "/sse", "/stdio"]
    queries = ["", "?transportType=stdio&command=/bin/sh&args=-c", "?toolbox=x&server=/bin/sh"]
    extra = {"x-mcp-server": "/bin/sh", "x-command": f"touch {tripwire}", "x-toolbox": "x"}
    async with port(snapshot(fixture)) as opened:
        session = await opened.open()
        wishes: list[Message] = [
            {"name": "open_toolbox", "arguments": {"toolbox_name": "dev", "mcpServers": {"x": launch}}},
            {"name": "open_toolbox", "arguments": {"toolbox_name": "../dev", **launch}},
            {"name": "use_tool", "arguments": {"tool": {"toolbox": "dev", "server": "/bin/sh", "tool": "x"}}},
            {"name": "use_tool", "arguments": {"tool": {"toolbox": "dev", "server": "x", "tool": "x", **launch}}},
            {"name": "add_server", "arguments": {"name": "x", **launch}},
        ]  # fmt: skip
        for params in [
            *wishes,
            launch,
            {"server": launch, "config": {"mcpServers": {"x": launch}}},
        ]:
            for method in methods:
                await session.post(session.ask(method, params))
                told = {"mcp_name": params["name"]} if "name" in params else {}
                body, headers = opened.modern(method, params, **told)
                await opened.ask(body, {**headers, **extra})
        for path in [path + query for path in paths for query in queries]:
            for verb in ("GET", "POST", "PUT", "DELETE"):
                body = json.dumps(launch).encode() if verb in ("POST", "PUT") else b""
                if verb == "PUT":
                    told = {"content-length": str(len(body)), "content-type": "application/json"}
                else:
                    told = {}
                await opened.ask(body, {**extra, **told}, method=verb, path=path)
        await session.use("stats")
        started = groups_below(os.getpid()) - before

        assert len(pids_in(pids)) == 1  # the one server that is configured, once
        assert started <= set(pids_in(pids))
    assert not tripwire.exists()


@pytest.mark.parametrize("mode", ["proxy", "dynamic"])
async def test_a_shared_server_is_started_once_for_however_many_hosts(
    tmp_path: Path, mode: Any
) -> None:
    pids = tmp_path / "pids"
    shared = snapshot(spec("fixture", env={"PIDFILE": str(pids)}), mode=mode)
    async with port(shared) as opened, asyncio.TaskGroup() as hosts:
        for _ in range(16):
            hosts.create_task(opened.ask_modern("tools/call", use_tool("fixture", "stats")))
            hosts.create_task(opened.ask_modern("tools/list"))
            hosts.create_task((await opened.open()).use("stats"))

    assert len(pids_in(pids)) == 1


# Secrets


def forms(secret: str) -> list[str]:
    return [secret, base64.b64encode(secret.encode()).decode().rstrip("=")]


def provoke(command: HttpCommand, bearer: str) -> None:
    """Whatever a log might be written for."""
    params: Message = INITIALIZE
    right = {"authorization": f"Bearer {bearer}"}
    _, headers, _ = command.post(rpc("initialize", params, 1), **right)
    told = {**right, "mcp_session_id": headers["Mcp-Session-Id"]}
    for tool in ("stats", "die", "stats", "nothing"):
        command.post(rpc("tools/call", use_tool("fixture", tool), 2), **told)
    broken = {"toolbox": "dev", "server": "broken", "tool": "x"}
    wish: Message = {"name": "use_tool", "arguments": {"tool": broken, "arguments": {}}}
    command.post(rpc("tools/call", wish, 3), **told)
    for bad in (b"{", b"[]", b"\xff", rpc("nothing", id=4), b'{"id":1,"method":5}'):
        command.post(bad, **told)
    for wrong in (f"Bearer {bearer}x", f"Basic {bearer}", bearer):
        assert command.post(rpc("ping", id=5), authorization=wrong)[0] == 401


def test_no_token_and_no_secret_of_a_server_is_written_anywhere(tmp_path: Path) -> None:
    secrets = {
        "CI_TOKEN": "ci-canary-" + "c" * 24,
        "BOSS_TOKEN": "boss-canary-" + "b" * 24,
        "SERVER_KEY": "server-canary-" + "s" * 24,
        TOKEN_VARIABLE: "single-canary-" + "1" * 24,
    }
    fixture = entry("stderr_exit", env={"API_KEY": "${SERVER_KEY}"})
    servers = {"fixture": entry(env={"API_KEY": "${SERVER_KEY}"}), "broken": fixture}
    tokens = {
        "ci": {"token": "${CI_TOKEN}", "toolboxes": ["dev"]},
        "boss": {"token": "${BOSS_TOKEN}"},
    }
    config = config_file(tmp_path, servers, http={"tokens": tokens})
    with serving(config, "0", secrets, "-v") as command:
        said = command.process.stderr
        assert said is not None
        assert said.readline() == "tokens: ci (dev), boss (all toolboxes)\n"
        for name in ("CI_TOKEN", "BOSS_TOKEN", TOKEN_VARIABLE):
            provoke(command, secrets[name])
        _, out, err = stopped(command, signal.SIGTERM)

    for secret in secrets.values():
        for form in forms(secret):
            assert form not in command.line + command.remark + out + err


def test_what_a_token_opens_is_told_as_far_as_it_is_served(tmp_path: Path) -> None:
    tokens = {
        "a": {"token": "${A}", "toolboxes": ["dev", "ops"]},
        "b": {"token": "${B}", "toolboxes": ["ops"]},
    }
    boxes = {name: {"mcpServers": {"fixture": entry()}} for name in ("dev", "ops")}
    config = write_config(tmp_path, {"toolboxes": boxes, "http": {"tokens": tokens}})
    with serving(config, "0", {"A": TOKEN, "B": TOKEN[::-1]}, "--toolbox", "dev") as command:
        told = command.remark
        right = {"authorization": f"Bearer {TOKEN[::-1]}"}
        params: Message = INITIALIZE
        _, _, answer = command.post(rpc("initialize", params, 1), **right)

    assert told == "tokens: a (dev), b (nothing)\n"
    assert "- dev" not in answer["result"]["instructions"]


def test_no_server_finds_a_token_in_its_environment(tmp_path: Path) -> None:
    secrets = {"CI_TOKEN": TOKEN, TOKEN_VARIABLE: TOKEN[::-1]}
    tokens = {"ci": {"token": "${CI_TOKEN}"}}
    config = config_file(tmp_path, {"fixture": entry()}, http={"tokens": tokens})
    with serving(config, env=secrets) as command:
        params: Message = INITIALIZE
        right = {"authorization": f"Bearer {TOKEN}"}
        _, headers, _ = command.post(rpc("initialize", params, 1), **right)
        told = {**right, "mcp_session_id": headers["Mcp-Session-Id"]}
        _, _, answer = command.post(rpc("tools/call", use_tool("fixture", "env"), 2), **told)

    found = msgspec.json.encode(answer).decode()
    assert "PATH" in found
    assert TOKEN not in found
    assert TOKEN[::-1] not in found


# Root may read everything; without its capabilities it is a user like others, who has none to drop.
PLAIN = """
import ctypes, os, sys
for capability in range(64):
    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
READ = "import sys; print(open(f'/proc/{sys.argv[1]}/environ', 'rb').read())"
SLEEP = "import time; print('ready', flush=True); time.sleep(60)"


def plain(*argv: str) -> list[str]:
    """A command line as a user who is not root runs it."""
    return [sys.executable, "-c", PLAIN, sys.executable, *argv]


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone can do that")
@pytest.mark.parametrize("served", [True, False])
def test_no_program_of_the_same_user_reads_our_environment(tmp_path: Path, served: bool) -> None:
    """A server of ours would be one. That of any other program it can read."""
    config = config_file(tmp_path, {"fixture": entry()})
    argv = ("-m", "mcp_workbench", "serve", "--config", str(config), "--http", "0")
    command = plain(*argv) if served else plain("-c", SLEEP)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={TOKEN_VARIABLE: TOKEN}
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith(b"listening" if served else b"ready")
            read = plain("-c", READ, str(process.pid))
            seen = subprocess.run(read, capture_output=True, text=True, timeout=PATIENCE)
        finally:
            process.kill()

    assert ("Permission denied" in seen.stderr) == served
    assert (TOKEN in seen.stdout) == (not served)
