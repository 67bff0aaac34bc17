"""A configuration file, written and loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from mcp_workbench.config.load import load_config
from mcp_workbench.core.errors import ConfigError, Problem
from mcp_workbench.core.spec import ServerSpec, Snapshot

CONTRACT = """{
  "toolMode": "proxy",
  "toolboxes": {
    "dev": {
      "description": "Development toolbox",
      "mcpServers": {
        "filesystem": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "."],
                       "env": {"TOKEN": "${TOKEN:-none}"}, "toolFilters": ["read_*", "!read_media_file"]},
        "issues": {"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${ISSUES_TOKEN}"}}
      }
    }
  }
}"""


def load(folder: Path, content: Any, environ: dict[str, str] | None = None) -> Snapshot:
    file = folder / "workbench-config.json"
    text = content if isinstance(content, str) else msgspec.json.encode(content).decode()
    file.write_text(text, "utf-8")
    file.chmod(0o644)
    return load_config(file, environ or {})


def problems(folder: Path, content: Any, environ: dict[str, str] | None = None) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        load(folder, content, environ)
    return list(caught.value.problems)


def one_server(
    folder: Path, entry: dict[str, Any], environ: dict[str, str] | None = None
) -> ServerSpec:
    return load(folder, {"mcpServers": {"s": entry}}, environ).toolbox("default").server("s")


def warnings(folder: Path, entry: dict[str, Any]) -> list[tuple[str, str, str]]:
    found = load(folder, {"mcpServers": {"s": entry}}).warnings
    return [(w.path.removeprefix("mcpServers.s."), w.message, w.fix) for w in found]
