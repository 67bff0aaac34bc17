"""The list of changes: each one is proved by a case, and the document shows them all."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from mcp_workbench.protocol.extensions import NOT_PASSED_ON
from tests.fidelity.changes import (
    EXTENSIONS,
    IN_DEFINITIONS,
    IN_ERRORS,
    IN_RESULTS,
    Change,
    expected,
)
from tests.fidelity.recorded import ERRORS, RESOURCES, RESULTS, TOOLS
from tests.fidelity.scenes import ROUTES
from tests.fidelity.writing import Way, sent

DOCUMENT = (Path(__file__).parents[2] / "docs" / "fidelity.md").read_text("utf-8")

# Which case shows a change of results, on the way to which it belongs.
SHOWN_BY = {
    "complete": ("plain text", Way(modern_host=True, modern_server=False)),
    "server info": ("meta of others", Way(modern_host=True, modern_server=False)),
    "cache": ("plain text", Way(modern_host=True, modern_server=False, kind="read")),
    "without": ("plain text", Way(modern_host=False, modern_server=True, kind="read")),
    "words": ("structured number", Way(modern_host=False, modern_server=True)),
    "half": ("lone high half", Way(modern_host=False, modern_server=False)),
    "bad bytes": ("bad bytes in a text", Way(modern_host=False, modern_server=False)),
    "line breaks": ("pretty-printed", Way(modern_host=False, modern_server=False)),
}


def table(changes: dict[str, Change]) -> str:
    return "".join(f"| {one.what} | {one.where} | {one.why} |\n" for one in changes.values())


@pytest.mark.parametrize("changes", [IN_RESULTS, IN_ERRORS, IN_DEFINITIONS])
def test_the_document_shows_the_list(changes: dict[str, Change]) -> None:
    head = "| what changes | where | why |\n|---|---|---|\n"

    assert f"{head}{table(changes)}\n" in DOCUMENT + "\n"


def test_the_document_shows_what_becomes_of_extensions() -> None:
    head = "| extension | declared by the host | declared by a server |\n|---|---|---|\n"
    rows = "".join(f"| {one.name} | {one.of_host} | {one.of_server} |\n" for one in EXTENSIONS)

    assert f"{head}{rows}\n" in DOCUMENT
    known = (row.name.split("`")[1] for row in EXTENSIONS if row.name.startswith("`"))
    assert set(known) == NOT_PASSED_ON


def test_the_document_shows_nothing_else() -> None:
    rows = re.findall(r"^\| (?!what changes|extension).*$", DOCUMENT, re.M)

    listed = len(IN_RESULTS) + len(IN_ERRORS) + len(IN_DEFINITIONS)
    assert len(rows) == listed + len(EXTENSIONS)


def test_the_document_s_figures_are_true() -> None:
    told = re.search(r"(\d+) results, (\d+) errors, (\d+) definitions; (\d+) routes", DOCUMENT)

    assert told is not None
    counted = [len(RESULTS), len(ERRORS), len(TOOLS) + len(RESOURCES), len(ROUTES)]
    assert [int(figure) for figure in told.groups()] == counted


@pytest.mark.parametrize("name", SHOWN_BY)
def test_a_listed_change_is_one_that_a_case_shows(name: str) -> None:
    case, way = SHOWN_BY[name]

    assert expected(RESULTS[case], way) != sent(RESULTS[case], way)
    elsewhere = {
        "address",
        "script",
        "hint_for",
        "budget",
        "projection",
    }  # tests/primitives, tests/extensions, and tests/search for three of them
    assert SHOWN_BY.keys() | elsewhere == IN_RESULTS.keys()


@pytest.mark.parametrize("modern", [False, True])
def test_between_equal_eras_nothing_changes_but_what_no_reader_could_read(modern: bool) -> None:
    for case, kind in product(RESULTS.values(), ("call", "prompt", "read")):
        way = Way(modern, modern, kind)
        if b"\r" in case.sent or "any" in case.told or way.pair in case.told:
            continue
        assert expected(case, way) == sent(case, way), case.name
