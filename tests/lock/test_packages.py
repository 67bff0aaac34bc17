"""Which package and version a launch line leads to."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.cli.lock_packages import resolved_package
from mcp_workbench.core.spec import HttpEndpoint, ServerAddress, ServerSpec, StdioCommand
from tests.lock.scenes import SERVER, Scene

DIGEST = "sha256:" + "ab" * 32


def spec(command: str, *args: str) -> ServerSpec:
    return ServerSpec(ServerAddress("dev", "s"), StdioCommand(command, args))


@pytest.mark.parametrize(
    ("line", "package"),
    [
        ("npx -y @scope/server@1.2.3 /tmp", "npm:@scope/server@1.2.3"),
        ("/usr/bin/npx server@1.2.3-beta.1", "npm:server@1.2.3-beta.1"),
        ("npx -y --package=server@2.0.0 bin", "npm:server@2.0.0"),
        ("npx -p server@2.0.0 bin", "npm:server@2.0.0"),
        ("npx -y server", ""),
        ("npx -y server@latest", ""),
        ("npx -y @scope/server", ""),
        ("npx -y server@^1.2", ""),
        ("npx", ""),
        ("uvx mcp-server-git==2026.1.2 --repository .", "pypi:mcp-server-git@2026.1.2"),
        ("uvx mcp-server-git@2026.1.2", "pypi:mcp-server-git@2026.1.2"),
        ("uvx --from mcp[cli]==1.2 mcp", "pypi:mcp@1.2"),
        ("uvx --python 3.12 server==1", "pypi:server@1"),
        ("uv tool run server==1.0", "pypi:server@1.0"),
        ("uvx server", ""),
        ("uvx server>=1.0", ""),
        (f"docker run -i --rm -e TOKEN mcp/git@{DIGEST}", f"oci:mcp/git@{DIGEST}"),
        (f"podman run --name=x -i ghcr.io/a/b:1@{DIGEST} stdio", f"oci:ghcr.io/a/b:1@{DIGEST}"),
        ("node server.js", ""),
    ],
)
def test_an_exact_version_of_the_launch_line_is_known(line: str, package: str) -> None:
    assert resolved_package(spec(*shlex.split(line)), {}) == package


def test_a_url_has_no_package() -> None:
    url = ServerSpec(ServerAddress("dev", "s"), HttpEndpoint("https://example.com/npx"))
    assert resolved_package(url, {}) == ""


def installed(cache: Path, name: str, version: str) -> None:
    """What npx leaves behind of a package that it has started under this name."""
    folder = cache / "_npx" / "0123456789abcdef"
    inner = folder / "node_modules" / name
    inner.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text(json.dumps({"_npx": {"packages": [name]}}))
    (inner / "package.json").write_text(json.dumps({"name": name, "version": version}))


def test_npx_knows_the_version_that_it_has_installed(tmp_path: Path) -> None:
    installed(tmp_path / ".npm", "@scope/server", "3.1.4")
    broken = tmp_path / ".npm" / "_npx" / "broken"
    broken.mkdir()
    (broken / "package.json").write_text("{")
    home = {"HOME": str(tmp_path)}

    assert resolved_package(spec("npx", "-y", "@scope/server"), home) == "npm:@scope/server@3.1.4"
    assert resolved_package(spec("npx", "-y", "@scope/other"), home) == ""
    assert resolved_package(spec("npx", "-y", "@scope/server"), {}) == ""
    moved = {"npm_config_cache": str(tmp_path / ".npm")}
    assert resolved_package(spec("npx", "@scope/server"), moved) == "npm:@scope/server@3.1.4"


@pytest.mark.parametrize(
    ("printed", "status", "package"),
    [
        (json.dumps([f"mcp/git@{DIGEST}"]), 0, f"oci:mcp/git@{DIGEST}"),
        ("[]", 0, ""),
        ("null", 0, ""),
        ("no such image", 1, ""),
    ],
)
def test_a_container_program_knows_the_digest_of_its_image(
    tmp_path: Path, printed: str, status: int, package: str
) -> None:
    podman = tmp_path / "podman"
    podman.write_text(f"#!/bin/sh\necho {shlex.quote(printed)}\nexit {status}\n")
    podman.chmod(0o755)

    assert resolved_package(spec(str(podman), "run", "-i", "mcp/git:1"), {}) == package


def test_verify_names_a_package_that_has_moved_under_the_same_launch_line(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    npx = tmp_path / "npx"
    argv = shlex.join([sys.executable, "-E", "-S", SERVER, str(scene.definitions)])
    npx.write_text(f"#!/bin/sh\nexec {argv}\n")
    npx.chmod(0o755)
    scene.write_config(command=str(npx), args=["-y", "some-server"])
    cache = tmp_path / "npm cache"
    variables: dict[str, Any] = {**scene.home, "npm_config_cache": str(cache)}

    def run(*argv: str) -> Any:
        from tests.kit.command import run_command

        return run_command(*argv, "--config", str(scene.config), cwd=tmp_path, **variables)

    installed(cache, "some-server", "1.0.0")
    assert run("lock").status == 0
    assert scene.locked()["package"] == "npm:some-server@1.0.0"
    assert run("lock", "verify").status == 0
    installed(cache, "some-server", "1.0.1")

    done = run("lock", "verify")

    assert done.status == 1
    assert "package: npm:some-server@1.0.0 → npm:some-server@1.0.1" in done.out
