"""Messages between the gateway and the process that runs scripts, as lines of JSON."""

# No `from __future__ import annotations`: msgspec evaluates these with every start of that process.

import msgspec

NOTHING = msgspec.Raw(b"")


class EngineLimits(msgspec.Struct, frozen=True):
    """What one script may use there."""

    execution: float  # seconds in which it runs, without waiting for calls
    memory: int  # bytes
    calls: int
    output: int  # bytes of what it prints, and of its value


# To the process


class RunScript(msgspec.Struct, frozen=True, tag="run"):
    """Run this script."""

    id: int
    code: str
    limits: EngineLimits


class Settled(msgspec.Struct, frozen=True, tag="settled"):
    """The outcome of a call: a value, or an exception of this built-in type."""

    id: int
    call: int
    value: msgspec.Raw = NOTHING
    exception: str = ""
    message: str = ""
    is_text: bool = False  # the value is a text, perhaps with JSON in it


class StopScript(msgspec.Struct, frozen=True, tag="stop"):
    """End the script; it is not answered."""

    id: int


ToEngine = RunScript | Settled | StopScript


# From the process


class EngineStarted(msgspec.Struct, frozen=True, tag="started"):
    """It takes scripts."""


class MadeCall(msgspec.Struct, frozen=True):
    """A call that the script waits for."""

    call: int
    tool: str
    arguments: msgspec.Raw
    line: int


class CallsMade(msgspec.Struct, frozen=True, tag="calls"):
    """The script waits for these calls, among others."""

    id: int
    calls: list[MadeCall]


class Finished(msgspec.Struct, frozen=True, tag="finished", omit_defaults=True):
    """The script has ended: with a value, an exception, at a limit, or with its worker."""

    id: int
    value: msgspec.Raw = NOTHING
    printed: str = ""
    kind: str = ""  # of the exception
    message: str = ""
    shown: str = ""  # its traceback
    line: int = 0
    unawaited: list[int] = []  # lines of calls that it never waited for
    limit: str = ""  # the name of the one that ended it
    crash: str = ""  # how its worker ended


FromEngine = EngineStarted | CallsMade | Finished
