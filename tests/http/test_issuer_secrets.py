"""With an issuer, no token and no secret leaves the port: not to a server, not to a log, not to a file."""

from __future__ import annotations

import hashlib
import signal
from pathlib import Path
from typing import Any

from tests.kit.blocking_http_host import HttpHost
from tests.kit.clock import PATIENCE
from tests.kit.command import HttpCommand, serving
from tests.kit.config import config_file, entry, url_entry
from tests.kit.http_host import rpc
from tests.kit.issuer import AUDIENCE, CLIENT, TokenIssuer, token_issuer
from tests.kit.results import INITIALIZE, use_tool
from tests.kit.servers.bad_http import bad_http_in_a_thread

CANARY = "canary-" + "9f8e7d6c" * 4


def tokens(issuer: TokenIssuer) -> dict[str, str]:
    """Good ones and bad ones, each with a canary in it or as it is."""
    return {
        "jwt": issuer.token(jti=CANARY),
        "opaque": issuer.opaque(CANARY),
        "expired": issuer.token(jti=CANARY, exp=1),
        "foreign": issuer.token(jti=CANARY, aud="https://other.example"),
        "unknown key": issuer.token(jti=CANARY, header={"kid": "other"}),
        "made up": CANARY + "-made-up",
        "malformed": f"{CANARY}.{CANARY}.{CANARY}",
    }


def test_tokens_reach_no_server_no_log_and_no_file(tmp_path: Path) -> None:
    home, log = tmp_path / "state", tmp_path / "calls"
    with token_issuer() as issuer, bad_http_in_a_thread() as bad:
        asking = {"clientId": CLIENT[0], "clientSecret": "${ISSUER_SECRET}"}
        auth = {"issuer": issuer.url, "audience": AUDIENCE, "introspection": asking}
        servers = {"fixture": entry(), "remote": url_entry(bad.url("/session/ok"))}
        config = config_file(tmp_path, servers, http={"auth": auth})
        env = {"ISSUER_SECRET": CLIENT[1], "MCP_WORKBENCH_HOME": str(home)}
        given = tokens(issuer)
        with serving(config, "0", env, "-v", "--log-calls", str(log)) as command:
            assert command.remark == f"sign-in: {issuer.url} (all toolboxes)\n"
            reader = command.drain()
            environments = [called(command, given[kind]) for kind in ("jwt", "opaque")]
            refused = {kind: status(command, token) for kind, token in given.items()}
            code, out = ended(command)
            reader.join()
        requests = [f"{request.headers}{request.raw!r}" for request in bad.seen]

    assert code == 0
    assert refused == {kind: 200 if kind in ("jwt", "opaque") else 401 for kind in given}
    files = [
        path.read_bytes().decode("latin-1") for path in [*home.rglob("*"), log] if path.is_file()
    ]
    seen = [out, command.complaints, *map(str, environments), *requests, *files]
    assert "a token was refused" in command.complaints
    assert requests
    assert files
    for text in seen:
        for secret in (*given.values(), CANARY, CLIENT[1]):
            assert secret not in text
            assert hashlib.sha256(secret.encode()).hexdigest() not in text


def called(command: HttpCommand, token: str) -> Any:
    """Both servers are called in both eras; what the first one sees of its own environment."""
    answer: Any = None
    for modern in (False, True):
        host = HttpHost(command.url, modern=modern, token=token)
        host.request("tools/call", use_tool("remote", "echo"))
        answer = host.request("tools/call", use_tool("fixture", "env"))
        host.close()
    assert "PATH" in str(answer)
    return answer


def status(command: HttpCommand, token: str) -> int:
    return command.post(rpc("initialize", INITIALIZE, 1), authorization=f"Bearer {token}")[0]


def ended(command: HttpCommand) -> tuple[int, str]:
    """Its status and its output; its stderr is read already."""
    command.process.send_signal(signal.SIGTERM)
    code = command.process.wait(PATIENCE)
    assert command.process.stdout is not None
    return code, command.process.stdout.read()
