"""A change as people look at it: the lines that differ, without any secret."""

from difflib import unified_diff

from mcp_workbench.core import jsonc
from mcp_workbench.hosts.masks import masked
from mcp_workbench.hosts.plan import Change

CONTEXT = 3  # lines around


def diff(change: Change) -> list[str]:
    """The lines of a unified diff, secrets hidden on both sides."""
    old = masked(_text(change.before), change.format).splitlines()
    new = masked(_text(change.after), change.format).splitlines()
    # Files of a hundred thousand lines are usual here (histories); most of it is the same.
    first = _common(old, new)
    last = _common(old[first:][::-1], new[first:][::-1])
    skip = max(first - CONTEXT, 0)
    keep = max(last - CONTEXT, 0)
    before, after = old[skip : len(old) - keep], new[skip : len(new) - keep]
    lines = list(unified_diff(before, after, lineterm="", n=CONTEXT))[2:]
    return [_placed(line, skip) if line.startswith("@@") else line for line in lines]


def _text(data: bytes | None) -> str:
    return (data or b"").decode().removeprefix(jsonc.BOM)


def _common(one: list[str], other: list[str]) -> int:
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _placed(header: str, skipped: int) -> str:
    """`@@ line 12 @@`: counted from the top of the file, in what it will be."""
    start = header.split("+")[1].split(" ")[0].split(",")[0]
    return f"@@ line {int(start) + skipped} @@"
