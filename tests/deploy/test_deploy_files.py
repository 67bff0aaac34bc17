"""The files in `deploy/`: as far as they can be checked without the programs that read them."""

from __future__ import annotations

import re
from pathlib import Path

from mcp_workbench.config.load import load_config
from mcp_workbench.core.spec import PrincipalLimits

DEPLOY = Path(__file__).parents[2] / "deploy"
CONFIG = DEPLOY / "workbench-config.json"
SECRETS = ("VALKEY_PASSWORD", "WORKBENCH_CLUSTER_KEY", "TEAM_TOKEN", "METRICS_TOKEN")


def text(name: str) -> str:
    return (DEPLOY / name).read_text("utf-8")


def test_the_configuration_is_valid() -> None:
    snapshot = load_config(CONFIG)
    assert snapshot.cluster is not None
    assert snapshot.http.tokens[0].limits == PrincipalLimits(6000, 64, 500)
    assert "localhost" in snapshot.http.allowed_hosts  # health checks come by this name


def test_the_config_map_has_the_same_configuration() -> None:
    _, _, block = text("kubernetes/configmap.yaml").partition("workbench-config.json: |\n")
    assert (
        "".join(line[4:] or "\n" for line in block.splitlines(keepends=True)) == CONFIG.read_text()
    )


def test_every_variable_of_the_configuration_is_set_everywhere() -> None:
    variables = set(re.findall(r"\$\{(\w+)\}", CONFIG.read_text()))
    for name in ("compose.yaml", "kubernetes/deployment.yaml"):
        assert all(variable in text(name) for variable in variables), name


def test_no_file_has_a_secret() -> None:
    for file in DEPLOY.rglob("*"):
        if not file.is_file():
            continue
        for name in SECRETS:
            for value in re.findall(rf"^\s*{name}: *(\S+)", file.read_text("utf-8"), re.M):
                assert value == "replace-me" or value.startswith("${"), (file, value)


def test_the_image_runs_as_nobody_and_writes_to_its_state_alone() -> None:
    lines = text("Containerfile").splitlines()
    stage = lines[max(i for i, line in enumerate(lines) if line.startswith("FROM ")) :]
    assert "USER 10001:10001" in stage
    assert [line for line in stage if line.startswith("VOLUME")] == ["VOLUME /state"]
    assert any(line.startswith("HEALTHCHECK") for line in stage)
    assert not any(line.startswith("ADD ") for line in lines)


def test_containers_have_a_read_only_root_and_no_capabilities() -> None:
    compose = text("compose.yaml")
    assert compose.count("read_only: true") == 3  # replicas, Valkey, balancer
    assert compose.count("cap_drop: [ALL]") == 3
    for name in ("kubernetes/deployment.yaml", "kubernetes/valkey.yaml"):
        manifest = text(name)
        assert "readOnlyRootFilesystem: true" in manifest
        assert "allowPrivilegeEscalation: false" in manifest
        assert "capabilities: {drop: [ALL]}" in manifest
        assert "runAsNonRoot: true" in manifest


def test_whoever_stops_a_replica_waits_longer_than_its_drain() -> None:
    drain = load_config(CONFIG).limits.drain
    kubernetes = text("kubernetes/deployment.yaml")
    grace = re.search(r"terminationGracePeriodSeconds: (\d+)", kubernetes)
    pause = re.search(r'preStop: .*sleep, "(\d+)"', kubernetes)
    compose = re.search(r"stop_grace_period: (\d+)s", text("compose.yaml"))
    unit = re.search(r"TimeoutStopSec=(\d+)", text("systemd/mcp-workbench.service"))
    assert grace
    assert pause
    assert compose
    assert unit
    servers = 5  # seconds for servers to end, at most
    assert int(grace[1]) >= drain + int(pause[1]) + servers
    assert int(compose[1]) >= drain + servers
    assert int(unit[1]) >= drain + servers
