"""The careful reading of a wrong call: every problem at once, each with its path."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from mcp_workbench.core.errors import MIGRATION, InvalidCall

NEW_FORM = '{"tool": {"toolbox": "…", "server": "…", "tool": "…"}, "arguments": {…}}'
_FIELDS = {"toolbox": "Toolbox", "server": "Server", "tool": "Tool"}
_MISSING: Any = object()


def wrong_use_tool(raw: msgspec.Raw | bytes) -> InvalidCall:
    """What is wrong with these arguments of `use_tool`."""
    given = _object(msgspec.json.decode(raw))
    if given is None:
        return _invalid([_mistyped("", "object", msgspec.json.decode(raw))])
    tool = given.get("tool", _MISSING)
    problems = _wrong_tool(tool)
    arguments = given.get("arguments", _MISSING)
    if arguments is not _MISSING and not isinstance(arguments, dict):
        problems.append(_mistyped("arguments", "object", arguments))
    problems += [f"tool: {_unknown(key)}" for key in _object(tool) or {} if key not in _FIELDS]
    problems += [_unknown(key) for key in given if key not in ("tool", "arguments")]
    retired = isinstance(tool, str) or "tool_name" in given
    return _invalid(problems, retired_hint() if retired else "")


def wrong_open_toolbox(raw: msgspec.Raw | bytes) -> InvalidCall:
    """What is wrong with these arguments of `open_toolbox`."""
    given = _object(msgspec.json.decode(raw))
    if given is None:
        return _invalid([_mistyped("", "object", msgspec.json.decode(raw))])
    return _invalid(_wrong_name("toolbox_name", given.get("toolbox_name", _MISSING), "Toolbox"))


def retired_hint() -> str:
    return f"Since 0.11.0 a tool is named by its parts: {NEW_FORM}. More: {MIGRATION}"


def _wrong_tool(tool: Any) -> list[str]:
    if tool is _MISSING:
        return ["tool: Required"]
    parts = _object(tool)
    if parts is None:
        return [_mistyped("tool", "object", tool)]
    problems: list[str] = []
    for field, word in _FIELDS.items():
        problems += _wrong_name(f"tool.{field}", parts.get(field, _MISSING), word)
    return problems


def _wrong_name(path: str, value: Any, word: str) -> list[str]:
    if value is _MISSING:
        return [f"{path}: Required"]
    if not isinstance(value, str):
        return [_mistyped(path, "string", value)]
    return [] if value else [f"{path}: {word} name cannot be empty"]


def _object(value: Any) -> dict[str, Any] | None:
    return cast(dict[str, Any], value) if isinstance(value, dict) else None


def _mistyped(path: str, expected: str, value: Any) -> str:
    told = f"Expected {expected}, received {_kind(value)}"
    return f"{path}: {told}" if path else told


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    kinds: dict[Any, str] = {str: "string", int: "number", float: "number", list: "array"}
    return kinds.get(type(value), "object")  # pyright: ignore[reportUnknownArgumentType]


def _unknown(key: str) -> str:
    return f'Unrecognized key: "{key}"'


def _invalid(problems: list[str], hint: str = "") -> InvalidCall:
    return InvalidCall(f"Invalid parameters: {'; '.join(problems)}", hint=hint)
