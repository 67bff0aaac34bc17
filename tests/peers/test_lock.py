"""Two releases of the reference server: the same one raises no alarm, an upgrade lists every change."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from crew import OFFICIAL

from tests.kit.command import run_command
from tests.kit.config import config_file
from tests.kit.pipe_host import PipeHost
from tests.kit.results import INITIALIZE, Json, error_code

pytestmark = pytest.mark.peers

# The same as `lock` declares: the server offers more to hosts that can be asked.
CAPABILITIES: Json = {
    "elicitation": {"form": {}, "url": {}},
    "roots": {"listChanged": True},
    "sampling": {"context": {}, "tools": {}},
}
KINDS = {
    "tools": ("tools/list", "tools", "name"),
    "prompts": ("prompts/list", "prompts", "name"),
    "templates": ("resources/templates/list", "resourceTemplates", "uriTemplate"),
}
OLD, NEW = "everything-2025-06-18", f"{OFFICIAL}/server-everything"


def script(workplace: Path, package: str) -> Path:
    return workplace / "node_modules" / package / "dist" / "index.js"


class Direct:
    """A host that talks to a release by itself."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._input, self._output = process.stdin, process.stdout
        self._sent = 0

    def send(self, message: Json) -> None:
        self._input.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self._input.flush()

    def ask(self, method: str, params: Json) -> Json:
        self._sent += 1
        self.send({"id": self._sent, "method": method, "params": params})
        for line in iter(self._output.readline, ""):
            message = json.loads(line)
            if message.get("id") == self._sent and "method" not in message:
                return message.get("result", {})
            if "method" in message and "id" in message:
                self.send({"id": message["id"], "result": {"roots": []}})
        raise AssertionError("it has ended")


def defined(workplace: Path, package: str) -> dict[tuple[str, str], Any]:
    """What a release defines, asked by this test alone."""
    argv = ["node", str(script(workplace, package)), "stdio"]
    with subprocess.Popen(argv, stdin=-1, stdout=-1, stderr=-3, text=True) as process:
        try:
            host = Direct(process)
            hello = host.ask("initialize", {**INITIALIZE, "capabilities": CAPABILITIES})
            host.send({"method": "notifications/initialized"})
            text = hello.get("instructions")
            found: dict[tuple[str, str], Any] = {("instructions", ""): text} if text else {}
            for kind, (method, member, key) in KINDS.items():
                found |= {(kind, one[key]): one for one in host.ask(method, {}).get(member, [])}
        finally:
            process.kill()  # some releases stay when their input ends
    return found


@pytest.fixture
def config(tmp_path: Path, workplace: Path) -> Path:
    """A server whose launch line leads to the old release, until `upgrade`."""
    (tmp_path / "current").symlink_to(script(workplace, OLD))
    server = {"command": "node", "args": [str(tmp_path / "current"), "stdio"], "lock": "pin"}
    return config_file(tmp_path, {"everything": server})


def upgrade(config: Path, workplace: Path) -> None:
    current = config.parent / "current"
    current.unlink()
    current.symlink_to(script(workplace, NEW))


def run(config: Path, *argv: str) -> Any:
    home = str(config.parent / "state")
    return run_command(*argv, "--config", str(config), cwd=config.parent, MCP_WORKBENCH_HOME=home)


def differences(config: Path) -> dict[tuple[str, str], str]:
    [server] = run(config, "lock", "diff", "--json").data["servers"]
    return {(one["kind"], one["name"]): one["state"] for one in server["differences"]}


def test_the_same_release_raises_no_alarm(config: Path) -> None:
    assert run(config, "lock").status == 0
    before = (config.parent / "mcp-workbench.lock").read_bytes()
    alarms = 0
    hosts: tuple[Json, ...] = ({}, {"elicitation": {}}, CAPABILITIES)
    for capabilities in hosts:
        with PipeHost(config, env={"MCP_WORKBENCH_HOME": str(config.parent / "state")}) as host:
            host.result("initialize", {**INITIALIZE, "capabilities": capabilities})
            host.notify("notifications/initialized")
            names = {tool["name"] for tool in host.open("dev")["tools"]}
            host.result("prompts/list")
            host.result("resources/templates/list")
            alarms += host.stderr.count("since it was recorded")
        assert "echo" in names

    print(f"same release: {alarms} alarms")
    assert alarms == 0
    assert differences(config) == {}
    assert run(config, "lock", "verify").status == 0
    assert run(config, "lock").status == 0
    assert (config.parent / "mcp-workbench.lock").read_bytes() == before


def test_an_upgrade_lists_every_change(config: Path, workplace: Path) -> None:
    old, new = defined(workplace, OLD), defined(workplace, NEW)
    expected = {key: "gone" for key in old if key not in new}
    expected |= {key: "new" for key in new if key not in old}
    expected |= {key: "changed" for key in new if key in old and new[key] != old[key]}
    assert run(config, "lock").status == 0
    upgrade(config, workplace)

    listed = differences(config)

    print(f"upgrade: {len(listed)} of {len(expected)} changes listed")
    assert listed == expected
    assert {"gone", "new", "changed"} <= set(expected.values())
    assert run(config, "lock", "verify").status == 1
    with PipeHost(config, env={"MCP_WORKBENCH_HOME": str(config.parent / "state")}) as host:
        host.result("initialize", {**INITIALIZE, "capabilities": CAPABILITIES})
        host.notify("notifications/initialized")
        shown = {tool["name"] for tool in host.open("dev")["tools"]}
        blocked = sorted(
            n for (k, n), state in expected.items() if k == "tools" and state != "gone"
        )
        codes = {error_code(host.use("everything", name, {})) for name in blocked}
    unchanged = {name for kind, name in new if kind == "tools" and (kind, name) not in expected}
    assert shown == unchanged
    assert codes == {"quarantined"}
