"""A host of version 1 of the SDK, which knows the legacy era alone, asks its person for approval."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import HERE, SDK1

from tests.kit.clock import PATIENCE
from tests.kit.command import serving
from tests.kit.config import config_file, entry
from tests.kit.results import error_code, json_text

pytestmark = [pytest.mark.peers, pytest.mark.usefixtures("workplace")]


@contextmanager
def target(folder: Path, way: str) -> Generator[list[str]]:
    config = config_file(folder, {"a": entry(approve="writes")})
    if way == "stdio":
        yield [sys.executable, "-m", "mcp_workbench", "serve", "--config", str(config)]
    else:
        with serving(config) as command:
            yield [command.url]


@pytest.mark.parametrize("way", ["stdio", "http"])
@pytest.mark.parametrize(
    ("decision", "asked", "codes"),
    [
        ("yes, once", 2, ["", ""]),
        ("always in this session", 1, ["", ""]),
        ("no", 2, ["denied", "denied"]),
    ],
)
def test_its_person_decides(
    tmp_path: Path, way: str, decision: str, asked: int, codes: list[str]
) -> None:
    with target(tmp_path, way) as words:
        argv = [str(SDK1 / "bin" / "python"), str(HERE / "approve_v1.py"), decision, *words]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE)

    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    assert len(seen["asked"]) == asked
    assert seen["asked"][0].endswith('of the server dev/a with these arguments:\n{"text":"hi"}')
    assert [error_code(result) for result in seen["results"]] == codes
    if not any(codes):
        assert [json_text(one)["arguments"] for one in seen["results"]] == [{"text": "hi"}] * 2
