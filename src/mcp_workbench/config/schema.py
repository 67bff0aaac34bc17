"""The file's own words, once: what each key may hold, what it means, and what it is elsewhere."""

import re
from collections.abc import Callable, Iterable
from typing import Any, cast

import msgspec

from mcp_workbench.config.expand import Path
from mcp_workbench.core.spec import (
    CALL_TIMEOUT,
    CALLS_PER_SERVER,
    CONNECT_TIMEOUT,
    MESSAGE_BYTES,
    OPEN_WAIT,
    QUEUE_BYTES,
)

NAME = "[A-Za-z0-9_-]+"
AMBIGUOUS = "__|_$"  # in a name of dynamic mode: a flat name would split in two ways
LEAST_BYTES = 1024  # below this not even a handshake fits
MOST = 1 << 53  # of any number; beyond it JSON readers disagree
TRANSPORTS = {"stdio": "stdio", "http": "http", "streamable-http": "http", "sse": "sse"}

_HEADER = "[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_VARIABLE = {"type": "string", "pattern": r"\$\{"}

Wrong = Iterable[tuple[Path, str]]


class Kind(msgspec.Struct, frozen=True):
    """What a member may hold: in words, for editors, and as a check that says what is wrong."""

    words: str
    schema: dict[str, Any]
    wrong: Callable[[Any], Wrong]
    choices: tuple[str, ...] = ()


class Key(msgspec.Struct, frozen=True):
    """One word of the file."""

    kind: Kind
    doc: str
    default: Any = None  # none: there is no such value unless the file says so
    example: Any = None  # for a fix, where the default shows nothing


def kind_of(value: Any) -> str:
    """What a JSON value is, in words."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    names = {str: "a string", list: "a list", dict: "an object"}
    return next((words for kind, words in names.items() if isinstance(value, kind)), "a number")


def number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _plain(words: str, schema: dict[str, Any], right: Callable[[Any], bool]) -> Kind:
    def wrong(value: Any) -> Wrong:
        return () if right(value) else (((), f"must be {words}, not {kind_of(value)}"),)

    return Kind(words, schema, wrong)


def _in_range(words: str, schema: dict[str, Any], right: Callable[[Any], bool]) -> Kind:
    def wrong(value: Any) -> Wrong:
        if number(value) and right(value):
            return ()
        said = str(value)[:20] if number(value) else kind_of(value)
        return (((), f"must be {words}, not {said}"),)

    return Kind(words, schema, wrong)


def _whole(least: int) -> Kind:
    return _in_range(
        f"a whole number from {least} up",
        {"type": "integer", "minimum": least, "maximum": MOST},
        lambda value: least <= value <= MOST and value == int(value),
    )


def _one_of(*choices: str, variables: bool = False) -> Kind:
    words = " or ".join(f'"{choice}"' for choice in choices)
    schema: dict[str, Any] = {"enum": list(choices)}
    return Kind(
        words,
        {"anyOf": [schema, _VARIABLE]} if variables else schema,
        lambda value: () if value in choices else (((), f"must be {words}"),),
        choices,
    )


def _text_problem(value: Any) -> Wrong:
    if not isinstance(value, str):
        yield (), f"must be a string, not {kind_of(value)}"
    elif "\0" in value:
        yield (), "must not contain a NUL character"


def _filled_problem(value: Any) -> Wrong:
    yield from _text_problem(value) if value != "" else [((), "must not be empty")]


def _url_problem(value: Any) -> Wrong:
    yield from _filled_problem(value)
    if isinstance(value, str) and value and not re.match(r"https?://.|\$\{", value, re.IGNORECASE):
        yield (), "must begin with http:// or https://"


def _texts_problem(value: Any) -> Wrong:
    if not isinstance(value, list):
        yield (), f"must be a list of strings, not {kind_of(value)}"
        return
    for index, item in enumerate(cast("list[Any]", value)):
        yield from (((index,), message) for _, message in _text_problem(item))


def _pairs(words: str, names: str) -> Kind:
    """An object of strings. Numbers and truth values are taken too: pasted files have them."""

    def wrong(value: Any) -> Wrong:
        if not isinstance(value, dict):
            yield (), f"must be an object of strings, not {kind_of(value)}"
            return
        for name, text in cast("dict[str, Any]", value).items():
            if not re.fullmatch(names, name):
                yield (name,), f"is not the name of {words}"
            if not number(text) and not isinstance(text, bool):
                yield from (((name,), message) for _, message in _text_problem(text))

    schema: dict[str, Any] = {
        "type": "object",
        "propertyNames": {"pattern": f"^(?:{names})$"},
        "additionalProperties": {"type": ["string", "number", "boolean"]},
    }
    return Kind("an object of strings", schema, wrong)


def _object(schema: dict[str, Any]) -> Kind:
    return _plain("an object", schema, lambda value: isinstance(value, dict))


TEXT = Kind("a string", {"type": "string"}, _text_problem)
FILLED = Kind("a string", {"type": "string", "minLength": 1}, _filled_problem)
URL = Kind(
    "a URL", {"type": "string", "pattern": r"^([Hh][Tt][Tt][Pp][Ss]?://.|\$\{)"}, _url_problem
)
TEXTS = Kind("a list of strings", {"type": "array", "items": {"type": "string"}}, _texts_problem)
FLAG = _plain("true or false", {"type": "boolean"}, lambda value: isinstance(value, bool))
SECONDS = _in_range(
    "a number of seconds above 0",
    {"type": "number", "exclusiveMinimum": 0, "maximum": MOST},
    lambda value: 0 < value <= MOST,
)
SERVERS = _object({"$ref": "#/$defs/servers"})
_A_SERVER = {"filesystem": {"command": "npx", "args": ["-y", "some-package"]}}

TOP = {
    "$schema": Key(
        TEXT, "Where editors find the schema; nothing else reads it.", example="schema.json"
    ),
    "toolMode": Key(
        _one_of("proxy", "dynamic"),
        "How tools are shown: behind two meta-tools, or each by its flat name.",
        "proxy",
    ),
    "toolboxes": Key(
        _object({"$ref": "#/$defs/toolboxes"}),
        "The toolboxes by name.",
        example={"dev": {"mcpServers": {}}},
    ),
    "mcpServers": Key(
        SERVERS,
        "Instead of `toolboxes`: the servers of one toolbox `default`.",
        example=_A_SERVER,
    ),
    "limits": Key(
        _object({"$ref": "#/$defs/limits"}),
        "Where to say no instead of growing.",
        example={"openWait": OPEN_WAIT},
    ),
}
TOOLBOX = {
    "description": Key(TEXT, "What the toolbox is for; models read it.", "", "Development"),
    "mcpServers": Key(SERVERS, "The servers of the toolbox by name.", example=_A_SERVER),
}
SERVER = {
    "command": Key(
        FILLED, "The program to start; it speaks MCP on stdin and stdout.", example="npx"
    ),
    "args": Key(TEXTS, "Its arguments.", [], ["-y", "some-package"]),
    "env": Key(
        _pairs("a variable", r"[^=\x00]+"),
        "Variables that it gets.",
        {},
        {"TOKEN": "${TOKEN}"},
    ),
    "cwd": Key(TEXT, "Its folder; a relative one counts from the configuration file.", "", "."),
    "url": Key(URL, "Where a remote server listens.", example="https://example.com/mcp"),
    "headers": Key(
        _pairs("a header", _HEADER),
        "HTTP headers for every request to it.",
        {},
        {"Authorization": "Bearer ${TOKEN}"},
    ),
    "type": Key(
        _one_of(*TRANSPORTS, variables=True),
        "How to speak to it; `http` where there is a `url`, otherwise `stdio`.",
        example="http",
    ),
    "transport": Key(_one_of(*TRANSPORTS, variables=True), "The same as `type`.", example="http"),
    "disabled": Key(FLAG, "Skip this server.", default=False, example=True),
    "toolFilters": Key(
        TEXTS, "Which of its tools are shown.", ["*"], ["read_*", "!read_media_file"]
    ),
    "era": Key(
        _one_of("auto", "legacy", "modern", variables=True),
        "Which generation of the protocol it speaks; normally found out.",
        "auto",
    ),
    "connectTimeout": Key(SECONDS, "Seconds until it must have started.", CONNECT_TIMEOUT),
    "timeout": Key(SECONDS, "Seconds until a call must be answered.", CALL_TIMEOUT),
}
LIMITS = {
    "messageBytes": Key(_whole(LEAST_BYTES), "The largest single message.", MESSAGE_BYTES),
    "callsPerServer": Key(_whole(1), "Calls under way at one server.", CALLS_PER_SERVER),
    "queueBytes": Key(
        _whole(LEAST_BYTES), "Bytes kept for a server that does not read.", QUEUE_BYTES
    ),
    "openWait": Key(SECONDS, "Seconds that `open_toolbox` waits for a slow server.", OPEN_WAIT),
}
TABLES = {"top": TOP, "toolbox": TOOLBOX, "server": SERVER, "limits": LIMITS}


def json_schema() -> dict[str, Any]:
    """The same words for editors. Unknown keys pass, as they do when the file is loaded."""
    named: dict[str, Any] = {"type": "object", "propertyNames": {"pattern": f"^{NAME}$"}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "MCP Workbench configuration",
        **_members(TOP),
        "oneOf": [{"required": ["toolboxes"]}, {"required": ["mcpServers"]}],
        "if": {"required": ["toolMode"], "properties": {"toolMode": {"const": "dynamic"}}},
        "then": {"properties": _with_unambiguous_names()},
        "$defs": {
            "toolboxes": {**named, "additionalProperties": {"$ref": "#/$defs/toolbox"}},
            "toolbox": {**_members(TOOLBOX), "required": ["mcpServers"]},
            "servers": {**named, "additionalProperties": {"$ref": "#/$defs/server"}},
            "server": {**_members(SERVER), "anyOf": list(_server_shapes())},
            "limits": _members(LIMITS),
        },
    }


def _members(table: dict[str, Key]) -> dict[str, Any]:
    return {"type": "object", "properties": {name: _member(key) for name, key in table.items()}}


def _member(key: Key) -> dict[str, Any]:
    default = {} if key.default is None else {"default": key.default}
    examples = {} if key.example is None else {"examples": [key.example]}
    return {**key.kind.schema, "description": key.doc, **default, **examples}


def _with_unambiguous_names() -> dict[str, Any]:
    names = {"propertyNames": {"not": {"pattern": AMBIGUOUS}}}
    inner = {"properties": {"mcpServers": names}}
    return {"toolboxes": {**names, "additionalProperties": inner}, "mcpServers": names}


def _server_shapes() -> Iterable[dict[str, Any]]:
    yield {"required": ["disabled"], "properties": {"disabled": {"const": True}}}
    for key, other, kinds in (
        ("command", "url", ["stdio"]),
        ("url", "command", ["http", "streamable-http", "sse"]),
    ):
        fits = {"anyOf": [{"enum": kinds}, _VARIABLE]}
        yield {
            "required": [key],
            "not": {"required": [other]},
            "properties": {"type": fits, "transport": fits},
        }
