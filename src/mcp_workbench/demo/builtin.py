"""The two demo servers: the server's side of the protocol in both eras, and the tools."""

from __future__ import annotations

import json  # noqa: TID251 - stands alone: the standard library only
import re
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TypeGuard, cast

Json = dict[str, Any]
Id = str | int

LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
WITH_BATCHES = "2025-03-26"  # the only revision that has them
MODERN = "2026-07-28"
META = "io.modelcontextprotocol/"
VERSION = "1.0.0"
DAY = 86_400_000  # milliseconds; the answers that may be cached never change
LASTING: Json = {"ttlMs": DAY, "cacheScope": "public"}

PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS = -32700, -32600, -32601, -32602
UNSUPPORTED_VERSION = -32022


class Refused(Exception):
    """A request that is answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Json | None = None) -> None:
        super().__init__(message)
        self.error: Json = {"code": code, "message": message} | ({"data": data} if data else {})


class Server:
    """Answers one host. A slow call has a thread of its own; everything else is answered at once."""

    def __init__(self, name: str, tools: dict[str, Tool], send: Callable[[Json], None]) -> None:
        self._info: Json = {"name": name, "version": VERSION}
        self._tools = tools
        self._send = send
        self._revision = ""  # of the legacy era, once `initialize` has agreed on one
        self._jobs: dict[Id, tuple[Job, threading.Thread]] = {}

    def receive(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except RecursionError:
            self._refuse_deep(line)
            return
        except ValueError:
            self._send({"id": None, "error": Refused(PARSE_ERROR, "This is not JSON").error})
            return
        if isinstance(message, list) and self._revision == WITH_BATCHES:
            for one in cast("list[Any]", message):
                self._take(one)
        else:
            self._take(message)

    def _refuse_deep(self, line: bytes) -> None:
        """Answers a request that is nested too deeply to be read: with its own id, if it has one."""
        message = _top_level(line)
        if _is_object(message) and "id" not in message:
            return  # a notification is not answered
        number: Any = message.get("id") if _is_object(message) else None
        known = number if isinstance(number, Id) else None
        code = PARSE_ERROR if known is None else INVALID_REQUEST
        self._send({"id": known, "error": Refused(code, "The message is nested too deeply").error})

    def stop(self) -> None:
        for job, thread in list(self._jobs.values()):
            job.cancelled.set()
            thread.join()

    def _take(self, message: Any) -> None:
        number: Any = message.get("id") if _is_object(message) else None
        try:
            result = self._result(number, message)
        except Refused as refused:
            known = number if isinstance(number, Id) else None
            self._send({"id": known, "error": refused.error})
        else:
            if result is not None:
                self._send({"id": number, "result": result})

    def _result(self, number: Any, message: Any) -> Json | None:
        if not _is_object(message) or not _is_object(params := message.get("params", {})):
            raise Refused(INVALID_REQUEST, "A message is an object, and so are its params")
        method: Any = message.get("method")
        if "id" not in message:
            if method == "notifications/cancelled":
                self._cancel(params.get("requestId"))
            return None
        if not isinstance(number, Id) or not isinstance(method, str):
            raise Refused(INVALID_REQUEST, "A request has a method and an id, a string or integer")
        meta: Any = params.get("_meta")
        if _is_object(meta) and f"{META}protocolVersion" in meta:
            return self._modern(number, method, params)
        if self._revision or method == "initialize":
            return self._legacy(number, method, params)
        raise Refused(
            INVALID_PARAMS,
            f"Begin with initialize, or name {META}protocolVersion in the _meta of each request",
        )

    def _legacy(self, number: Id, method: str, params: Json) -> Json | None:
        match method:
            case "initialize":
                asked = params.get("protocolVersion")
                self._revision = asked if asked in LEGACY else LEGACY[0]
                tools: Json = {"tools": {"listChanged": False}}
                agreed = {"protocolVersion": self._revision, "capabilities": tools}
                return agreed | {"serverInfo": self._info}
            case "ping":
                return {}
            case "tools/list":
                return self._listing()
            case "tools/call":
                return self._call(number, params, dict[str, Any]())
            case _:
                raise Refused(NO_METHOD, f"Method not found: {method}")

    def _modern(self, number: Id, method: str, params: Json) -> Json | None:
        _check_envelope(params["_meta"])
        stamp: Json = {"resultType": "complete", "_meta": {f"{META}serverInfo": self._info}}
        match method:
            case "server/discover":
                known: Json = {"supportedVersions": [MODERN], "capabilities": {"tools": {}}}
                return known | LASTING | stamp
            case "tools/list":
                return self._listing() | LASTING | stamp
            case "tools/call":
                return self._call(number, params, stamp)
            case _:
                raise Refused(NO_METHOD, f"Method not found: {method}")

    def _listing(self) -> Json:
        return {"tools": [tool.definition(name) for name, tool in self._tools.items()]}

    def _call(self, number: Id, params: Json, stamp: Json) -> Json | None:
        """Returns the tool's result; None for a slow tool, which answers later."""
        name: Any = params.get("name")
        arguments: Any = params.get("arguments") or dict[str, Any]()
        if not isinstance(name, str):
            raise Refused(INVALID_PARAMS, "The name of a tool must be a string")
        tool = self._tools.get(name)
        if tool is None:
            raise Refused(INVALID_PARAMS, f"Unknown tool: {name}")
        if not _is_object(arguments):
            raise Refused(INVALID_PARAMS, "arguments must be an object")
        complaints = tool.complaints(arguments)
        if complaints:
            return text("; ".join(complaints), isError=True) | stamp
        if tool.run is not Job.slow:
            return tool.result(arguments) | stamp
        self._begin(number, Job(self._reporter(params)), arguments, stamp)
        return None

    def _reporter(self, request: Json) -> Callable[[Json], None]:
        meta: Any = request.get("_meta")
        token: Any = meta.get("progressToken") if _is_object(meta) else None

        def report(progress: Json) -> None:
            if isinstance(token, Id):
                params = {"progressToken": token} | progress
                self._send({"method": "notifications/progress", "params": params})

        return report

    def _begin(self, number: Id, job: Job, arguments: Json, stamp: Json) -> None:
        def work() -> None:
            result = job.slow(**arguments)
            self._jobs.pop(number, None)
            if not job.cancelled.is_set():  # a cancelled request is not answered
                self._send({"id": number, "result": result | stamp})

        thread = threading.Thread(target=work, daemon=True)
        self._jobs[number] = (job, thread)
        thread.start()

    def _cancel(self, number: Any) -> None:
        if isinstance(number, Id) and number in self._jobs:
            self._jobs[number][0].cancelled.set()


