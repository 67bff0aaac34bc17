"""No module shares an event loop with the next one: what a test does to its loop and its threads, others would meet.

The loop that an async fixture was made on runs all async tests for as long as the fixture lasts.
"""

import ast
from pathlib import Path

import pytest

pytestmark = pytest.mark.lint
TESTS = Path(__file__).parents[1]
SCOPES = ("function", "class", "module")  # no longer


def too_long(tree: ast.Module) -> list[str]:
    """The async fixtures that outlast a module."""
    return [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.AsyncFunctionDef)
        for decorator in node.decorator_list
        if isinstance(decorator, ast.Call)
        for keyword in decorator.keywords
        if keyword.arg == "scope" and ast.unparse(keyword.value).strip("'\"") not in SCOPES
    ]


def test_no_async_fixture_outlasts_its_module() -> None:
    found = [
        f"{file.relative_to(TESTS)}: {name}"
        for file in TESTS.rglob("*.py")
        for name in too_long(ast.parse(file.read_text("utf-8")))
    ]

    assert sorted(found) == []


@pytest.mark.parametrize(("scope", "found"), [("module", []), ("session", ["made"])])
def test_one_that_does_would_be_found(scope: str, found: list[str]) -> None:
    source = f"@pytest.fixture(scope='{scope}')\nasync def made(): ..."

    assert too_long(ast.parse(source)) == found
