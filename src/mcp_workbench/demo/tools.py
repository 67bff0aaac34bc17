"""The tools of the demo servers: what each says about itself, and what it does."""

from __future__ import annotations

import json  # noqa: TID251 - stands alone: the standard library only
import threading
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from random import SystemRandom
from typing import Any, NamedTuple

Json = dict[str, Any]

# Nothing here changes anything, anywhere.
HINTS: Json = {"readOnlyHint": True, "destructiveHint": False, "openWorldHint": False}


class Tool(NamedTuple):
    """One tool. Every argument has a schema; those not required have a default."""

    title: str
    description: str
    run: Callable[..., Json]
    properties: Json
    required: tuple[str, ...] = ()
    idempotent: bool = True  # asked again, it answers the same
    output: Json | None = None

    def definition(self, name: str) -> Json:
        schema: Json = {"type": "object", "properties": self.properties}
        schema |= {"required": list(self.required)} if self.required else {}
        whole: Json = {
            "name": name,
            "title": self.title,
            "description": self.description,
            "inputSchema": schema | {"additionalProperties": False},
            "annotations": HINTS | {"idempotentHint": self.idempotent},
        }
        return whole | ({"outputSchema": self.output} if self.output else {})

    def complaints(self, arguments: Json) -> list[str]:
        missing = [f"{name} is required" for name in self.required if name not in arguments]
        unknown = [
            f"{name} is not an argument" for name in arguments if name not in self.properties
        ]
        given = [(n, v, self.properties[n]) for n, v in arguments.items() if n in self.properties]
        wrong = [f"{n} {fault}" for n, v, schema in given if (fault := _fault(v, schema))]
        return missing + wrong + unknown

    def result(self, arguments: Json) -> Json:
        try:
            return self.run(**arguments)
        except (ArithmeticError, ValueError) as error:  # numbers beyond what a float can hold
            return text(f"cannot work that out: {error}", isError=True)


_KINDS: dict[str, tuple[type, ...]] = {"string": (str,), "integer": (int,), "number": (int, float)}


def _fault(value: Any, schema: Json) -> str:
    kind = schema["type"]
    if isinstance(value, bool) or not isinstance(value, _KINDS[kind]):
        return f"must be {'an' if kind == 'integer' else 'a'} {kind}"
    if "enum" in schema and value not in schema["enum"]:
        return "must be one of " + ", ".join(schema["enum"])
    if "minimum" in schema and not schema["minimum"] <= value <= schema["maximum"]:
        return f"must be between {schema['minimum']} and {schema['maximum']}"
    return ""


def text(words: str, **more: Any) -> Json:
    return {"content": [{"type": "text", "text": words}], **more}


def _structured(value: Json) -> Json:
    return text(json.dumps(value), structuredContent=value)


def _string(description: str) -> Json:
    return {"type": "string", "description": description}


def _number(description: str, **limits: float) -> Json:
    return {"type": "number", "description": description, **limits}


def _integer(description: str, low: int, high: int) -> Json:
    return {"type": "integer", "description": description, "minimum": low, "maximum": high}


def echo(text: str) -> Json:
    return {"content": [{"type": "text", "text": text}]}


def add(a: float, b: float) -> Json:
    return text(f"{a + b}")


def now(utc_offset: float = 0) -> Json:
    zone = timezone(timedelta(hours=utc_offset))
    return text(datetime.now(zone).isoformat(timespec="seconds"))


def fail(reason: str = "This tool always fails") -> Json:
    return text(reason, isError=True)


def word_count(text: str) -> Json:
    lines = len(text.splitlines())
    return _structured({"words": len(text.split()), "characters": len(text), "lines": lines})


def roll_dice(count: int = 1, sides: int = 6) -> Json:
    dice = SystemRandom()
    rolls = [dice.randint(1, sides) for _ in range(count)]
    return _structured({"rolls": rolls, "total": sum(rolls)})


