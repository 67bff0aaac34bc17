"""A sign-in at a server behind a URL: made at one replica, used and refreshed by all."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.core.spec import AuthSettings, HttpEndpoint
from mcp_workbench.protocol.oauth import OAuthClient
from mcp_workbench.upstream.oauth.sign_in import store_of
from mcp_workbench.upstream.oauth.store import Credential
from tests.cluster.blocking_hosts import hosts_of
from tests.cluster.scenes import LIMIT, Cluster, cluster
from tests.kit.blocking_http_host import HttpHost
from tests.kit.results import text, use_tool
from tests.kit.sign_in_server import SignInServer, sign_in_server

pytestmark = [pytest.mark.peers, pytest.mark.timeout(LIMIT)]


def sign_in(server: SignInServer, home: Path) -> None:
    """What `login` leaves behind on one machine."""
    tokens = server.tokens()
    server.clients.add("client")
    credential = Credential(
        server.url,
        server.origin,
        f"{server.origin}/token",
        server.url,
        OAuthClient("client"),
        access_token=tokens["access_token"],
        refresh_token=tokens["refresh_token"],
        expires_at=time.time() + 3600,
        lifetime=3600,
        signed_in_at=time.time(),
    )
    target = HttpEndpoint(server.url, auth=AuthSettings())
    store_of(target, {"MCP_WORKBENCH_HOME": str(home)}, "").write(credential)


def who(host: HttpHost) -> Any:
    return text(host.request("tools/call", use_tool("far", "whoami"))["result"])


def everything(running: Cluster) -> bytes:
    """All that lies in the engine, and all that replicas have logged."""
    names = running.engine.command("KEYS", "*").decode("latin-1").split()
    values = [running.engine.command("GET", name) for name in names if ":" in name]
    logs = [replica.log.read_bytes() for replica in running.replicas]
    return b"".join((*values, *logs))


def test_one_sign_in_serves_all_replicas_and_is_refreshed_by_one(tmp_path: Path) -> None:
    with sign_in_server() as server:
        boxes = {"dev": {"mcpServers": {"far": {"url": server.url, "era": "legacy"}}}}
        sign_in(server, tmp_path / "state 0")
        with cluster(tmp_path, 3, toolboxes=boxes) as running, hosts_of(running) as hosts:
            all_hosts = [hosts.modern(number) for number in range(3)]
            assert who(all_hosts[0]) == "alice"
            assert who(all_hosts[1]) == who(all_hosts[2]) == "alice"
            assert server.refreshes == 0

            server.end_tokens()
            with ThreadPoolExecutor() as threads:
                assert list(threads.map(who, all_hosts)) == ["alice"] * 3
            assert server.refreshes == 1

            running.replicas[0].kill()
            server.end_tokens()
            assert who(all_hosts[1]) == who(all_hosts[2]) == "alice"
            assert server.refreshes == 2
            left_behind = everything(running)
            assert not [
                kind for secret, kind in server.secrets.items() if secret.encode() in left_behind
            ]
            check_that_nobody_refreshes_without_the_engine(running, server, all_hosts)
            server.end_tokens()
            check_that_a_logout_counts_for_all(running, all_hosts[1:])
            assert server.refreshes == 3


def check_that_nobody_refreshes_without_the_engine(
    running: Cluster, server: SignInServer, hosts: list[HttpHost]
) -> None:
    """A refresh token is used once; without the engine nobody knows who does."""
    running.engine.stop(keep=True)
    assert who(hosts[1]) == "alice"
    server.end_tokens()
    assert "the engine of the cluster is away" in str(who(hosts[1]))
    assert server.refreshes == 2
    running.engine.start()
    end = time.monotonic() + 30
    while who(hosts[1]) != "alice":
        assert time.monotonic() < end, who(hosts[1])
        time.sleep(0.2)
    assert server.refreshes == 3


def check_that_a_logout_counts_for_all(running: Cluster, hosts: list[HttpHost]) -> None:
    """At any machine: the others stop when their token does."""
    home = running.folder / "state 2"
    done = running.command("logout", "dev/far", MCP_WORKBENCH_HOME=str(home))
    assert done.returncode == 0, done.stderr
    for host in hosts:
        assert "logout" in str(who(host))
