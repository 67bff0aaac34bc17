"""What measures runs where it measures itself: tests that do are marked, and `make test` leaves them out."""

import ast
from pathlib import Path

import pytest

pytestmark = pytest.mark.lint
TESTS = Path(__file__).parents[1]
GROWTH = "tests.threats.growth"
CLOCKS = {"process_time", "thread_time", "tracemalloc"}


def names_in(node: ast.AST) -> set[str]:
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return names | {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}


def measuring(tree: ast.Module) -> set[str]:
    """The functions of a module that measure, or use one that does."""
    functions = [
        node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    imported = {one.name for node in imports if node.module == GROWTH for one in node.names}
    known = CLOCKS | {name for name in imported if name.islower()}  # constants measure nothing
    while more := {f.name for f in functions if names_in(f) & known} - known:
        known |= more
    return {function.name for function in functions if function.name in known}


def marked(tree: ast.Module) -> set[str]:
    """Its tests that `make test` leaves out."""
    everywhere = any(
        isinstance(node, ast.Assign)
        and ast.unparse(node.targets[0]) == "pytestmark"
        and "mark.cost" in ast.unparse(node.value)
        for node in tree.body
    )
    return {
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (everywhere or any("mark.cost" in ast.unparse(one) for one in node.decorator_list))
    }


def test_every_test_that_measures_is_marked() -> None:
    missing: list[str] = []
    for file in TESTS.rglob("test_*.py"):
        tree = ast.parse(file.read_text("utf-8"))
        tests = {name for name in measuring(tree) if name.startswith("test_")}
        missing += [f"{file.relative_to(TESTS)}: {name}" for name in tests - marked(tree)]

    assert sorted(missing) == []


def test_one_without_a_mark_would_be_found() -> None:
    source = f"from {GROWTH} import cost\ndef spent():\n    return cost(print)\ndef test_it():\n    assert spent()"

    assert measuring(ast.parse(source)) == {"spent", "test_it"}
    assert marked(ast.parse(source)) == set()
    assert marked(ast.parse(f"import pytest\n@pytest.mark.cost\n{source.partition(chr(10))[2]}"))
