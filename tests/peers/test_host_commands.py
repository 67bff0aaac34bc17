"""Real hosts with their own commands: they take our entry, read it back, connect, and lose it again.

Each has a home of its own and no way out: its proxy is a closed port of this machine.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from conftest import HERE

pytestmark = [pytest.mark.peers, pytest.mark.timeout(240)]

WISHES = HERE / "hosts" / "package.json"
PROGRAMS = HERE.parents[1] / ".node-hosts" / "node_modules"
SECONDS = 60  # for one command of a host, on a busy machine
NOWHERE = "http://127.0.0.1:9"  # nobody listens there
QUIET = {
    "CI": "1",
    "NO_COLOR": "1",
    "TERM": "dumb",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "COPILOT_AUTO_UPDATE": "false",
    **dict.fromkeys(
        ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"), NOWHERE
    ),
    "NO_PROXY": "",
}
JSON = '{\n  // kept\n  "%s": {\n    "other": %s\n  }\n}\n'


class Real(NamedTuple):
    """A host: its program, its file as somebody left it, and how it says that it reached us."""

    program: str
    file: str
    text: str
    connected: str = ""  # nothing where `mcp list` does not connect

    @property
    def listing(self) -> list[str]:
        return [self.program, "mcp", "list"]


OTHER = '{"command": "/bin/false", "args": []}'
REAL = {
    "claude-code": Real(
        "claude", ".claude.json", JSON.replace("  // kept\n", "") % ("mcpServers", OTHER), "✔ Connected"
    ),
    "codex": Real(
        "codex",
        ".codex/config.toml",
        '# kept\n[mcp_servers.other] # and this\ncommand = "/bin/false"\n\n[tui]\n',
    ),
    "gemini": Real(
        "gemini", ".gemini/settings.json", JSON % ("mcpServers", OTHER), " - Connected"
    ),
    "opencode": Real(
        "opencode",
        ".config/opencode/opencode.json",
        JSON % ("mcp", '{"type": "local", "command": ["/bin/false"], "enabled": false},'),
        "✓ workbench",
    ),
    "copilot": Real("copilot", ".copilot/mcp-config.json", JSON.replace("  // kept\n", "") % ("mcpServers", OTHER[:-1] + ', "tools": ["*"]}')),
}  # fmt: skip


class Scene(NamedTuple):
    """One host on a machine of its own."""

    id: str
    host: Real
    home: Path
    folder: Path
    env: dict[str, str]

    @property
    def file(self) -> Path:
        return self.home / self.host.file

    def run(self, *argv: str) -> str:
        done = subprocess.run(
            argv,
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
        )
        assert done.returncode == 0, done.stdout
        return re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)

    def bench(self, *argv: str) -> str:
        return self.run(sys.executable, "-m", "mcp_workbench", *argv)

    def list(self) -> str:
        return self.run(*self.host.listing)


@pytest.fixture(scope="session")
def programs() -> Path:
    wanted: dict[str, str] = json.loads(WISHES.read_text())["dependencies"]
    lacking = [
        name
        for name, version in wanted.items()
        if not (PROGRAMS / name / "package.json").is_file()
        or json.loads((PROGRAMS / name / "package.json").read_text())["version"] != version
    ]
    if lacking or shutil.which("node") is None:
        pytest.fail(f"missing: {lacking or 'node'}. `make peers-hosts` fetches it.", pytrace=False)
    return PROGRAMS / ".bin"


@pytest.fixture(params=REAL)
def scene(request: pytest.FixtureRequest, programs: Path, tmp_path: Path) -> Scene:
    home, folder = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    folder.mkdir()
    node = Path(shutil.which("node") or "node").parent
    env = {
        **QUIET,
        "HOME": str(home),
        "PATH": f"{programs}:{node}:/usr/bin:/bin",
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    config = folder / "workbench-config.json"
    server = {"command": sys.executable, "args": ["-P", "-m", "mcp_workbench.demo", "basics"]}
    config.write_text(json.dumps({"mcpServers": {"basics": server}}))
    config.chmod(0o600)
    trusted = home / ".gemini" / "trustedFolders.json"  # otherwise Gemini CLI connects to nobody
    trusted.parent.mkdir()
    trusted.write_text(json.dumps({str(folder): "TRUST_FOLDER"}))
    return Scene(request.param, REAL[request.param], home, folder, env)


def sees_us(scene: Scene) -> bool:
    listed = scene.list()
    return "workbench" in listed and (not scene.host.connected or scene.host.connected in listed)


@pytest.mark.parametrize(
    ("way", "there"),
    [("own", True), ("own", False), ("edit", True)],
    ids=["own, with a file", "own, without", "edit"],
)
def test_a_host_takes_us_reads_us_back_and_loses_us(scene: Scene, way: str, there: bool) -> None:
    before = scene.host.text.encode() if there else None
    if before is not None:
        scene.file.parent.mkdir(parents=True, exist_ok=True)
        scene.file.write_bytes(before)

    told = scene.bench("install", scene.id, "--yes", *(["--edit"] if way == "edit" else []))
    back = scene.bench("undo")
    after = scene.file.read_bytes() if scene.file.exists() else None
    scene.bench("install", scene.id, "--yes", *(["--edit"] if way == "edit" else []))
    seen = sees_us(scene)
    looked_at = json.loads(scene.bench("doctor", "--json"))["lines"]
    scene.bench("uninstall", scene.id, "--yes", *(["--edit"] if way == "edit" else []))

    assert (f"$ {scene.host.program} mcp add" in told) == (way == "own")
    assert "byte for byte" in back
    assert after == before
    assert seen
    assert [
        line["message"].partition("' in ")[0] for line in looked_at if line["subject"] == scene.id
    ] == ["'workbench"]
    assert "workbench" not in scene.list()
    if way == "edit" and scene.id not in ("claude-code", "opencode"):  # they write at every start
        assert scene.file.read_bytes() == before


def test_what_a_host_rewrote_since_loses_only_us(scene: Scene) -> None:
    scene.file.parent.mkdir(parents=True, exist_ok=True)
    scene.file.write_text(scene.host.text)
    scene.bench("install", scene.id, "--yes")
    scene.file.write_bytes(scene.file.read_bytes() + b"\n")

    back = scene.bench("undo")

    assert "file changed since; reverted only our edit" in back
    listed = scene.list()
    assert "workbench" not in listed
    assert "other" in listed


@pytest.mark.parametrize("scene", ["codex"], indirect=True)
def test_a_host_that_hands_on_named_variables_reads_their_names(scene: Scene) -> None:
    config = scene.folder / "workbench-config.json"
    server = json.loads(config.read_text())["mcpServers"]["basics"]
    config.write_text(
        json.dumps({"mcpServers": {"basics": server | {"env": {"A": "${PASSED_ON}"}}}})
    )

    scene.bench("install", "codex", "--yes")

    listed = scene.run("codex", "mcp", "list", "--json")
    [entry] = json.loads(listed[listed.index("[\n") :])
    assert entry["transport"]["env_vars"] == ["PASSED_ON"]
