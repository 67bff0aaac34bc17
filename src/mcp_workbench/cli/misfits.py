"""What is wrong with the arguments that a person typed, by the tool's own schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import msgspec

from mcp_workbench.cli.facts import kind_of, kinds_of, properties_of, required_of
from mcp_workbench.core.catalogue import ToolInfo
from mcp_workbench.core.errors import did_you_mean
from mcp_workbench.wire.depth import read_json

Json = dict[str, Any]

_MOST_SHOWN = 12  # choices of an enumeration in a message
_UNDECIDED = ("$ref", "anyOf", "oneOf", "allOf", "not", "if")  # the server's to judge
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}
_WORDS: dict[Any, str] = {
    str: "text",
    bool: "true or false",
    int: "a number",
    float: "a number",
    list: "an array",
    dict: "an object",
    type(None): "null",
}


def misfits(tool: ToolInfo, arguments: Json, texts: set[str]) -> list[str]:
    """What the schema would refuse, the worst first. `texts` were typed as `name=text`."""
    properties = properties_of(tool.input_schema)
    missing = [name for name in required_of(tool.input_schema) if name not in arguments]
    strange = [name for name in arguments if name not in properties]
    closed = tool.input_schema.get("additionalProperties") is False
    free = [name for name in properties if name not in arguments]
    told = [_several("missing", missing, tool)] if missing else []
    if missing:
        told += [f"got: {name}{_near(name, free)}" for name in strange]
    elif closed:
        told += [f"{_several('unknown', [name], tool)}{_near(name, free)}" for name in strange]
    for name, schema in properties.items():
        if name in arguments:
            told += _faults(arguments[name], schema, name, typed=name in texts)
    return told


def remarks(tool: ToolInfo, arguments: Json) -> list[str]:
    """What the schema lets pass although it is probably a slip."""
    properties = properties_of(tool.input_schema)
    if not properties or tool.input_schema.get("additionalProperties") is False:
        return []
    strange = [name for name in arguments if name not in properties]
    free = [name for name in properties if name not in arguments]
    near = {name: _near(name, free) for name in strange}
    return [f"{_several('unknown', [name], tool)}{hint}" for name, hint in near.items() if hint]


def _faults(value: Any, schema: Json, path: str, *, typed: bool = False) -> Iterator[str]:
    if any(key in schema for key in _UNDECIDED):
        return
    choices: Any = schema.get("enum")
    kinds = [kind for kind in kinds_of(schema) if kind in _TYPES]
    if kinds and not any(_is(value, kind) for kind in kinds):
        yield _mistyped(path, value, schema, typed=typed)
    elif isinstance(choices, list) and value not in cast("list[Any]", choices):
        yield _unlisted(path, value, cast("list[Any]", choices))
    elif isinstance(value, dict):
        yield from _inside(cast("Json", value), schema, path)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, item in enumerate(cast("list[Any]", value)):
            yield from _faults(item, schema["items"], f"{path}[{index}]")


def _inside(value: Json, schema: Json, path: str) -> Iterator[str]:
    properties = properties_of(schema)
    free = [name for name in properties if name not in value]
    for name in required_of(schema):
        if name not in value:
            yield f"missing '{name}' in argument '{path}'"
    for name, inner in value.items():
        if name in properties:
            yield from _faults(inner, properties[name], f"{path}.{name}")
        elif schema.get("additionalProperties") is False:
            yield f"unknown '{name}' in argument '{path}'{_near(name, free)}"


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[kind])


def _mistyped(path: str, value: Any, schema: Json, *, typed: bool) -> str:
    told = f"argument '{path}' takes {kind_of(schema)}, not {_WORDS[cast('Any', type(value))]}"
    if typed:
        return f"{told}: write {path}:={_as_json(value)}"
    if "string" in kinds_of(schema) and "." not in path and "[" not in path:
        return f"{told}: write {path}={msgspec.json.encode(value).decode()}"
    return told


def _unlisted(path: str, value: Any, choices: list[Any]) -> str:
    names = [str(choice) for choice in choices]
    shown = ", ".join(names[:_MOST_SHOWN]) + (", …" if len(names) > _MOST_SHOWN else "")
    return f"argument '{path}' takes one of {shown}; not '{value}'{_near(str(value), names)}"


def _as_json(text: str) -> str:
    try:
        read_json(text)
    except (ValueError, RecursionError):
        return "JSON"
    return text


def _several(fault: str, names: list[str], tool: ToolInfo) -> str:
    whose = f"{tool.toolbox_name}/{tool.source_server}/{tool.name}"
    listed = ", ".join(f"'{name}'" for name in names)
    return f"{fault} argument{'s' if len(names) > 1 else ''} {listed} for {whose}"


def _near(name: str, known: list[str]) -> str:
    hint = did_you_mean(name, known)
    return f" (did{hint.removeprefix('Did')})" if hint else ""
