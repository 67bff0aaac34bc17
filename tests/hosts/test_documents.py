"""The documents about hosts are what the table says, and what really happens."""

from __future__ import annotations

import json
from pathlib import Path

from tests.hosts import first_minutes, quickstarts

REAL = Path(__file__).parents[1] / "peers" / "hosts" / "package.json"


def test_the_quickstarts_are_made_from_the_table() -> None:
    text = quickstarts.DOCUMENT.read_text("utf-8")

    assert text == quickstarts.with_made(text), "python -m tests.hosts.quickstarts renews it"


def test_the_first_five_minutes_are_as_told() -> None:
    told = first_minutes.DOCUMENT.read_text("utf-8")

    assert first_minutes.transcript() == told, "python -m tests.hosts.first_minutes renews it"


def test_the_real_hosts_that_were_tried_are_named_with_their_versions() -> None:
    text = quickstarts.DOCUMENT.read_text("utf-8")
    versions = json.loads(REAL.read_text("utf-8"))["dependencies"].values()

    assert [version for version in versions if f" | {version} | " not in text] == []
