"""`explain` knows every code that is printed, and the documents that we ship."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import mcp_workbench
from mcp_workbench.core.error_codes import CODES
from tests.kit.command import run_command

SOURCE = Path(mcp_workbench.__file__).parent


def test_a_code_is_explained_in_any_spelling(tmp_path: Path) -> None:
    done = run_command("explain", "wb-conf-021", cwd=tmp_path)
    assert done.status == 0
    assert done.out.startswith("WB-CONF-021: A variable is not set\n")
    assert "What to do: " in done.out
    assert (
        run_command("explain", "WB-CONF-021", "--json", cwd=tmp_path).data["code"] == "WB-CONF-021"
    )


def test_the_list_has_all_of_them(tmp_path: Path) -> None:
    done = run_command("explain", cwd=tmp_path)
    assert [line.split()[0] for line in done.out.splitlines()] == ["migration", *CODES]


def test_migration_is_the_document(tmp_path: Path) -> None:
    document = Path(__file__).parents[2] / "docs" / "migration.md"
    done = run_command("explain", "migration", cwd=tmp_path)
    assert done.status == 0
    assert done.out.strip() == document.read_text("utf-8").strip()


@pytest.mark.parametrize(
    ("topic", "hint"),
    [
        ("migratoin", "Did you mean 'migration'?"),
        ("WB-CONF-0211", "Did you mean 'WB-CONF-021'?"),
        ("xyzzy", "fix: mcp-workbench explain lists all of it"),
    ],
)
def test_an_unknown_topic_is_told(topic: str, hint: str, tmp_path: Path) -> None:
    done = run_command("explain", topic, cwd=tmp_path)
    assert done.status == 2
    assert done.err.startswith(f"error: nothing is known about '{topic}'\n  {hint}\n")


def test_codes_are_explained_if_and_only_if_they_are_printed() -> None:
    files = [file for file in SOURCE.rglob("*.py") if file.name != "error_codes.py"]
    printed = {
        code for file in files for code in re.findall(r"WB-[A-Z]+-\d{3}", file.read_text("utf-8"))
    }
    assert printed == set(CODES)
