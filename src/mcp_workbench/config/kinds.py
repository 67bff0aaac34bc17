"""Kinds of values in the configuration file: what is right, and what is wrong with the rest."""

import re
from collections.abc import Callable, Iterable
from typing import Any, cast

import msgspec

from mcp_workbench.config.expand import Path

MOST_NUMBER = 1 << 53  # beyond it JSON parsers disagree
SHOWN_DIGITS = 20  # characters of a wrong number in a message
VARIABLE_NAME = "[A-Za-z_][A-Za-z0-9_]*"
SECRET_WORDS = ["store", "keyring"]  # sources that need no more than the name
REQUIRED = "required"
SANDBOX_WORDS = ("off", "auto", "process", "required")  # a sandbox in one word
APPROVE_WORDS = ("destructive", "writes")  # by the annotations of a tool
VARIABLE_TEXT = {"type": "string", "pattern": r"\$\{"}  # a value that comes from a variable

Wrong = Iterable[tuple[Path, str]]


class Kind(msgspec.Struct, frozen=True):
    """What a key may hold: in words, as JSON Schema, and as a check that yields what is wrong."""

    words: str
    schema: dict[str, Any]
    wrong: Callable[[Any], Wrong]
    choices: tuple[str, ...] = ()


def kind_of(value: Any) -> str:
    """Returns the type of a JSON value in words."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    names = {str: "a string", list: "a list", dict: "an object"}
    return next((words for kind, words in names.items() if isinstance(value, kind)), "a number")


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _plain(words: str, schema: dict[str, Any], right: Callable[[Any], bool]) -> Kind:
    def wrong(value: Any) -> Wrong:
        return () if right(value) else (((), f"must be {words}, not {kind_of(value)}"),)

    return Kind(words, schema, wrong)


def _in_range(words: str, schema: dict[str, Any], right: Callable[[Any], bool]) -> Kind:
    def wrong(value: Any) -> Wrong:
        if is_number(value) and right(value):
            return ()
        if is_number(value) and value > MOST_NUMBER:
            return (((), f"must be {words}, at most {MOST_NUMBER}"),)
        return (
            ((), f"must be {words}, not {_shown(value) if is_number(value) else kind_of(value)}"),
        )

    return Kind(words, schema, wrong)


def _shown(value: float) -> str:
    text = str(value)
    return text if len(text) <= SHOWN_DIGITS else f"{text[:SHOWN_DIGITS]}…"


def whole(least: int) -> Kind:
    return _in_range(
        f"a whole number from {least} up",
        {"type": "integer", "minimum": least, "maximum": MOST_NUMBER},
        lambda value: least <= value <= MOST_NUMBER and value == int(value),
    )


def one_of(*choices: str, variables: bool = False) -> Kind:
    words = " or ".join(f'"{choice}"' for choice in choices)
    schema: dict[str, Any] = {"enum": list(choices)}
    return Kind(
        words,
        {"anyOf": [schema, VARIABLE_TEXT]} if variables else schema,
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


def _texts_like(pattern: str, words: str) -> Kind:
    """A list of strings of one form."""

    def wrong(value: Any) -> Wrong:
        yield from _texts_problem(value)
        if isinstance(value, list):
            for index, item in enumerate(cast("list[Any]", value)):
                if isinstance(item, str) and not re.fullmatch(pattern, item):
                    yield (index,), f"must be {words}"

    items = {"type": "string", "pattern": f"^(?:{pattern})$"}
    return Kind("a list of strings", {"type": "array", "items": items}, wrong)


def _inherit_problem(value: Any) -> Wrong:
    if isinstance(value, bool):
        return
    if not isinstance(value, list):
        yield (), f"must be true, false or a list of strings, not {kind_of(value)}"
        return
    for index, item in enumerate(cast("list[Any]", value)):
        yield from (((index,), message) for _, message in _filled_problem(item))
        if isinstance(item, str) and "=" in item:
            yield (index,), "is not the name of a variable"


def _approve_problem(value: Any) -> Wrong:
    if isinstance(value, bool) or value in APPROVE_WORDS:
        return
    if not isinstance(value, list):
        shown = f'"{value}"' if isinstance(value, str) else kind_of(value)
        yield (), f"must be {APPROVE.words}, not {shown}"
        return
    for index, item in enumerate(cast("list[Any]", value)):
        yield from (((index,), message) for _, message in _filled_problem(item))
        if isinstance(item, str) and "${" in item:
            yield (index,), "can't have variables"
        elif isinstance(item, str) and item.removeprefix("!") in ("", "resource:", "prompt:"):
            yield (index,), "has no pattern"


def pairs(words: str, names: str) -> Kind:
    """An object of strings. Numbers and booleans are accepted too: pasted files have them."""

    def wrong(value: Any) -> Wrong:
        if not isinstance(value, dict):
            yield (), f"must be an object of strings, not {kind_of(value)}"
            return
        for name, text in cast("dict[str, Any]", value).items():
            if not re.fullmatch(names, name):
                yield (name,), f"is not the name of {words}"
            if not is_number(text) and not isinstance(text, bool):
                yield from (((name,), message) for _, message in _text_problem(text))

    schema: dict[str, Any] = {
        "type": "object",
        "propertyNames": {"pattern": f"^(?:{names})$"},
        "additionalProperties": {"type": ["string", "number", "boolean"]},
    }
    return Kind("an object of strings", schema, wrong)


def _lists_problem(value: Any) -> Wrong:
    if not isinstance(value, dict):
        yield (), f"must be an object of lists of strings, not {kind_of(value)}"
        return
    for name, texts in cast("dict[str, Any]", value).items():
        yield from (((name, *path), message) for path, message in _texts_problem(texts))


def _tables_problem(value: Any) -> Wrong:
    if not isinstance(value, dict):
        yield (), f"must be an object, not {kind_of(value)}"
        return
    for name, lists in cast("dict[str, Any]", value).items():
        yield from (((name, *path), message) for path, message in _lists_problem(lists))


def _secrets_problem(value: Any) -> Wrong:
    if not isinstance(value, dict):
        yield (), f"must be an object, not {kind_of(value)}"
        return
    for name, source in cast("dict[str, Any]", value).items():
        if not re.fullmatch(VARIABLE_NAME, name):
            yield (name,), "is not the name of a variable"
        elif source not in SECRET_WORDS and not isinstance(source, dict):
            words = " or ".join(f'"{word}"' for word in SECRET_WORDS)
            yield (
                (name,),
                f"must be {words} or an object",
            )  # never quoted: it may be the value itself


def object_of(schema: dict[str, Any]) -> Kind:
    return _plain("an object", schema, lambda value: isinstance(value, dict))


def filled_object_of(schema: dict[str, Any]) -> Kind:
    """An object that is not empty."""

    def wrong(value: Any) -> Wrong:
        if not isinstance(value, dict):
            yield (), f"must be an object, not {kind_of(value)}"
        elif not value:
            yield (), "must not be empty"

    return Kind("an object", {**schema, "minProperties": 1}, wrong)


def _audit_problem(value: Any) -> Wrong:
    if isinstance(value, dict | bool) or value == REQUIRED:
        return
    shown = f'"{value}"' if isinstance(value, str) else kind_of(value)
    yield (), f"must be {AUDIT.words}, not {shown}"


def _sandbox_problem(value: Any) -> Wrong:
    if isinstance(value, dict) or value in SANDBOX_WORDS:
        return
    shown = f'"{value}"' if isinstance(value, str) else kind_of(value)
    yield (), f"must be {SANDBOX.words}, not {shown}"


def _network_problem(value: Any) -> Wrong:
    if not isinstance(value, bool | dict):
        yield (), f"must be {NETWORK.words}, not {kind_of(value)}"


TEXT = Kind("a string", {"type": "string"}, _text_problem)
FILLED = Kind("a string", {"type": "string", "minLength": 1}, _filled_problem)
URL = Kind(
    "a URL", {"type": "string", "pattern": r"^([Hh][Tt][Tt][Pp][Ss]?://.|\$\{)"}, _url_problem
)
TEXTS = Kind("a list of strings", {"type": "array", "items": {"type": "string"}}, _texts_problem)
LISTS = Kind(
    "an object of lists of strings",
    {"type": "object", "additionalProperties": TEXTS.schema},
    _lists_problem,
)
TABLE_OF_LISTS = Kind(
    "an object", {"type": "object", "additionalProperties": LISTS.schema}, _tables_problem
)
HOSTS = _texts_like(
    r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]+)?", "a host name, with or without a port"
)
ORIGINS = _texts_like(
    r"[A-Za-z][A-Za-z0-9+.-]*://[^/\s]+", "an origin, such as https://example.com, without a path"
)
INHERIT = Kind(
    "true, false or a list of strings",
    {
        "anyOf": [
            {"type": "boolean"},
            {"type": "array", "items": {"type": "string", "pattern": "^[^=]+$"}},
        ]
    },
    _inherit_problem,
)
APPROVE = Kind(
    'true, false, "destructive", "writes" or a list of strings',
    {
        "anyOf": [
            {"type": "boolean"},
            {"enum": list(APPROVE_WORDS)},
            {"type": "array", "items": {"type": "string", "minLength": 1}},
        ]
    },
    _approve_problem,
)
SECRETS = Kind(
    "an object",
    {
        "type": "object",
        "propertyNames": {"pattern": f"^{VARIABLE_NAME}$"},
        "additionalProperties": {"anyOf": [{"enum": SECRET_WORDS}, {"$ref": "#/$defs/secret"}]},
    },
    _secrets_problem,
)
AUDIT = Kind(
    f'true, false, "{REQUIRED}" or an object',
    {"anyOf": [{"type": "boolean"}, {"const": REQUIRED}, {"$ref": "#/$defs/audit"}]},
    _audit_problem,
)
FLAG = _plain("true or false", {"type": "boolean"}, lambda value: isinstance(value, bool))
SECONDS = _in_range(
    "a number of seconds above 0",
    {"type": "number", "exclusiveMinimum": 0, "maximum": MOST_NUMBER},
    lambda value: 0 < value <= MOST_NUMBER,
)
SANDBOX = Kind(
    ", ".join(f'"{word}"' for word in SANDBOX_WORDS) + " or an object",
    {"anyOf": [{"enum": list(SANDBOX_WORDS)}, {"$ref": "#/$defs/sandbox"}]},
    _sandbox_problem,
)
NETWORK = Kind(
    "true, false or an object",
    {"anyOf": [{"type": "boolean"}, {"type": "object"}]},
    _network_problem,
)
