"""What these tests need besides Python: Node and the packages of package.json. Nothing is skipped."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NODE_MODULES = HERE.parents[1] / ".node" / "node_modules"
SDK1 = HERE.parents[1] / ".venv-sdk1"
PYTHON_PEERS = ["mcp_server_git", "mcp_server_time"]
OLD_SDK = "mcp==1.30.0 in .venv-sdk1"


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


def missing() -> list[str]:
    wanted: dict[str, str] = json.loads((HERE / "package.json").read_text())["dependencies"]
    programs = [program for program in ("node", "git") if shutil.which(program) is None]
    packages = [name for name, wish in wanted.items() if installed(name) != wish.rpartition("@")[2]]
    modules = [name for name in PYTHON_PEERS if importlib.util.find_spec(name) is None]
    return programs + packages + modules + ([] if has_old_sdk() else [OLD_SDK])


def has_old_sdk() -> bool:
    return any(SDK1.glob("lib/python3*/site-packages/mcp-1.30.0.dist-info"))


def installed(package: str) -> str:
    """The version of a package, or nothing."""
    description = NODE_MODULES / package / "package.json"
    return json.loads(description.read_text())["version"] if description.is_file() else ""


@pytest.fixture(scope="session")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the scripts of this one find their packages."""
    if lacking := missing():
        pytest.fail(
            f"missing: {', '.join(lacking)}. Install Node (20 or newer) and git where they are "
            "missing, then run `make peers`, which fetches the rest.",
            pytrace=False,
        )
    folder = tmp_path_factory.mktemp("workplace")
    (folder / "node_modules").symlink_to(NODE_MODULES, target_is_directory=True)
    for script in HERE.glob("*.mjs"):
        shutil.copy(script, folder)
    return folder
