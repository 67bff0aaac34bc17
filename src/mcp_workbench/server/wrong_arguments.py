"""Arguments of our own tools that do not fit: every problem at once, each with its path."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import msgspec

from mcp_workbench.core.errors import MIGRATION, InvalidCall, shown_name
from mcp_workbench.core.raw_json import (
    LONGEST_NAME,
    TOO_COMPLEX,
    Members,
    TooManyParts,
    read_members,
)
from mcp_workbench.core.spec import Detail

if TYPE_CHECKING:
    from mcp_workbench.core.projection import Projection

T = TypeVar("T")

LONGEST_ARGUMENTS = 256 << 10  # bytes; the longest query, all of it escaped, has a little less
MOST_PROBLEMS = 100  # that are listed; the others are counted
_DETAILS = [msgspec.json.encode(detail) for detail in get_args(Detail)]
_TEXTS = ("query", "toolbox", "server", "handle", "find")
LOWEST = float("-inf")  # below any number
Bounds = tuple[int, int]  # minimum and maximum of an integer; a maximum of 0: none
NEW_FORM = '{"tool": {"toolbox": "…", "server": "…", "tool": "…"}, "arguments": {…}}'
_PROJECTION = {"lines": "string", "context": "integer", "select": "string"}
_READING = {**_PROJECTION, "handle": "string"}
_USE_TOOL = ("tool", "arguments", *_READING)
_FIELDS = {"toolbox": "Toolbox", "server": "Server", "tool": "Tool"}
_KINDS = {
    "{": "object",
    "[": "array",
    '"': "string",
    "t": "boolean",
    "f": "boolean",
    "n": "null",
}


def refuse_long(raw: msgspec.Raw | bytes) -> None:
    """Raise InvalidCall if these arguments of a tool of ours are longer than anybody would write."""
    if len(raw) > LONGEST_ARGUMENTS:
        raise _invalid([f"arguments: longer than {LONGEST_ARGUMENTS >> 10} KiB, {TOO_COMPLEX}"])


def long_member(path: str) -> InvalidCall:
    return _invalid([f"{path}: longer than {LONGEST_NAME >> 10} KiB"])


def read_given(raw: msgspec.Raw | bytes) -> Members:
    try:
        return read_members(raw)
    except TooManyParts as error:
        raise _invalid([str(error)]) from None


def read_last(
    read: Callable[[msgspec.Raw | bytes], T], raw: msgspec.Raw | bytes, inside: str = ""
) -> T:
    """What `read` returns; of a repeated name the last value counts, whatever the others are.

    The codec does the same, but validates every value. `inside` is a member to treat the same way.
    """
    try:
        return read(raw)
    except msgspec.ValidationError:
        members = read_members(raw)
        if inside in members:
            members[inside] = msgspec.Raw(msgspec.json.encode(read_members(members[inside])))
        return read(msgspec.json.encode(members))


def wrong_use_tool(raw: msgspec.Raw | bytes) -> InvalidCall:
    """What is wrong with these arguments of `use_tool`."""
    if kind_of(raw) != "object":
        return _invalid([_mistyped("", "object", raw)])
    try:
        given = read_members(raw)
        tool = given.get("tool")
        parts = read_members(tool) if tool is not None and kind_of(tool) == "object" else None
    except TooManyParts as error:
        return _invalid([str(error)])
    problems = ["tool: Required"] if tool is None else _wrong_tool(tool, parts)
    arguments = given.get("arguments")
    if arguments is not None and kind_of(arguments) != "object":
        problems.append(_mistyped("arguments", "object", arguments))
    problems += _wrong_types(given, _READING)
    problems += [f"tool: {_unknown(key)}" for key in parts or {} if key not in _FIELDS]
    problems += [_unknown(key) for key in given if key not in _USE_TOOL]
    return _invalid(problems, _use_tool_hint(given, parts))


def _use_tool_hint(given: Members, parts: Members | None) -> str:
    """The new form, for a call in one of the forms of other versions."""
    tool = given.get("tool")
    if "tool_name" in given or (tool is not None and kind_of(tool) == "string"):
        return renamed_hint()
    if parts is not None and "name" in parts and "tool" not in parts:
        return other_version_hint('"name"', f'"tool" in the identifier: {NEW_FORM}')
    return ""


def _wrong_types(given: Members, types: dict[str, str]) -> list[str]:
    problems: list[str] = []
    for key, expected in types.items():
        value = given.get(key)
        if value is None:
            continue
        kind = kind_of(value)
        if expected == "integer" and kind == "number" and _fits(value, LOWEST, 0):
            continue
        if kind != expected:
            problems.append(f"{key}: Expected {expected}, received {kind}")
    return problems


def wanted_part(select: str | None, lines: str | None, context: int) -> Projection | None:
    """The part of a result that is asked for; None if it is all. Raises InvalidCall with every problem."""
    if not (select or lines):
        return None
    from mcp_workbench.core.projection import InvalidProjection, read_projection  # rarely needed

    try:
        return read_projection(select or "", lines or "", context)
    except InvalidProjection as error:
        raise _invalid(error.problems) from None


def wrong_open_toolbox(raw: msgspec.Raw | bytes, *, detailed: bool) -> InvalidCall:
    """What is wrong with these arguments of `open_toolbox`; `detailed`: it takes a `detail`."""
    if kind_of(raw) != "object":
        return _invalid([_mistyped("", "object", raw)])
    try:
        given = read_members(raw)
    except TooManyParts as error:
        return _invalid([str(error)])
    problems = _wrong_name("toolbox_name", given.get("toolbox_name"), "Toolbox")
    hint = ""
    if "toolbox" in given and "toolbox_name" not in given:
        hint = other_version_hint('"toolbox"', '"toolbox_name": {"toolbox_name": "…"}')
    return _invalid(problems + (_wrong_detail(given) if detailed else []), hint)


def wrong_reading(raw: msgspec.Raw | bytes, needed: str, numbers: dict[str, Bounds]) -> InvalidCall:
    """What is wrong with these arguments of `search_tools` or `read_result`.

    `needed` is the required string; `numbers` are the optional integers, each with its bounds.
    """
    if kind_of(raw) != "object":
        return _invalid([_mistyped("", "object", raw)])
    try:
        members = read_members(raw).items()
    except TooManyParts as error:
        return _invalid([str(error)])
    # An optional member that is null counts as absent.
    given = {key: value for key, value in members if key == needed or kind_of(value) != "null"}
    problems = _wrong_name(needed, given.get(needed), needed.capitalize())
    for key, value in given.items():
        if key in numbers and kind_of(value) != "number":
            problems.append(_mistyped(key, "number", value))
        elif key in numbers and not _fits(value, *numbers[key]):
            least, most = numbers[key]
            bounds = f"from {least} to {most}" if most else f"from {least} up"
            problems.append(f"{key}: must be a whole number {bounds}")
        elif key in _TEXTS and key != needed:
            problems += _wrong_name(key, value, key.capitalize())
    problems += _wrong_types(given, _PROJECTION) if needed == "handle" else []
    return _invalid(problems + _wrong_detail(given))


def whole_number(value: Any, least: float) -> int | None:
    """The number, if it is an integer and not below the minimum; 5.0 is 5, as in JSON Schema."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        return None
    return value