# A string that does not end goes on to the end of the text: its quotes begin no others.
_STRING_OR_BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)


def _top_level(line: bytes) -> Any:
    """Returns the message with null for every object and list in it; None if it is not JSON."""
    pieces: list[bytes] = []
    depth = start = 0
    for token in _STRING_OR_BRACKET.finditer(line):
        if token[0] in (b"{", b"["):
            depth += 1
            if depth == 2:
                pieces += line[start : token.start()], b"null"
        elif token[0] in (b"}", b"]"):
            depth -= 1
            if depth == 1:
                start = token.end()
    try:
        return json.loads(b"".join([*pieces, line[start:]]))
    except (ValueError, RecursionError):
        return None


def _is_object(value: Any) -> TypeGuard[Json]:
    return isinstance(value, dict)


def _check_envelope(meta: Json) -> None:
    version, capabilities = meta[f"{META}protocolVersion"], meta.get(f"{META}clientCapabilities")
    if not isinstance(version, str):
        raise Refused(INVALID_PARAMS, f"_meta: {META}protocolVersion must be a string")
    if not _is_object(capabilities):
        raise Refused(INVALID_PARAMS, f"_meta: {META}clientCapabilities is required, an object")
    if version != MODERN:
        versions: Json = {"supported": [MODERN], "requested": version}
        raise Refused(UNSUPPORTED_VERSION, f"Unsupported protocol version: {version}", versions)


# The tools

# No tool changes anything.
HINTS: Json = {"readOnlyHint": True, "destructiveHint": False, "openWorldHint": False}


class Tool(NamedTuple):
    """One tool. Every argument has a schema; those not required have a default."""

    title: str
    description: str
    run: Callable[..., Json]
    properties: Json
    required: tuple[str, ...] = ()
    idempotent: bool = True  # the same arguments give the same result
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
    from datetime import datetime, timedelta, timezone  # most who start us never ask for it

    zone = timezone(timedelta(hours=utc_offset))
    return text(datetime.now(zone).isoformat(timespec="seconds"))


def fail(reason: str = "This tool always fails") -> Json:
    return text(reason, isError=True)


def word_count(text: str) -> Json:
    lines = len(text.splitlines())
    return _structured({"words": len(text.split()), "characters": len(text), "lines": lines})


def roll_dice(count: int = 1, sides: int = 6) -> Json:
    from random import SystemRandom  # as above

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
    """A slow call: it reports progress, and ends at once when it is cancelled."""

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
