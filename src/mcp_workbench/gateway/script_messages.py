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


class UnsentCall(msgspec.Struct, frozen=True, array_like=True):
    """A call that the script has made, and that was not dispatched so far."""

    call: int
    tool: str
    arguments: bytes  # JSON
    start: int  # where it stands in the source, in bytes
    end: int


class EngineState(msgspec.Struct, frozen=True, array_like=True):
    """A script that waits for calls: with it, any process that has this interpreter can go on."""

    version: str  # of the interpreter
    snapshot: bytes
    printed: str
    count: int  # calls that it has made
    unsent: list[UnsentCall]
    in_flight: list[int]


# To the process


class RunScript(msgspec.Struct, frozen=True, tag="run"):
    """Run this script."""

    id: int
    code: str
    limits: EngineLimits


class ResumeScript(msgspec.Struct, frozen=True, tag="resume"):
    """Go on with this script. Its state was verified: the interpreter trusts snapshots."""

    id: int
    code: str
    limits: EngineLimits
    state: EngineState


class SnapshotScript(msgspec.Struct, frozen=True, tag="snapshot"):
    """Tell its state, if it waits for calls; it goes on waiting."""

    id: int
    most: int  # bytes of a snapshot


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


ToEngine = RunScript | ResumeScript | SnapshotScript | Settled | StopScript


# From the process


class EngineStarted(msgspec.Struct, frozen=True, tag="started"):
    """It takes scripts."""

    version: str = ""  # of the interpreter


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


class SnapshotTaken(msgspec.Struct, frozen=True, tag="taken"):
    """The state of a script, or why there is none."""

    id: int
    state: EngineState | None = None
    why: str = ""


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
    idle: list[tuple[str, int]] = []  # lines that call an async function of its own, without await
    limit: str = ""  # the name of the one that ended it
    crash: str = ""  # how its worker ended


FromEngine = EngineStarted | CallsMade | SnapshotTaken | Finished