# A unit is its kind, its size in the kind's base unit, and where its zero lies on the base's scale.
_UNITS: dict[str, tuple[str, float, float]] = {
    "m": ("length", 1, 0),
    "km": ("length", 1000, 0),
    "ft": ("length", 0.3048, 0),
    "mi": ("length", 1609.344, 0),
    "kg": ("mass", 1, 0),
    "lb": ("mass", 0.45359237, 0),
    "celsius": ("temperature", 1, 273.15),
    "fahrenheit": ("temperature", 5 / 9, 459.67 * 5 / 9),
    "kelvin": ("temperature", 1, 0),
}


def convert_units(value: float, unit: str, to: str) -> Json:
    kind, size, zero = _UNITS[unit]
    wanted, wanted_size, wanted_zero = _UNITS[to]
    if kind != wanted:
        return text(f"{unit} is a {kind} and {to} is a {wanted}", isError=True)
    converted = (value * size + zero - wanted_zero) / wanted_size
    return text(f"{value:g} {unit} = {converted:.6g} {to}")


class Job:
    """A call that takes its time: it reports progress, and ends at once when it is cancelled."""

    def __init__(self, report: Callable[[Json], None]) -> None:
        self.cancelled = threading.Event()
        self._report = report

    def slow(self, seconds: float = 2, steps: int = 5) -> Json:
        for step in range(1, steps + 1):
            if self.cancelled.wait(seconds / steps):
                break
            self._report({"progress": step, "total": steps, "message": f"step {step} of {steps}"})
        return text(f"finished {steps} steps in {seconds:g} seconds")


_INTEGER: Json = {"type": "integer"}
_COUNTS: Json = {"words": _INTEGER, "characters": _INTEGER, "lines": _INTEGER}
_ROLLS: Json = {"rolls": {"type": "array", "items": _INTEGER}, "total": _INTEGER}
_UNIT: Json = {"type": "string", "enum": list(_UNITS)}

_BASICS = {
    "echo": Tool("Echo", "Gives the text back.", echo, {"text": _string("Any text")}, ("text",)),
    "add": Tool(
        "Add", "Adds two numbers.", add, {"a": _number("One"), "b": _number("Other")}, ("a", "b")
    ),
    "now": Tool(
        "Current time",
        "Tells date and time, in UTC unless an offset is given.",
        now,
        {"utc_offset": _number("Hours from UTC, such as -5 or 5.5", minimum=-12, maximum=14)},
        idempotent=False,
    ),
    "fail": Tool(
        "Fail",
        "Always answers with an error, to show what one looks like.",
        fail,
        {"reason": _string("What the error says")},
    ),
}

_WORKSHOP = {
    "slow": Tool(
        "Slow work",
        "Works for some seconds, reports progress, and stops at once when it is cancelled.",
        Job.slow,
        {
            "seconds": _number("How long, in all", minimum=0, maximum=60),
            "steps": _integer("How many progress reports", 1, 100),
        },
    ),
    "word_count": Tool(
        "Count words",
        "Counts the words, characters and lines of a text.",
        word_count,
        {"text": _string("The text to count")},
        ("text",),
        output={"type": "object", "properties": _COUNTS, "required": list(_COUNTS)},
    ),
    "roll_dice": Tool(
        "Roll dice",
        "Rolls dice and adds them up.",
        roll_dice,
        {"count": _integer("How many dice", 1, 100), "sides": _integer("Sides of each", 2, 1000)},
        idempotent=False,
        output={"type": "object", "properties": _ROLLS, "required": list(_ROLLS)},
    ),
    "convert_units": Tool(
        "Convert units",
        "Converts a length, a mass or a temperature.",
        convert_units,
        {"value": _number("How many"), "unit": _UNIT, "to": _UNIT},
        ("value", "unit", "to"),
    ),
}

SERVERS: dict[str, dict[str, Tool]] = {"basics": _BASICS, "workshop": _WORKSHOP}
