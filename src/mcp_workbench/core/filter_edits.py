"""Switching single tools on and off in `toolFilters`: which patterns to write."""

from __future__ import annotations

import re
from collections.abc import Iterable

from mcp_workbench.core.spec import tool_filter

_MAGIC = re.compile(r"([*?[])")


class NotSwitchable(ValueError):
    """These patterns have to be edited by hand; the text says why."""


def switched(
    patterns: tuple[str, ...] | None, tools: Iterable[str], off: set[str], on: set[str]
) -> tuple[str, ...] | None:
    """Returns the patterns that hide `off` and show `on`, and leave the other tools as they are.

    None, before and after, is no filter at all. Patterns that are there stay where they can, since they also
    decide on tools that the server may have later.
    """
    if patterns is not None and any("${" in pattern for pattern in patterns):
        raise NotSwitchable("its toolFilters contain a variable")
    names = tuple(tools)
    before = tool_filter(("*",) if patterns is None else patterns)
    wanted = {name for name in names if (before.shows(name) or name in on) and name not in off}
    if wanted == set(names) and (patterns is None or _is_plain(patterns, names)):
        return None
    if patterns != ():  # which shows nothing: only names can be added to that
        new = _adapted(patterns or (), wanted, set(names))
        if _decides(new, wanted, names):
            return new
    new = tuple(_pattern(name) for name in names if name in wanted)
    if _decides(new, wanted, names):
        return new
    raise NotSwitchable("a name can't be written as a pattern")


def _is_plain(patterns: tuple[str, ...], names: tuple[str, ...]) -> bool:
    """Are these only names of tools that are there, so that nothing is lost without them?"""
    plain = {_pattern(name) for name in names} | {"*"}
    return all(pattern.removeprefix("!") in plain for pattern in patterns)


def _adapted(patterns: tuple[str, ...], wanted: set[str], names: set[str]) -> tuple[str, ...]:
    """Returns the patterns with as few changes as possible; they may not decide what is wanted."""
    hidden = names - wanted
    dropped = {f"!{_pattern(name)}" for name in wanted} | {_pattern(name) for name in hidden}
    kept = [pattern for pattern in patterns if pattern not in dropped]
    if patterns and not kept and all(not pattern.startswith("!") for pattern in patterns):
        return tuple(_pattern(name) for name in sorted(wanted))
    now = tool_filter(tuple(kept) or ("*",))
    kept += [_pattern(name) for name in sorted(wanted) if not now.shows(name)]
    now = tool_filter(tuple(kept) or ("*",))
    return (*kept, *(f"!{_pattern(name)}" for name in sorted(hidden) if now.shows(name)))


def _decides(patterns: tuple[str, ...], wanted: set[str], names: tuple[str, ...]) -> bool:
    new = tool_filter(patterns)
    return all(new.shows(name) == (name in wanted) for name in names)


def _pattern(name: str) -> str:
    """Returns the pattern of exactly this name, as the file has it."""
    return _MAGIC.sub(r"[\1]", name).replace("${", "$${")
