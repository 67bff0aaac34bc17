"""The question whether a call is approved, in words: what others wrote is escaped and cut."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from mcp_workbench.core.approve_rules import READ
from mcp_workbench.core.call_request import TOOLS_CALL
from mcp_workbench.schema.document import printable

if TYPE_CHECKING:
    from mcp_workbench.gateway.calls import Call

LONGEST_NAME = 200  # characters of a name or a URI
LONGEST_STRING = 300  # characters of a string in the arguments
LONGEST_TEXT = 4000  # characters of all arguments
MOST_READ = 64 << 10  # bytes of the arguments that are looked at

_DOORS = {"cli": "mcp-workbench call", "python": "a Python program"}
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
# Characters that Python takes for printable and that show nothing: fillers and selectors of variants.
_BLANK = re.compile(
    "[\u115f\u1160\u17b4\u17b5\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def question_text(call: Call, name: str) -> str:
    """Return who wants to call what, with which arguments; `name` is that of the tool or prompt, or the URI."""
    request = call.request
    verb, what = "call", "tool"
    if request.method != TOOLS_CALL:
        verb, what = ("read", "resource") if request.method == READ else ("get", "prompt")
    of = f"{request.tool.toolbox}/{request.tool.server}"
    text = f"MCP Workbench asks for approval: {_who(call)} wants to {verb} the {what} {_name(name)} of the server {of}"
    arguments = request.params.get("arguments")
    if arguments is None or request.method == READ:
        return f"{text}."
    return f"{text} with these arguments:\n{arguments_text(arguments)}"


def _who(call: Call) -> str:
    name, version = call.host
    who = _name(name, version) if name else _DOORS.get(call.door, "a host without a name")
    principal = call.view.principal
    return f"{who} (as {_name(principal)})" if principal else who


def _name(*parts: str) -> str:
    text = " ".join(part for part in parts if part)
    return visible(msgspec.json.encode(_cut(text, LONGEST_NAME)).decode())


def visible(text: str) -> str:
    """Return the text in one line, with every character that can't be seen escaped as in JSON."""
    escaped = printable(text)
    return _BLANK.sub(lambda blank: _escaped(blank[0]), escaped)


def _escaped(char: str) -> str:
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2))


def _cut(text: str, longest: int) -> str:
    left = len(text) - longest
    return text if left <= 0 else f"{text[:longest]}… ({left:,} more characters)"


def arguments_text(arguments: msgspec.Raw | bytes) -> str:
    """Return arguments on one line: strings as they read, long ones cut, repeated names and all else as written."""
    raw = bytes(arguments)
    unread = len(raw) - MOST_READ
    text = _compact(raw[:MOST_READ]).decode("utf-8", "replace")
    text = visible(_STRING.sub(lambda string: _shown(string[0]), text))
    left = len(text) - LONGEST_TEXT
    notes = [f"{left:,} more characters"] if left > 0 else []
    notes += [f"{unread:,} more bytes"] if unread > 0 else []
    return f"{text[:LONGEST_TEXT]}… (not shown: {', '.join(notes)})" if notes else text


def _compact(raw: bytes) -> bytes:
    try:
        return msgspec.json.format(raw, indent=-1)
    except (msgspec.DecodeError, RecursionError):  # cut, or odd: white space is escaped then
        return raw


def _shown(string: str) -> str:
    """Return a JSON string as it reads: no letter is hidden behind an escape, and a long one is cut."""
    try:
        return msgspec.json.encode(_cut(msgspec.json.decode(string), LONGEST_STRING)).decode()
    except (msgspec.DecodeError, UnicodeEncodeError):  # a lone surrogate
        return _cut(string, LONGEST_STRING)