def _fits(value: msgspec.Raw, least: float, most: int) -> bool:
    try:
        number = whole_number(msgspec.json.Decoder(float_hook=float).decode(value), least)
    except msgspec.ValidationError:  # thousands of digits
        return False
    return number is not None and (not most or number <= most)


def _wrong_detail(given: Members) -> list[str]:
    value = given.get("detail")
    if value is None or bytes(value) in _DETAILS:
        return []
    return [f"detail: must be one of {', '.join(get_args(Detail))}"]


def renamed_hint() -> str:
    return f"Since 0.11.0 a tool is named by its parts: {NEW_FORM}. More: {MIGRATION}"


def other_version_hint(theirs: str, ours: str) -> str:
    """The hint for a key of the TypeScript workbench, whose later versions renamed some."""
    return f"{theirs} of the TypeScript workbench (0.12 to 0.14) is {ours}. More: {MIGRATION}"


def _wrong_tool(tool: msgspec.Raw, parts: Members | None) -> list[str]:
    if parts is None:
        return [_mistyped("tool", "object", tool)]
    problems: list[str] = []
    for field, word in _FIELDS.items():
        problems += _wrong_name(f"tool.{field}", parts.get(field), word)
    return problems


def _wrong_name(path: str, value: msgspec.Raw | None, word: str) -> list[str]:
    if value is None:
        return [f"{path}: Required"]
    if kind_of(value) != "string":
        return [_mistyped(path, "string", value)]
    return [f"{path}: {word} name cannot be empty"] if bytes(value) == b'""' else []


def _mistyped(path: str, expected: str, value: msgspec.Raw | bytes) -> str:
    problem = f"Expected {expected}, received {kind_of(value)}"
    return f"{path}: {problem}" if path else problem


def kind_of(value: msgspec.Raw | bytes) -> str:
    """The type of a JSON value, by its first character: this never fails."""
    return _KINDS.get(chr(memoryview(value)[0]), "number")


def _unknown(key: str) -> str:
    return f'Unrecognized key: "{shown_name(key)}"'


def _invalid(problems: list[str], hint: str = "") -> InvalidCall:
    more = len(problems) - MOST_PROBLEMS
    shown = [*problems[:MOST_PROBLEMS], f"and {more} more"] if more > 0 else problems
    return InvalidCall(f"Invalid parameters: {'; '.join(shown)}", hint=hint)
