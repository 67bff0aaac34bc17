"""Arguments of `call`: read from the command line, and checked against the tool's schema.

`schema` compares them with the schema; this module words the mismatches for the user.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec

from mcp_workbench.core.catalogue import ToolInfo
from mcp_workbench.core.errors import InvalidCall, did_you_mean
from mcp_workbench.core.raw_json import TooComplex
from mcp_workbench.schema.document import properties_of, types_of
from mcp_workbench.schema.mismatches import Mismatch, allowed_values, is_closed, mismatches
from mcp_workbench.schema.mismatches import Path as ValuePath
from mcp_workbench.schema.signature import type_text
from mcp_workbench.schema.text_values import typed
from mcp_workbench.transport.json_text import DEPTH, read_json

Json = dict[str, Any]
_OBJECT = 'such as {"name": "value"}'
_TOO_DEEP = f"nested more than {DEPTH} levels deep"  # the limit of a message
_FILE = "write --input @PATH with a file that holds a JSON object, or --input - for standard input"
_MOST_QUOTED = 60  # characters of a text in a message
_MOST_SHOWN = 12  # choices of an enumeration in a message
_WORDS: dict[Any, str] = {
    str: "text",
    bool: "true or false",
    int: "a number",
    float: "a number",
    list: "an array",
    dict: "an object",
    type(None): "null",
}


def read_input(given: str) -> Json:
    """Reads a JSON object from the command line, from `@FILE`, or from stdin (`-`)."""
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
    """Returns what is wrong, and where; it does not quote the text."""
    from mcp_workbench.config import jsonc

    try:
        jsonc.parse(text if isinstance(text, str) else text.decode())
    except jsonc.TooDeep:  # this parser is for files, and goes less deep than the other one
        return str(error)
    except jsonc.SyntaxProblem as problem:
        name = "standard input" if given == "-" else given[1:] if given.startswith("@") else ""
        place = f"{name}:{problem.line}:{problem.column}: " if name else ""
        return f"{place}{problem.message}"
    except UnicodeDecodeError:
        return "it is not UTF-8 text"
    return str(error)  # such as a comment, which only configuration files may have


def add_pairs(pairs: tuple[str, ...], arguments: Json) -> set[str]:
    """Adds the pairs to the arguments; returns the names of those that were given as text."""
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


# Checks against the schema


def checked_arguments(tool: ToolInfo, arguments: Json, texts: set[str]) -> Json:
    """Returns the arguments as the schema wants them. Raises InvalidCall with all that it refuses."""
    values = typed(tool.input_schema, arguments, texts)
    if wrong := argument_errors(tool, values, texts):
        from mcp_workbench.cli.tools import signature  # only for a refusal

        raise InvalidCall("\n".join((*wrong, signature(tool))))
    return values


def argument_errors(tool: ToolInfo, arguments: Json, texts: set[str]) -> list[str]:
    """Returns what the schema refuses, the worst first. `texts` were typed as `name=text`."""
    wrong = list(_mismatches(tool, arguments))
    missing = [str(m.path[0]) for m in wrong if m.kind == "missing" and len(m.path) == 1]
    strange, free = _strange_and_unused(tool, arguments)
    lines = [_several("missing", missing, tool)] if missing else []
    if missing:
        lines += [f"got: {name}{_near(name, free)}" for name in strange]
    elif is_closed(tool.input_schema):
        lines += [f"{_several('unknown', [name], tool)}{_near(name, free)}" for name in strange]
    inner = (m for m in wrong if len(m.path) > (m.kind in ("missing", "unknown")))
    return lines + [line for m in inner if (line := _line(m, texts))]


def argument_notes(tool: ToolInfo, arguments: Json) -> list[str]:
    """Returns what the schema allows although it is probably a slip."""
    if not properties_of(tool.input_schema) or is_closed(tool.input_schema):
        return []
    strange, free = _strange_and_unused(tool, arguments)
    near = {name: _near(name, free) for name in strange}
    return [f"{_several('unknown', [name], tool)}{hint}" for name, hint in near.items() if hint]


def _mismatches(tool: ToolInfo, arguments: Json) -> Iterator[Mismatch]:
    try:
        yield from mismatches(tool.input_schema, arguments)
    except TooComplex:  # the server decides about the rest
        return


def _strange_and_unused(tool: ToolInfo, arguments: Json) -> tuple[list[str], list[str]]:
    """Returns the arguments that the schema does not name, and its names that were not given."""
    properties = properties_of(tool.input_schema)
    strange = [name for name in arguments if name not in properties]
    return strange, [name for name in properties if name not in arguments]


def _line(mismatch: Mismatch, texts: set[str]) -> str:
    """Returns one mismatch in words; nothing for the arguments as a whole, which the server explains."""
    if not mismatch.path:
        return ""
    *parents, name = mismatch.path
    match mismatch.kind:
        case "type" | "choice":
            return _mistyped(mismatch, as_text=not parents and name in texts)
        case "limit":
            return f"argument '{_dotted(mismatch.path)}' {mismatch.detail}"
        case "forbidden":
            return f"argument '{_dotted(mismatch.path)}' is not allowed"
        case "value":
            return _unlisted(mismatch)
        case "missing":
            return f"missing '{name}' in argument '{_dotted(parents)}'"
        case "unknown":
            hint = _in_brackets(mismatch.detail)
            return f"unknown '{name}' in argument '{_dotted(parents)}'{hint}"


def _mistyped(mismatch: Mismatch, *, as_text: bool) -> str:
    path, value, schema = _dotted(mismatch.path), mismatch.value, mismatch.schema
    if as_text and isinstance(value, str):
        shown = value if len(value) <= _MOST_QUOTED else f"{value[:_MOST_QUOTED]}…"
        nested = {"array", "object"} & set(types_of(schema))
        hint = f": write {path}:=JSON" if nested else ""
        return f"argument '{path}' takes {type_text(schema)}, not the text '{shown}'{hint}"
    words = _WORDS[cast("Any", type(value))]
    line = f"argument '{path}' takes {type_text(schema)}, not {words}"
    if "string" in types_of(schema) and "." not in path and "[" not in path:
        return f"{line}: write {path}={msgspec.json.encode(value).decode()}"
    return line


def _unlisted(mismatch: Mismatch) -> str:
    names = [str(choice) for choice in allowed_values(mismatch.schema)]
    shown = ", ".join(names[:_MOST_SHOWN]) + (", …" if len(names) > _MOST_SHOWN else "")
    value = str(mismatch.value)
    path = _dotted(mismatch.path)
    return f"argument '{path}' takes one of {shown}; not '{value}'{_near(value, names)}"


def _dotted(path: ValuePath | list[str | int]) -> str:
    text = ""
    for key in path:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else key
    return text


def _several(fault: str, names: list[str], tool: ToolInfo) -> str:
    owner = f"{tool.toolbox_name}/{tool.source_server}/{tool.name}"
    listed = ", ".join(f"'{name}'" for name in names)
    return f"{fault} argument{'s' if len(names) > 1 else ''} {listed} for {owner}"


def _near(name: str, known: list[str]) -> str:
    return _in_brackets(did_you_mean(name, known))


def _in_brackets(hint: str) -> str:
    return f" (did{hint.removeprefix('Did')})" if hint else ""
