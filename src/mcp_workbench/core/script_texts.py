"""What the author of a script reads when it fails: place, reason, what to write, the calls made."""

import re
from collections.abc import Iterable
from itertools import groupby
from typing import Literal

import msgspec

LONGEST_LINE = 200  # characters of a line of a traceback: of a longer one, the beginning
MOST_LINES = 24  # of a traceback; of a longer one, its end
MOST_PRINTED = 4000  # characters of what a script had printed before it failed
MOST_CALLS = 60  # lines of a list of calls
UNSUPPORTED = re.compile(r"The monty syntax parser does not yet support (.*)")
EXAMPLE = 'r = await call("toolbox/server/tool", name=value)'

CallState = Literal["ok", "failed", "may have run", "cancelled, may have run", "not sent"]


class ScriptedCall(msgspec.Struct):
    """One call of a script, for the list after an error."""

    tool: str
    line: int
    state: CallState = "cancelled, may have run"


class LimitText(msgspec.Struct, frozen=True):
    """How a limit is called, and what to do about it."""

    meaning: str
    advice: str


LIMITS = {
    "execution": LimitText(
        "it computes for longer than {execution:g} s",
        "Only waiting for calls is free: look for an endless loop, or let a tool do the work.",
    ),
    "total": LimitText(
        "it takes longer than {total:g} s in all",
        "Split the work into several scripts, or make calls at the same time with asyncio.gather.",
    ),
    "memory": LimitText(
        "it needs more than {megabytes:g} MB",
        "Keep only the parts of results that are needed.",
    ),
    "calls": LimitText(
        "it makes more than {calls} calls",
        "Split the work into several scripts, or use a tool that does more at once.",
    ),
    "output": LimitText(
        "it prints or returns more than {output_megabytes:g} MB",
        "Print and return only what is needed.",
    ),
}

_DATA = "A call returns the data itself, without an envelope. print(r) shows it."
_CONSTANTS = {"null": "None", "undefined": "None", "true": "True", "false": "False"}
_JAVASCRIPT = re.compile(r"^\s*(?:const|let|var|function)\b|=>", re.MULTILINE)
_COROUTINE = re.compile(r"<coroutine (?:object )?(\w+)")
GATHER = "r = await asyncio.gather(call(...), call(...))"

# Parts of an exception's text, and what to write instead. The first that occurs counts.
_INSTEAD = (
    ("awaitable is required", "Give gather the calls one by one: await asyncio.gather(*calls)."),
    ("can't be awaited", "It has its value already: leave await out."),
    ("JSON object must be", "A call returns data, not its text: use it as it is."),
    ("async comprehensions", "Use a for loop, and await inside it."),
    ("method decorators", "Use a plain function, or a method without decorators."),
    ("'sys' has no attribute 'exit'", "A script ends after its last line, or with return."),
    ("'dict' object has no attribute", 'Data is read by key: r["key"]. print(r) shows what r is.'),
    ("no attribute 'content'", _DATA),
    ("no attribute 'structuredContent'", _DATA),
    ("yield", "Collect the values in a list and return that."),
    ("'del'", "Use d.pop(key), or build a new list or dict without the element."),
    ("inheritance", "Use functions and dicts, a class without bases, built-in exceptions."),
    ("async with", "Use await call(...) for tools; there is nothing else to enter."),
    ("async for", "Use a for loop, and await inside it."),
    ("gather()", "Catch exceptions in a function of your own, and gather that."),
    ("module 'asyncio'", "It has gather and sleep: await asyncio.gather(call(...), call(...))."),
    ("except*", "Use except."),
    ("'coroutine' object", f'A call has no value before it is awaited: {EXAMPLE}, then r["key"]'),
    ("coroutine", f"A call has no value before it is awaited: {EXAMPLE}"),
)
_MODULES = (
    "Modules: asyncio, base64, binascii, bisect, collections, copy, csv, dataclasses, datetime, decimal, functools, "
    "hashlib, itertools, json, math, random, re, time, tomllib, typing, unicodedata. For anything else, call a tool."
)
_OUTSIDE = "Scripts have no files, network, environment or processes: call a tool that has."


