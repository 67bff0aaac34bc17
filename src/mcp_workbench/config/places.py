"""On which line each finding stands. Read only when there is something to tell."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from mcp_workbench.config.expand import dotted
from mcp_workbench.config.findings import MOST, Finding
from mcp_workbench.core import jsonc
from mcp_workbench.core.errors import Problem

MOST_READ = 1 << 20  # characters of a file whose lines are told


def placed(findings: list[Finding], text: str) -> list[Problem]:
    """The findings, and the keys that stand twice, with their places, in the order of the file.

    How many more there are follows at the end, without a place.
    """
    try:
        root = jsonc.read(text) if len(text) <= MOST_READ else None
    except jsonc.SyntaxProblem:
        root = None
    if root is None:  # too deep or too long for the scanner: the paths have to do
        return [_problem(finding) for finding in findings]
    lines = jsonc.Lines(text)
    found = [(_offset(text, root, one), one) for one in findings if not one.unlisted]
    found += islice(_doubled(lines, root), MOST)
    found.sort(key=lambda pair: pair[0])
    listed = [_problem(finding, *lines.place(offset)) for offset, finding in found]
    return listed + [_problem(finding) for finding in findings if finding.unlisted]


def _offset(text: str, root: jsonc.Node, finding: Finding) -> int:
    child = jsonc.find(root, finding.path)
    inside = text.find(finding.inside, child.node.start, child.node.end) if finding.inside else -1
    return child.start if inside < 0 else inside


def _doubled(lines: jsonc.Lines, root: jsonc.Node) -> Iterator[tuple[int, Finding]]:
    for twice in jsonc.duplicates(root):
        line, column = lines.place(twice.first)
        message = f"stands twice; this one counts, the one at {line}:{column} does not"
        yield (
            twice.second,
            Finding(twice.path, "WB-CONF-024", message, "remove one of them", "warning"),
        )


def _problem(finding: Finding, line: int = 0, column: int = 0) -> Problem:
    return Problem(
        dotted(finding.path),
        finding.message,
        finding.fix,
        finding.code,
        line,
        column,
        finding.severity,
        finding.unlisted or 1,
    )
