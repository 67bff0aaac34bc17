"""Warnings of `check` and `doctor` about concealed text and suspicious phrases in definitions.

Loaded only once there are definitions to read. They change no exit status and block nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from mcp_workbench.core.catalogue import ServerReport, read_object
from mcp_workbench.core.definition_warnings import (
    STEPS,
    UNREAD,
    DefinitionWarning,
    definition_warnings,
)
from mcp_workbench.core.errors import Problem, shown_name
from mcp_workbench.core.raw_json import Steps
from mcp_workbench.core.spec import Snapshot

MOST = 20  # warnings about one server
CODES = {"concealed": "WB-TOOL-304", "phrase": "WB-TOOL-305"}
_NAMES = {"prompts": ("prompt", "name"), "templates": ("template", "uriTemplate")}


class SuspiciousText(msgspec.Struct, frozen=True):
    """One warning about a definition. The JSON form is its fields."""

    toolbox: str
    server: str
    definition: str  # `tool`, `prompt`, `template` or `instructions`
    name: str
    level: str  # `concealed` or `phrase`
    kind: str
    field: str
    excerpt: str

    def __str__(self) -> str:
        about = f"{self.definition} {shown_name(self.name)!r}" if self.name else self.definition
        place = f"{about}, {self.field}" if self.field else about
        if self.kind == UNREAD:
            return f"{self.toolbox}/{self.server}: {place}: {self.kind}, nor is what comes after it"
        what = "concealed text" if self.level == "concealed" else "suspicious phrase"
        return f"{self.toolbox}/{self.server}: {place}: {what} ({self.kind}): {self.excerpt}"


def suspicious_texts(report: ServerReport) -> list[SuspiciousText]:
    """Returns the warnings about what a server says of itself, concealed text first."""
    steps = Steps(STEPS)
    found: list[SuspiciousText] = []
    for definition, name, value in _definitions(report):
        found += [
            _with_owner(report, definition, name, w) for w in definition_warnings(value, steps)
        ]
        if found and found[-1].kind == UNREAD and steps.left < 0:
            break  # nor is anything after it
    return sorted(found, key=lambda one: one.level)


def _definitions(report: ServerReport) -> Iterator[tuple[str, str, Any]]:
    if report.instructions:
        yield "instructions", "", report.instructions
    for tool in report.tools:
        yield "tool", tool.name, tool.definition
    for kind, raws in report.offers.items():
        if kind in _NAMES:
            singular, key = _NAMES[kind]
            for value in map(read_object, raws):
                yield singular, str(value.get(key, "")), value


def _with_owner(
    report: ServerReport, definition: str, name: str, warning: DefinitionWarning
) -> SuspiciousText:
    address = report.address
    return SuspiciousText(
        address.toolbox, address.server, definition, name, **msgspec.structs.asdict(warning)
    )


def text_problems(
    snapshot: Snapshot, reports: Iterable[ServerReport]
) -> Iterator[tuple[Problem, SuspiciousText]]:
    """Yields the warnings about all these servers; of very many about one, the first and their number."""
    for report in reports:
        place = snapshot.toolbox(report.address.toolbox).server(report.address.server).place
        found = suspicious_texts(report)
        for number, one in enumerate(found[:MOST], start=1):
            more = len(found) - MOST if number == MOST else 0
            message = f"{one}; {more} more" if more else str(one)
            yield _problem(place, message, one, more), one


def _problem(place: str, message: str, text: SuspiciousText, more: int) -> Problem:
    fix = f"mcp-workbench tools {text.toolbox}/{text.server} --schema shows it"
    return Problem(
        place,
        message,
        fix if text.definition == "tool" else "",
        CODES[text.level],
        severity="warning",
        count=1 + more,
    )
