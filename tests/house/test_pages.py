"""The pages of the commands and of the codes are what the program says now."""

from __future__ import annotations

import re

import pytest

from mcp_workbench.core.error_codes import CODES
from tests.house.pages import AREAS, COMMANDS, NAMES, TROUBLESHOOTING, help_of, page_of, with_codes


@pytest.mark.parametrize("command", ["", *NAMES])
def test_a_page_holds_the_help_of_its_command(command: str) -> None:
    text = page_of(command).read_text("utf-8")

    assert f"```text\n{help_of(command)}```\n" in text, "run `make docs`"
    assert text.startswith(f"# `{command}`\n" if command else "# Commands\n")


def test_there_is_a_page_for_every_command_and_no_other() -> None:
    pages = {page.stem for page in COMMANDS.glob("*.md")} - {"README"}
    index = page_of("").read_text("utf-8")

    assert pages == set(NAMES)
    assert set(re.findall(r"\]\((\w+)\.md\)", index)) == pages


def test_every_code_stands_in_the_troubleshooting() -> None:
    text = TROUBLESHOOTING.read_text("utf-8")

    assert with_codes(text) == text, "run `make docs`"
    assert set(re.findall(r"^### (WB-[A-Z]+-\d+):", text, re.M)) == set(CODES)
    assert {code.rpartition("-")[0] for code in CODES} == set(AREAS)
