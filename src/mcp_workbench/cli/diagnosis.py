"""What `doctor` finds: lines that are good, doubtful or bad, each with its remedy."""

from typing import Literal

import msgspec

from mcp_workbench.core.errors import Problem

State = Literal["good", "doubtful", "bad"]


class Line(msgspec.Struct, frozen=True):
    """One thing that was looked at. The JSON form is its fields."""

    state: State
    subject: str
    message: str
    fix: str = ""
    code: str = ""
    place: str = ""  # file:line:column, or the file alone; empty where it is about no file
    fixed: bool = False  # by --fix, just now


def of_problem(problem: Problem, file: str, subject: str) -> Line:
    """A problem of a file, or a doubt about it."""
    place = f"{file}:{problem.line}:{problem.column}" if problem.line else file
    path = f"{problem.path}: " if problem.path else ""
    state: State = "bad" if problem.severity == "error" else "doubtful"
    return Line(state, subject, f"{path}{problem.message}", problem.fix, problem.code, place)
