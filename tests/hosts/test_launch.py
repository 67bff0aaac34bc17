"""What `install` writes: a command that works from any folder, tomorrow as well."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_workbench import __version__
from mcp_workbench.hosts.own_entry import Launch, choose_launch, temporary_runner


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "venv" / "bin" / "mcp-workbench"
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_a_command_in_an_environment_is_written_by_its_full_path(script: Path) -> None:
    assert choose_launch(script, script.parent / "python", "x").words == (str(script),)


def test_a_link_on_the_path_that_outlives_the_environment_is_better(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / "local" / "mcp-workbench"
    link.parent.mkdir()
    link.symlink_to(script)
    monkeypatch.setenv("PATH", str(link.parent))

    assert choose_launch(script, script.parent / "python", "x").words == (str(link),)


def test_another_program_of_that_name_on_the_path_is_not_us(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other" / "mcp-workbench"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(other.parent))

    assert choose_launch(script, script.parent / "python", "x").words == (str(script),)


def test_without_a_script_the_module_is_run(tmp_path: Path) -> None:
    assert choose_launch(None, tmp_path / "python", "x").words == (
        str(tmp_path / "python"),
        "-P",
        "-m",
        "mcp_workbench",
    )


@pytest.mark.parametrize(
    ("python", "runner"),
    [
        ("/home/a/.cache/uv/archive-v0/Xy/bin/python", "uvx"),
        ("/home/a/.cache/uv/environments-v2/Xy/bin/python", "uvx"),
        ("/home/a/.local/share/uv/tools/mcp-workbench-gateway/bin/python", ""),
        ("/home/a/.local/pipx/.cache/abc/bin/python", "pipx"),
        ("/home/a/.cache/pipx/abc/bin/python", "pipx"),
        ("/home/a/.local/share/pipx/venvs/mcp-workbench-gateway/bin/python", ""),
        ("/home/a/project/.venv/bin/python", ""),
    ],
)
def test_an_environment_that_may_be_thrown_away_is_known(python: str, runner: str) -> None:
    assert temporary_runner(Path(python)) == runner


def test_started_through_uvx_the_host_goes_through_uvx_too(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uvx = tmp_path / "bin" / "uvx"
    uvx.parent.mkdir()
    uvx.write_text("#!/bin/sh\n")
    uvx.chmod(0o755)
    monkeypatch.setenv("PATH", str(uvx.parent))
    origin = f"mcp-workbench-gateway=={__version__}"

    found = choose_launch(script, Path("/c/uv/archive-v0/Xy/bin/python"), origin)

    assert found.words == (str(uvx), "--from", origin, "mcp-workbench")


def test_the_file_and_the_toolboxes_are_always_named() -> None:
    words = Launch(("/x/mcp-workbench",)).command("/y/config.json", ("dev",))

    assert words == ("/x/mcp-workbench", "serve", "--config", "/y/config.json", "--toolbox", "dev")
