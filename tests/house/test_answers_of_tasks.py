"""A task that answers a request is started by `answer_later`: if it fails, the request is answered all the same."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import mcp_workbench

pytestmark = pytest.mark.lint
SOURCE = Path(mcp_workbench.__file__).parent
STARTS = ("_scope.start", "scope.start")
STARTER = "server/http/later_answers.py"


def has_response(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Does it hold the writer of a response?"""
    names = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    return "response" in names | {argument.arg for argument in function.args.args}


def starts_a_task(function: ast.AST) -> bool:
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
    return any(ast.unparse(call.func).endswith(STARTS) for call in calls)


def test_no_request_is_left_to_a_task_that_may_fail() -> None:
    found: list[str] = []
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if name == STARTER or not name.startswith(("server/http/", "ui/", "cluster/front")):
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            if is_function and has_response(node) and starts_a_task(node):
                found.append(f"{name}: {node.name}")

    assert found == []
