"""Scripts that wait for a person, and go on at another replica."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.approvals.scenes import CAN, ONCE, says, with_answer
from tests.cluster.blocking_hosts import Hosts, hosts_of
from tests.cluster.scenes import LIMIT, cluster
from tests.kit.blocking_http_host import HttpHost
from tests.kit.results import json_text
from tests.kit.servers import FIXTURE

pytestmark = [pytest.mark.peers, pytest.mark.timeout(LIMIT)]

CODE = "await call('dev/one/echo', {'text': 'x'})"
PARAMS = {"name": "run_script", "arguments": {"code": CODE}, "_meta": CAN}


def toolboxes() -> dict[str, Any]:
    server = {"command": sys.executable, "args": ["-E", "-S", FIXTURE], "approve": ["echo"]}
    return {"dev": {"mcpServers": {"one": server}, "scripts": True}}


def suspended(host: HttpHost) -> dict[str, Any]:
    """The request with which the host answers the question of a script."""
    question = host.request("tools/call", PARAMS)["result"]
    assert question["requestState"].startswith("wbs1.")
    return {**PARAMS, **with_answer(question, says(ONCE))}


def error(host: HttpHost, params: dict[str, Any]) -> str:
    return host.request("tools/call", params)["error"]["message"]


@pytest.mark.skipif(find_spec("pydantic_monty") is None, reason="the extra 'code' is not installed")
def test_a_script_goes_on_once_on_any_replica(tmp_path: Path) -> None:
    with cluster(tmp_path, 2, toolboxes=toolboxes()) as running, hosts_of(running) as hosts:
        maker, other, stranger = hosts.modern(0), hosts.modern(1), hosts.modern(1, "bob")
        first, second, third = suspended(maker), suspended(maker), suspended(maker)
        assert "another request, principal" in error(stranger, first)
        assert json_text(other.request("tools/call", first)["result"])["arguments"] == {"text": "x"}
        assert "was used before" in error(maker, first)

        running.replicas[0].kill()

        assert "another request, principal" in error(stranger, second)
        assert json_text(other.request("tools/call", second)["result"])["arguments"] == {
            "text": "x"
        }
        assert "was used before" in error(other, second)
        check_an_engine_that_forgets(running.engine, hosts, third, first)


def check_an_engine_that_forgets(
    engine: Any, hosts: Hosts, unused: dict[str, Any], used: dict[str, Any]
) -> None:
    """Without its data it can't tell what was used: nothing of that time goes on."""
    engine.command("FLUSHALL")
    other = hosts.modern(1)
    for params in (unused, used):
        answer = other.request("tools/call", params)
        assert "x" not in str(answer.get("result", {}).get("structuredContent"))
        assert "can't be marked as used" in str(answer)
