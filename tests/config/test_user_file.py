"""The user's own configuration: where it is on each platform, and when it is used."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_workbench.config.load import find_config
from mcp_workbench.config.user_file import user_config


@pytest.mark.parametrize(
    ("platform", "environ", "path"),
    [
        ("linux", {"HOME": "/h"}, "/h/.config/mcp-workbench/config.json"),
        ("linux", {"HOME": "/h", "XDG_CONFIG_HOME": "/x"}, "/x/mcp-workbench/config.json"),
        ("linux", {"XDG_CONFIG_HOME": "/x"}, "/x/mcp-workbench/config.json"),
        ("linux", {"HOME": "/h", "XDG_CONFIG_HOME": "x"}, "/h/.config/mcp-workbench/config.json"),
        ("linux", {"HOME": "", "XDG_CONFIG_HOME": ""}, ""),
        ("darwin", {"HOME": "/h"}, "/h/Library/Application Support/mcp-workbench/config.json"),
        ("darwin", {"HOME": "/h", "XDG_CONFIG_HOME": "/x"}, "/x/mcp-workbench/config.json"),
        ("win32", {"APPDATA": "/r", "HOME": "/h"}, "/r/mcp-workbench/config.json"),
        ("win32", {}, ""),
    ],
)
def test_every_platform_has_its_place(platform: str, environ: dict[str, str], path: str) -> None:
    assert user_config(environ, platform).replace("\\", "/") == path


def test_it_is_the_last_resort_before_the_demo(tmp_path: Path) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    own = tmp_path / "config" / "mcp-workbench" / "config.json"
    folder = tmp_path / "work"
    folder.mkdir()
    assert find_config(None, environ, folder) is None

    own.parent.mkdir(parents=True)
    own.touch()
    assert find_config(None, environ, folder) == str(own)

    (folder / "workbench-config.json").touch()
    assert find_config(None, environ, folder) == str(folder / "workbench-config.json")
    named = environ | {"WORKBENCH_CONFIG": str(own)}
    assert find_config(None, named, folder) == str(own)
