"""The files in `deploy/` with the programs that read them: validators, and real balancers before real replicas."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client.streamable_http import streamable_http_client

from tests.deploy.test_deploy_files import CONFIG, DEPLOY, text
from tests.kit.command import HttpCommand, serving
from tests.kit.config import config_file, entry
from tests.kit.http_host import ACCEPT, rpc
from tests.kit.results import INITIALIZE, MODERN
from tests.kit.sdk_host import by_identifier, client
from tests.kit.valkey import free_port, valkey

pytestmark = [pytest.mark.peers, pytest.mark.timeout(120)]

TOKEN = "team-" + "t" * 32
CLUSTER = {"url": "${VALKEY_URL}", "key": "${KEY}", "listen": "127.0.0.1:0"}
MANIFESTS = sorted(DEPLOY.glob("kubernetes/*.yaml"))
SITE = "workbench.example.com"


def program(name: str) -> str:
    """The path of a program, in this environment or on this machine."""
    beside = Path(sys.executable).parent / name
    found = (
        str(beside)
        if beside.exists()
        else shutil.which(name) or shutil.which(name, path="/usr/sbin")
    )
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def checked(*argv: str, **variables: str) -> str:
    """The output of a program that must succeed."""
    done = subprocess.run(
        argv, env={**os.environ, **variables}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


# Validators


@pytest.mark.parametrize(
    "manifest", [m for m in MANIFESTS if m.stem != "kustomization"], ids=lambda m: m.stem
)
def test_manifests_fit_the_schemas_of_kubernetes(manifest: Path) -> None:
    assert "passed" in checked(program("kubernetes-validate"), "--strict", str(manifest))


def test_the_kustomization_names_every_manifest() -> None:
    yaml = pytest.importorskip("yaml")
    listed = yaml.safe_load(text("kubernetes/kustomization.yaml"))["resources"]
    others = {m.name for m in MANIFESTS} - {"kustomization.yaml", "secret.example.yaml"}
    assert set(listed) == others


def test_manifests_select_each_other() -> None:
    yaml = pytest.importorskip("yaml")
    parts = [part for m in MANIFESTS for part in yaml.safe_load_all(m.read_text())]
    pods = {
        p["metadata"]["name"]: p["spec"]["template"] for p in parts if p["kind"] == "Deployment"
    }
    labels = [pod["metadata"]["labels"] for pod in pods.values()]
    for part in parts:
        if part["kind"] in ("Service", "PodDisruptionBudget", "NetworkPolicy"):
            selector = part["spec"].get("selector") or part["spec"]["podSelector"]
            assert selector.get("matchLabels", selector) in labels, part["metadata"]
    (scaler,) = [part for part in parts if part["kind"] == "HorizontalPodAutoscaler"]
    assert scaler["spec"]["scaleTargetRef"]["name"] in pods
    (secret,) = [part for part in parts if part["kind"] == "Secret"]
    container = pods["mcp-workbench"]["spec"]["containers"][0]
    wanted = {
        e["valueFrom"]["secretKeyRef"]["key"] for e in container["env"] if "secretKeyRef" in str(e)
    }
    assert wanted == set(secret["stringData"])


def test_the_autoscaler_uses_metrics_that_exist() -> None:
    page = DEPLOY.parent / "docs" / "observe.md"
    if not page.exists():
        pytest.skip("there is no page of metrics")
    for name in ("mcp_workbench_sessions", "mcp_workbench_calls_total"):
        assert name in text("kubernetes/autoscaler.yaml")
        assert name in page.read_text()


def test_compose_is_understood() -> None:
    secrets = dict.fromkeys(
        ("VALKEY_PASSWORD", "WORKBENCH_CLUSTER_KEY", "TEAM_TOKEN", "METRICS_TOKEN"), "x" * 32
    )
    yaml = pytest.importorskip("yaml")
    shown = checked(
        program("podman-compose"), "--file", str(DEPLOY / "compose.yaml"), "config", **secrets
    )
    services: dict[str, Any] = yaml.safe_load(shown[shown.index("name:") :])["services"]
    replicas = [services[f"replica-{number}"] for number in (1, 2, 3)]
    assert {r["environment"]["REPLICA_ADDRESS"] for r in replicas} == {
        "replica-1",
        "replica-2",
        "replica-3",
    }
    for service in services.values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]


def test_the_unit_is_understood_by_systemd(tmp_path: Path) -> None:
    analyze = program("systemd-analyze")
    own = tmp_path / "mcp-workbench.service"
    unit = text("systemd/mcp-workbench.service")
    own.write_text(unit.replace("/opt/mcp-workbench/bin/mcp-workbench", "/bin/true"))
    assert checked(analyze, "verify", str(own)).strip() == ""


def test_rules_of_caddy_are_valid() -> None:
    argv = ["validate", "--adapter", "caddyfile", "--config", str(DEPLOY / "balancers/Caddyfile")]
    assert "Valid configuration" in checked(program("caddy"), *argv)


# Real balancers before real replicas


def wait_for(url: str, host: str) -> None:
    """Until a request is answered by a replica."""
    end = time.monotonic() + 30
    while True:
        try:
            request = urllib.request.Request(url, headers={"host": host})
            with urllib.request.urlopen(request, timeout=2):
                return
        except OSError:
            assert time.monotonic() < end, "the balancer does not answer"
            time.sleep(0.05)


@contextmanager
def running(argv: list[str], port: int, **variables: str) -> Generator[str]:
    """A balancer; it is ended afterwards."""
    env = {**os.environ, **variables}
    process = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(f"http://127.0.0.1:{port}/readyz", SITE)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


def balancer(name: str, folder: Path, replicas: list[HttpCommand]) -> Any:
    """One of ours with our file, in which only addresses are changed."""
    port = free_port()
    places = [f"127.0.0.1:{replica.port}" for replica in replicas]
    if name == "haproxy":
        file = folder / "haproxy.cfg"
        file.write_text(text("balancers/haproxy.cfg").replace(":7410", f"127.0.0.1:{port}"))
        variables = {f"REPLICAS_{n}": place for n, place in enumerate(places, 1)}
        argv = [program("haproxy"), "-db", "-f", str(file)]
        checked(*argv[:1], "-c", "-f", str(file), **variables)
        return running(argv, port, **variables)
    if name == "nginx":
        rules = text("balancers/nginx.conf").replace("listen 7410", f"listen 127.0.0.1:{port}")
        for number, place in enumerate(places, 11):
            rules = rules.replace(f"10.0.0.{number}:7411", place)
        file = folder / "nginx.conf"
        where = f'pid "{folder}/pid"; error_log stderr; daemon off;\nevents {{}}\n'
        paths = "".join(
            f'{kind}_temp_path "{folder}/{kind}";\n'
            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        file.write_text(f"{where}http {{\naccess_log off;\n{paths}{rules}}}\n")
        argv = [program("nginx"), "-c", str(file)]
        checked(*argv, "-t")
        return running(argv, port)
    file = folder / "Caddyfile"
    file.write_text("{\n\tadmin off\n\tauto_https off\n}\n" + text("balancers/Caddyfile"))
    variables = {
        "WORKBENCH_SITE": f"http://127.0.0.1:{port}, http://{SITE}:{port}",
        "WORKBENCH_REPLICAS": " ".join(places),
        "HOME": str(folder),
    }
    argv = [program("caddy"), "run", "--adapter", "caddyfile", "--config", str(file)]
    return running(argv, port, **variables)


@pytest.mark.parametrize("name", ["haproxy", "nginx", "caddy"])
async def test_a_replica_that_is_stopped_costs_no_call(name: str, tmp_path: Path) -> None:
    """It passes on to the others what a balancer still sends to it."""
    tokens = {"team": {"token": "${TEAM_TOKEN}"}}
    http = {"allowedHosts": [SITE, "localhost"], "tokens": tokens}
    config = config_file(tmp_path, {"fixture": entry()}, http=http, cluster=CLUSTER)
    with ExitStack() as stack:
        engine = stack.enter_context(valkey(tmp_path))
        env = {"TEAM_TOKEN": TOKEN, "KEY": "k" * 32, "VALKEY_URL": engine.url}
        replicas = [stack.enter_context(serving(config, "0", env)) for _ in range(3)]
        url = stack.enter_context(balancer(name, tmp_path, replicas))
        headers = {"authorization": f"Bearer {TOKEN}", "host": SITE}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=30, trust_env=False) as web,
            client(streamable_http_client(url, http_client=web), mode=MODERN) as host,
        ):
            seen: set[int] = set()
            stop = by_identifier("fixture", "stats", {}, "dev")
            for number in range(120):
                if number == 60:
                    replicas[0].process.send_signal(signal.SIGTERM)
                result = await host.call_tool(*stop)
                assert not result.is_error, result
                seen.add(hash(str(result.content)))
            assert replicas[0].process.wait(30) == 0
            assert (await web.get(url.replace("/mcp", "/metrics"))).status_code == 404


async def test_replicas_behind_haproxy_share_sessions_and_limits(tmp_path: Path) -> None:
    """The configuration of `deploy/`, as far as this machine has what it names."""
    limits = {"callsPerMinute": 60, "concurrentCalls": 8, "sessions": 4}
    tokens = {"team": {"token": "${TEAM_TOKEN}", "limits": limits}}
    http = {"allowedHosts": [SITE, "localhost"], "tokens": tokens}
    config = config_file(tmp_path, {"fixture": entry()}, http=http, cluster=CLUSTER)
    with ExitStack() as stack:
        engine = stack.enter_context(valkey(tmp_path))
        env = {"TEAM_TOKEN": TOKEN, "KEY": "k" * 32, "VALKEY_URL": engine.url}
        replicas = [stack.enter_context(serving(config, "0", env)) for _ in range(3)]
        for replica in replicas:
            replica.drain()
        url = stack.enter_context(balancer("haproxy", tmp_path, replicas))
        headers = {"authorization": f"Bearer {TOKEN}", "host": SITE}
        stats = by_identifier("fixture", "stats", {}, "dev")
        admitted = 0
        async with httpx2.AsyncClient(headers=headers, timeout=30, trust_env=False) as web:
            for mode in ("legacy", MODERN, "legacy", MODERN):
                place = streamable_http_client(url, http_client=web)
                async with client(place, mode=mode) as host:
                    for _ in range(20):
                        result = await host.call_tool(*stats)
                        admitted += not result.is_error
        assert 57 <= admitted <= 63
        sessions = [open_session(url) for _ in range(8)]
        assert sorted(sessions) == [200] * 4 + [429] * 4


def open_session(url: str) -> int:
    """The status of an `initialize`, whose session stays open."""
    answer = httpx2.post(
        url,
        content=rpc("initialize", INITIALIZE, 1),
        headers={
            "authorization": f"Bearer {TOKEN}",
            "host": SITE,
            "accept": ACCEPT,
            "content-type": "application/json",
        },
        trust_env=False,
    )
    return answer.status_code


def test_the_configuration_passes_check(tmp_path: Path) -> None:
    assert CONFIG.exists()
    out = checked(sys.executable, "-m", "mcp_workbench", "check", "--config", str(CONFIG))
    assert "error" not in out.lower().replace("0 errors", "")
