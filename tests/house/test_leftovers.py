"""A suite that leaves a temporary file behind fails and names it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LEAVES = "import tempfile\n\ndef test_it():\n    tempfile.mkdtemp(prefix='forgotten-')\n"


def test_what_is_left_fails_the_suite(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(LEAVES, "utf-8")
    argv = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), str(tmp_path)]
    ran = subprocess.run(
        [*argv, "-p", "tests.conftest", "-p", "no:xdist", "-p", "no:cacheprovider"],
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if not k.startswith("PYTEST_XDIST")},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 1, ran
    assert "forgotten-" in ran.stdout
    assert "1 passed" in ran.stdout
