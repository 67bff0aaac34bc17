"""The documents about hosts are what the table says, and what really happens."""

from __future__ import annotations

from tests.hosts import first_minutes, quickstarts


def test_the_quickstarts_are_made_from_the_table() -> None:
    text = quickstarts.DOCUMENT.read_text("utf-8")

    assert text == quickstarts.with_made(text), "python -m tests.hosts.quickstarts renews it"


def test_the_first_five_minutes_are_as_told() -> None:
    told = first_minutes.DOCUMENT.read_text("utf-8")

    assert first_minutes.transcript() == told, "python -m tests.hosts.first_minutes renews it"
