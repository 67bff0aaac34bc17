"""The guarantees of docs/security.md: all are listed, and the tests that they name exist."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text("utf-8")
NUMBERS = [f"S{n}" for n in range(1, 17)]
NOT_YET = "not yet"
ROW = re.compile(r"^\| (S\d+) \| (.+?) \| (.+?) \|(.*)\|$", re.M)
NAMED = sorted(set(re.findall(r"`(tests/[^`\s]*)`", PAGE)))


@cache
def names_in(file: Path) -> frozenset[str]:
    return frozenset(re.findall(r"^(?:async )?def (test_\w+)", file.read_text("utf-8"), re.M))


def test_every_guarantee_has_a_row_and_tests_unless_it_is_not_given_yet() -> None:
    rows = ROW.findall(PAGE)

    assert [number for number, *_ in rows] == NUMBERS
    for number, _, extent, tests in rows:
        assert bool(re.search(r"`tests/", tests)) != (extent == NOT_YET), number


@pytest.mark.parametrize("name", NAMED)
def test_a_named_test_exists(name: str) -> None:
    path, _, test = name.partition("::")
    place = ROOT / path

    files = sorted(place.rglob("test_*.py")) if place.is_dir() else [place]
    assert files
    assert all(names_in(file) for file in files)
    assert not test or test in names_in(place)


def test_tests_are_named() -> None:
    assert len(NAMED) > 30
