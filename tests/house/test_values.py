"""Values are frozen: a struct that is changed after it was made is one of the few listed here."""

from __future__ import annotations

import re
from pathlib import Path

import mcp_workbench

SOURCE = Path(mcp_workbench.__file__).parent
CLASS = re.compile(r"^class (\w+)\(([^)]*)\):", re.MULTILINE)
# Each is a record that is filled in step by step, and belongs to whoever made it.
CHANGED = {
    "Admitted",
    "CallCounts",
    "CallLine",
    "DaemonInfo",
    "ErrorContext",
    "PoolContext",
    "ScriptSource",
    "ScriptedCall",
    "Task",
    "_LateMessage",
    "_Posting",
    "_Search",
}


def structs() -> dict[str, list[str]]:
    """What stands between the parentheses of each struct, by name: several classes may share one."""
    classes = [
        (name, between)
        for path in SOURCE.rglob("*.py")
        for name, between in CLASS.findall(path.read_text("utf-8"))
    ]
    names = {"msgspec.Struct"}
    found: dict[str, list[str]] = {}
    while more := [
        (name, between)
        for name, between in classes
        if between.split(",")[0].rpartition("jsonrpc.")[2].strip() in names
        and between not in found.get(name, ())
    ]:
        for name, between in more:
            found.setdefault(name, []).append(between)
            names.add(name)
    return found


def test_structs_are_frozen_but_for_a_few() -> None:
    found = structs()
    changed = {
        name
        for name, configured in found.items()
        if any("frozen=True" not in text for text in configured)
    }

    assert len(found) > 400
    assert changed == CHANGED
