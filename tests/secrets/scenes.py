"""Configurations with secrets, and the values that servers get."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.config.load import load_config
from mcp_workbench.config.secret_store import SecretStore
from mcp_workbench.core.errors import ServerUnavailable
from mcp_workbench.gateway.workbench import Workbench
from tests.kit.config import config_file, entry, tool
from tests.kit.results import json_text

ROOT = Path(__file__).parents[2]
PLAINTEXT = "keyrings.alt.file.PlaintextKeyring"


def variables(folder: Path, **more: str) -> dict[str, str]:
    """Our environment, with a home of its own."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    state = {"HOME": str(home), "MCP_WORKBENCH_HOME": str(folder / "state")}
    return {**os.environ, **state, **more}


def store(environ: Mapping[str, str], **values: str) -> SecretStore:
    """The encrypted store of this user, with these values."""
    kept = SecretStore(environ["MCP_WORKBENCH_HOME"])
    kept.write(values)
    return kept


def in_keyring(environ: Mapping[str, str], service: str, username: str, value: str) -> None:
    """This entry in the keyring that these variables lead to."""
    from keyring.core import load_keyring

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("XDG_DATA_HOME", raising=False)
        for name in environ.keys() & {"HOME", "XDG_DATA_HOME"}:  # its file is below one of these
            patch.setenv(name, environ[name])
        backend: Any = load_keyring(environ["PYTHON_KEYRING_BACKEND"])
        backend.set_password(service, username, value)


def private(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def configured(folder: Path, secrets: dict[str, Any], **servers: Any) -> Path:
    return config_file(folder, servers, secrets=secrets)


def needing(*names: str, **more: Any) -> dict[str, Any]:
    """A server that gets these secrets as variables of the same names."""
    return entry(env={name: f"${{{name}}}" for name in names}, **more)


async def given(bench: Workbench, server: str) -> dict[str, str]:
    """The variables of a server."""
    return json_text(await bench.use_tool(tool(server, "env"), {}))["env"]


def bench(config: Path, environ: Mapping[str, str]) -> Workbench:
    return Workbench(load_config(config, environ), environ=environ)


async def unavailable(bench: Workbench, server: str) -> str:
    """Why this server can't be reached."""
    try:
        await bench.use_tool(tool(server, "echo"), {"text": "hi"})
    except ServerUnavailable as error:
        return error.reason
    raise AssertionError("it answered")