def traceback_text(shown: str) -> str:
    """The interpreter's traceback, in our words and cut."""
    lines = [
        _line(line) for line in shown.splitlines() if line != "Traceback (most recent call last):"
    ]
    if len(lines) > MOST_LINES:
        lines = ["  …", *lines[-MOST_LINES:]]
    return "\n".join(lines)


def _line(line: str) -> str:
    for name in ('File "<python-input-1>", line ', 'File "main.py", line '):
        line = line.replace(name, "Line ")
    unsupported = UNSUPPORTED.search(line)
    if unsupported:
        line = f"NotImplementedError: scripts can't use {unsupported[1]}"
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}…"


def advice(kind: str, message: str, shown: str = "") -> str:
    """What to write instead; empty if there is nothing to say. `shown` is the traceback."""
    if kind in ("ModuleNotFoundError", "ImportError"):
        return _MODULES
    if kind == "PermissionError" or "not supported in this environment" in message:
        return _OUTSIDE
    if kind == "SyntaxError":
        return "A script is Python." if _JAVASCRIPT.search(shown) else ""
    if kind == "KeyError":
        return "print(r) shows what a call has returned."
    if kind == "NameError" and (
        name := _CONSTANTS.get(message.partition("'")[2].partition("'")[0])
    ):
        return f"In Python that is {name}."
    if kind == "NameError" and "'call'" not in message:
        return f"Tools are called by name: {EXAMPLE}; search_tools finds them."
    return next((instead for part, instead in _INSTEAD if part in message), "")


def awaited_text(source: str, lines: Iterable[int]) -> str:
    """What to write in place of calls in these lines that were not awaited."""
    written = source.splitlines()
    are_gathered = all(
        0 < line <= len(written) and "gather(" in written[line - 1] for line in lines
    )
    return GATHER if are_gathered else EXAMPLE


def coroutine_text(value: bytes) -> str:
    """What to write in place of a value that is a coroutine; empty for other values."""
    found = _COROUTINE.match(value[1:200].decode("utf-8", "replace")) if value[:1] == b'"' else None
    if found is None:
        return ""
    function = found[1]
    is_call = function in ("external_future", "call")
    return EXAMPLE if is_call else f"await {function}()"


def idle_text(function: str, line: int) -> str:
    """What is wrong with a line that calls an async function of the script, and does not await it."""
    return f"Line {line} calls {function}() without await, so it did nothing. Write: await {function}()"


def unawaited_text(source: str, lines: Iterable[int]) -> str:
    """The calls that were never awaited, each with a caret."""
    written = source.splitlines()
    parts: list[str] = []
    for line in dict.fromkeys(lines):
        code = written[line - 1] if 0 < line <= len(written) else ""
        start = max(code.find("call("), 0)
        shown = code if len(code) <= LONGEST_LINE else f"{code[:LONGEST_LINE]}…"
        parts.append(f"  Line {line}\n    {shown}\n    {' ' * start}^^^^ not awaited")
        if len(parts) == MOST_CALLS:
            break
    return "\n".join(parts)


def printed_text(printed: str) -> str:
    """What a script that has failed had printed: its end, which is nearest to the error."""
    if len(printed) <= MOST_PRINTED:
        return f"It had printed:\n{printed}" if printed else ""
    return f"It had printed {len(printed)} characters, at the end:\n{printed[-MOST_PRINTED:]}"


def calls_text(calls: list[ScriptedCall]) -> str:
    """The calls that were made, because agents run scripts again."""
    sent = sum(call.state != "not sent" for call in calls)
    if not sent:
        return "No call was sent to a server."
    lines = [f"- line {call.line}: {call.tool[:LONGEST_LINE]}: {call.state}" for call in calls]
    counts = [(line, len(list(same))) for line, same in groupby(lines)]
    shown = [f"{line} ({n} times)" if n > 1 else line for line, n in counts[:MOST_CALLS]]
    more = ["- and more"] if len(counts) > MOST_CALLS else []
    count = "1 call was" if sent == 1 else f"{sent} calls were"
    again = "a script that is run again repeats them"
    return "\n".join([f"{count} sent to servers, and {again}:", *shown, *more])
