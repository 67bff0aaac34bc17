"""The table of faults is whole, and every row of it is shown by tests that are really there."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.faults.rows import ROWS

TESTS = Path(__file__).parents[1]


def marked(file: Path) -> Iterator[str]:
    """The rows that the tests of this file are marked with."""
    text = file.read_text("utf-8")
    for node in ast.parse(text).body if "pytest.mark.fault" in text else ():
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        marks = {ast.unparse(one).partition("(")[0]: one for one in node.decorator_list}
        fault = marks.get("pytest.mark.fault")
        if isinstance(fault, ast.Call):
            assert node.name.startswith("test_"), f"{file}: {node.name} is no test"
            assert not marks.keys() & {"pytest.mark.skip", "pytest.mark.xfail"}, node.name
            yield from (ast.literal_eval(row) for row in fault.args)


def test_every_row_is_shown_by_the_files_that_it_names() -> None:
    found: dict[str, set[str]] = {}
    for file in sorted(TESTS.rglob("test_*.py")):
        for row in marked(file):
            found.setdefault(row, set()).add(file.relative_to(TESTS).as_posix())

    assert found == {row.id: set(row.files) for row in ROWS if row.files}


def test_the_table_is_whole_and_says_why_where_a_test_is_missing() -> None:
    assert [row.id for row in ROWS] == [f"F{n}" for n in range(1, 57)]
    assert [row.id for row in ROWS if bool(row.files) == bool(row.missing)] == []
