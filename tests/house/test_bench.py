"""The measures are run by hand, seldom: what they take from the program must still be there."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


def taken() -> list[tuple[str, str, str]]:
    """File, module and name of everything that a measure imports from the program."""
    return [
        (file.name, node.module, one.name)
        for file in sorted(BENCH.glob("*.py"))
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mcp_workbench")
        if node.module is not None
        for one in node.names
    ]


@pytest.mark.parametrize(("file", "module", "name"), taken())
def test_what_a_measure_imports_is_there(file: str, module: str, name: str) -> None:
    assert hasattr(importlib.import_module(module), name), f"{file} needs {module}.{name}"
