"""Golden cases: a file, and what is said about it. A new case needs no code."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_workbench.config.load import load_config
from mcp_workbench.core.errors import ConfigError, Problem
from mcp_workbench.core.spec import ServerSpec, Snapshot, StdioCommand

CASES = sorted((Path(__file__).parents[1] / "golden/config").glob("*.json"))
ENVIRON = {"HOME": "/home/me", "GITHUB_TOKEN": "hunter2hunter2", "EMPTY": ""}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_the_file_is_understood_as_expected(case: Path, tmp_path: Path) -> None:
    copy = tmp_path / case.name  # the checkout may have any permissions
    copy.write_bytes(case.read_bytes())
    copy.chmod(0o644)

    assert told(copy) == case.with_suffix(".expected").read_text("utf-8")


def told(file: Path) -> str:
    try:
        snapshot = load_config(file, ENVIRON)
    except ConfigError as error:
        lines = ["refused", *map(problem_line, (*error.problems, *error.warnings))]
    else:
        lines = [*snapshot_lines(snapshot), *map(problem_line, snapshot.warnings)]
    return "\n".join(lines) + "\n"


def problem_line(problem: Problem) -> str:
    place = f"{problem.line}:{problem.column} {problem.path or '(file)'}"
    return f"{problem.severity} {problem.code} {place}\n  {problem.message}\n  fix: {problem.fix}"


def snapshot_lines(snapshot: Snapshot) -> list[str]:
    lines = [f"loaded, {snapshot.tool_mode} mode"]
    for box in snapshot.toolboxes.values():
        lines.append(f"toolbox {box.name} {box.description!r}")
        lines += [f"  {name}: {server_line(spec)}" for name, spec in box.servers.items()]
    return lines


def server_line(spec: ServerSpec) -> str:
    target, tools = spec.target, spec.tools
    if isinstance(target, StdioCommand):
        way = " ".join([*(f"{k}={v}" for k, v in target.env), target.command, *target.args])
    else:
        way = " ".join([target.transport, target.url, *(f"[{k}: {v}]" for k, v in target.headers)])
    shown = " ".join([*tools.include, *(f"!{pattern}" for pattern in tools.exclude)])
    return f"{way} | tools: {shown}" + (f" | unavailable: {spec.problem}" if spec.problem else "")
