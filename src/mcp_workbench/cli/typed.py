"""What a person typed for a tool: its name, and arguments as pairs, as JSON, from a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

from mcp_workbench.core.errors import InvalidCall, empty_component
from mcp_workbench.core.names import ToolIdentifier
from mcp_workbench.wire.depth import DEPTH, read_json

Json = dict[str, Any]

_NAMED = "a tool is named TOOLBOX/SERVER/TOOL; mcp-workbench tools lists them"
_OBJECT = 'such as {"name": "value"}'
_TOO_DEEP = f"nested more than {DEPTH} levels deep"  # as deep as no message may be
_FILE = "write --input @PATH with a file that holds a JSON object, or --input - for standard input"


def read_identifier(text: str) -> ToolIdentifier:
    """`TOOLBOX/SERVER/TOOL`"""
    parts = text.split("/", 2)
    for field, part in zip(("toolbox", "server", "tool"), (*parts, "", ""), strict=False):
        if not part:
            raise InvalidCall(empty_component(field), hint=_NAMED)
    return ToolIdentifier(*parts)


def read_input(given: str) -> Json:
    """A JSON object from the line, from `@FILE`, or from stdin (`-`)."""
    text = _read(given)
    try:
        value: Any = read_json(text)
    except RecursionError:
        raise InvalidCall(f"--input is {_TOO_DEEP}") from None
    except ValueError as error:
        reason = _reason(text, error, given)
        raise InvalidCall(f"--input is not JSON: {reason}", hint=_OBJECT) from None
    if not isinstance(value, dict):
        raise InvalidCall("--input must be a JSON object", hint=_OBJECT)
    return cast("Json", value)


def _read(given: str) -> bytes | str:
    if given == "-":
        return sys.stdin.buffer.read()
    if not given.startswith("@"):
        return given
    if given == "@":
        raise InvalidCall("--input @ names no file", hint=_FILE)
    try:
        return Path(given[1:]).read_bytes()
    except OSError as error:
        raise InvalidCall(f"can't read {given[1:]}: {error.strerror}", hint=_FILE) from None


def _reason(text: bytes | str, error: Exception, given: str = "") -> str:
    """What is wrong, and where; the text itself is not repeated."""
    from mcp_workbench.core import jsonc  # only where something is wrong

    try:
        jsonc.parse(text if isinstance(text, str) else text.decode())
    except jsonc.TooDeep:  # for the reader of files that people write; the wire's reads further
        return str(error)
    except jsonc.SyntaxProblem as problem:
        name = "standard input" if given == "-" else given[1:] if given.startswith("@") else ""
        place = f"{name}:{problem.line}:{problem.column}: " if name else ""
        return f"{place}{problem.message}"
    except UnicodeDecodeError:
        return "it is not UTF-8 text"
    return str(error)  # such as a comment, which a file of settings may have


def add_pairs(pairs: tuple[str, ...], arguments: Json) -> set[str]:
    """Put them in, and return the names of those that were given as text."""
    texts: set[str] = set()
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or name in ("", ":"):
            raise InvalidCall(
                f"'{pair}' is not an argument",
                hint="write NAME=TEXT, or NAME:=JSON for other values",
            )
        if name.endswith(":"):
            name = name[:-1]
            arguments[name] = _json(name, value)
            texts.discard(name)
        else:
            arguments[name] = value
            texts.add(name)
    return texts


def _json(name: str, value: str) -> Any:
    try:
        return read_json(value)
    except RecursionError:
        raise InvalidCall(f"the value of '{name}' is {_TOO_DEEP}") from None
    except ValueError as error:
        hint = f"for a text write {name}=TEXT"
        reason = _reason(value, error)
        raise InvalidCall(f"the value of '{name}' is not JSON: {reason}", hint=hint) from None
