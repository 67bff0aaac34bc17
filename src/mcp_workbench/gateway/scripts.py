"""Scripts: one program of an agent that makes many calls. Each of them takes the path of every call.

`ScriptRun` drives one script in the `ScriptWorker`: it makes the calls that the script waits for, a few at a time, gives
it their outcomes, and builds the answer. Its owner makes the calls: a session of `server`, or the command `run`. A script
is never run again by us. When it ends, calls that are still in flight are cancelled. One that waits for people can be taken
out of this process (`state`), and goes on in another (`ScriptSource`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from secrets import token_hex
from typing import TYPE_CHECKING

import msgspec

from mcp_workbench.core.errors import (
    InvalidCall,
    NotFound,
    WorkbenchError,
    did_you_mean,
    shown_name,
)
from mcp_workbench.core.raw_json import Members, read_members
from mcp_workbench.core.script_texts import (
    EXAMPLE,
    LIMITS,
    ScriptedCall,
    advice,
    awaited_text,
    calls_text,
    coroutine_text,
    idle_text,
    traceback_text,
    unawaited_text,
)
from mcp_workbench.core.script_values import answer_text, call_value, returned_content, shortened
from mcp_workbench.core.spec import Snapshot, ToolIdentifier, parse_tool_name
from mcp_workbench.gateway.arguments import MOST_READ, hint_for
from mcp_workbench.gateway.interceptors import CallOutcome, Cancelled, Completed, Failed
from mcp_workbench.gateway.script_messages import (
    CallsMade,
    EngineLimits,
    EngineState,
    Finished,
    MadeCall,
    SnapshotTaken,
)
from mcp_workbench.transport.tasks import TaskScope, task_scope

if TYPE_CHECKING:
    from mcp_workbench.core.call_request import CallRequest
    from mcp_workbench.core.catalogue import Definition
    from mcp_workbench.gateway.script_worker import (
        Claim,
        RunningScript,
        ScriptStart,
        ScriptWorker,
    )
    from mcp_workbench.gateway.suspended_scripts import RunState

LONGEST_CODE = 256 << 10  # bytes of a script
MOST_META = 64 << 10  # bytes of `_meta` of results that are part of the answer
# Members of a schema with which names can be allowed that are not among its properties.
_OPEN = {"$ref", "allOf", "anyOf", "oneOf", "patternProperties", "if", "unevaluatedProperties"}
MOST_KEPT = 16 << 20  # bytes of content other than text that one script can return


class ScriptLimits(msgspec.Struct, frozen=True):
    """What one script may use; each limit has this name in errors."""

    execution: float = 10.0  # seconds in which it computes
    total: float = 300.0  # seconds in all, without waiting for people
    memory: int = 100 << 20  # bytes
    calls: int = 50
    parallel: int = 8  # calls at once: others wait
    output: int = 4 << 20  # bytes of what it prints, and of its value

    @property
    def engine(self) -> EngineLimits:
        return EngineLimits(self.execution, self.memory, self.calls, self.output)


class ScriptFailed(WorkbenchError):
    """The script has ended with an exception, at a limit, or with its worker."""

    code = "script_failed"

    def __init__(
        self, message: str, *, calls: list[ScriptedCall], printed: str, code: str = ""
    ) -> None:
        super().__init__(message, hint=calls_text(calls))
        self.calls = calls
        self.printed = printed
        self.code = code or self.code
        self.may_have_run = any(call.state != "not sent" for call in calls)


class ScriptAnswer(msgspec.Struct, frozen=True):
    """What a script that has come to its end gives back."""

    text: str
    value: msgspec.Raw
    printed: str
    content: list[msgspec.Raw]  # other than text, which it has returned
    metas: list[tuple[str, msgspec.Raw]]  # `_meta` of results, with their tool
    calls: list[ScriptedCall]


class CallEnd(msgspec.Struct, frozen=True):
    """How a call of a script has ended, with what explains a failure."""

    outcome: CallOutcome
    request: CallRequest | None = None
    definition: Definition | None = None


# Makes a call, which the interpreter has given this number.
MakeCall = Callable[[ToolIdentifier, msgspec.Raw, int], Awaitable[CallEnd]]
Report = Callable[[int, str], None]  # how many calls have ended, and the tool of the last


class OpenScriptCall(msgspec.Struct, frozen=True):
    """A call that the script waits for."""

    made: MadeCall
    line: ScriptedCall


class ScriptSource(msgspec.Struct):
    """A script and whose it is; if it was suspended in another process, how it was left there."""

    code: str
    principal: str = ""
    is_flat: bool = False  # its author knows tools by their flat names
    engine: EngineState | None = None
    run: RunState | None = None
    open: list[tuple[int, int, msgspec.Raw]] = []  # call, its place in the list, arguments
    claim: Claim | None = None


class ScriptClock:
    """The limit on a script's whole time. It stands still while a person is asked."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._since = 0.0
        self._open = 0  # questions
        self._timeout: asyncio.Timeout | None = None

    @property
    def left(self) -> float:
        """Seconds that it may take still; it stands still now."""
        return self._left

    def begin(self) -> asyncio.Timeout:
        loop = asyncio.get_running_loop()
        self._since = loop.time()
        self._timeout = asyncio.timeout_at(self._since + self._left if not self._open else None)
        return self._timeout

    def pause(self) -> Callable[[], None]:
        """A person is asked. Returns what ends that; it can be called twice."""
        self._open += 1
        if self._open == 1 and self._timeout is not None:
            self._left -= asyncio.get_running_loop().time() - self._since
            self._reschedule(None)
        is_over = False

        def over() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                self._proceed()

        return over

    def _proceed(self) -> None:
        self._open -= 1
        if not self._open and self._timeout is not None:
            self._since = asyncio.get_running_loop().time()
            self._reschedule(self._since + self._left)

    def _reschedule(self, when: float | None) -> None:
        if self._timeout is not None and not self._timeout.expired():
            try:
                self._timeout.reschedule(when)
            except RuntimeError:  # it has ended meanwhile
                self._timeout = None


class ScriptRun:
    """One script, from its code to its answer."""

    def __init__(
        self,
        worker: ScriptWorker,
        source: ScriptSource,
        limits: ScriptLimits,
        make: MakeCall,
        report: Report | None = None,
    ) -> None:
        self._source = source
        before = source.run
        self.id = f"script-{token_hex(6)}" if before is None else before.script
        self.clock = ScriptClock(limits.total if before is None else before.left)
        self._worker = worker
        self._limits = limits
        self._make = make
        self._report = report
        self._running: RunningScript | None = None
        self._messages: asyncio.Queue[CallsMade | SnapshotTaken | Finished] = asyncio.Queue()
        self._slots = asyncio.Semaphore(limits.parallel)
        self._calls: list[ScriptedCall] = []
        self.open: dict[int, OpenScriptCall] = {}  # by the interpreter's number
        self._wanted: asyncio.Future[SnapshotTaken] | None = None
        self._ended = 0  # calls
        self._kept: Members = {}  # content other than text, by handle
        self._kept_bytes = 0
        self._metas: list[tuple[str, msgspec.Raw]] = []
        self._meta_room = MOST_META
        if before is not None:
            self._restore(before)

    def _restore(self, before: RunState) -> None:
        self._calls, self._ended = list(before.calls), before.ended
        for raw in before.kept.values():
            self._keep(msgspec.Raw(raw))
        for tool, raw in before.metas:
            self._keep_meta(tool, msgspec.Raw(raw))

    async def answer(self) -> ScriptAnswer:
        """Run the script. Raises ScriptFailed, or another WorkbenchError if it could not be run."""
        if len(self._source.code.encode()) > LONGEST_CODE:
            raise InvalidCall(f"The script is longer than {LONGEST_CODE >> 10} KiB")
        finished = Finished(0, limit="total")
        try:
            async with self.clock.begin():
                self._running = await self._worker.run(self._start(), self._messages.put_nowait)
                finished = await self._drive()
        except TimeoutError:
            pass
        finally:
            if self._running is not None:
                self._running.stop()
        return self._answered(finished)

    def _start(self) -> ScriptStart:
        from mcp_workbench.gateway.script_worker import ScriptStart  # loads processes

        one, limits = self._source, self._limits.engine
        return ScriptStart(one.code, limits, one.principal, one.engine, one.claim)

    async def _drive(self) -> Finished:
        async with task_scope() as calling:  # its end cancels the calls that nobody waits for
            for number, place, arguments in self._source.open:
                line = self._calls[place]
                self._begin(calling, MadeCall(number, line.tool, arguments, line.line), line)
            while True:
                message = await self._messages.get()
                if isinstance(message, Finished):
                    self._tell(SnapshotTaken(0, why="it has ended"))
                    return message
                if isinstance(message, SnapshotTaken):
                    self._tell(message)
                    continue
                for one in message.calls:
                    made = self._canonical(one)
                    line = ScriptedCall(made.tool, made.line, "not sent")
                    self._calls.append(line)
                    self._begin(calling, made, line)

    def _canonical(self, made: MadeCall) -> MadeCall:
        """The call with the name that everybody here knows its tool by."""
        tool = parse_tool_name(made.tool) if self._source.is_flat and "/" not in made.tool else None
        name = made.tool if tool is None else "/".join((tool.toolbox, tool.server, tool.tool))
        return msgspec.structs.replace(made, tool=name)

    def _begin(self, calling: TaskScope, made: MadeCall, line: ScriptedCall) -> None:
        self.open[made.call] = OpenScriptCall(made, line)
        calling.start(self._call(made, line), f"{self.id} {made.tool}")

    async def _call(self, made: MadeCall, line: ScriptedCall) -> None:
        try:
            await self._made(made, line)
        finally:
            self.open.pop(made.call, None)

    async def _made(self, made: MadeCall, line: ScriptedCall) -> None:
        try:
            tool = tool_named(made.tool)
        except NotFound as error:
            line.state = "not sent"
            self._throw(made, "LookupError", f"{error.message}\n{error.hint}")
            return
        async with self._slots:
            line.state = "cancelled, may have run"
            end = await self._make(tool, made.arguments, made.call)
        self._conclude(made, line, end)
        self._ended += 1
        if self._report is not None:
            self._report(self._ended, made.tool)

    # Another process goes on

    async def engine_state(self, most: int) -> SnapshotTaken:
        """The interpreter's state while it waits for calls, with a snapshot of at most that many bytes."""
        if self._running is None:
            return SnapshotTaken(0, why="it has not started")
        self._wanted = asyncio.get_running_loop().create_future()
        self._running.ask_state(most)
        return await self._wanted

    def _tell(self, taken: SnapshotTaken) -> None:
        if self._wanted is not None and not self._wanted.done():
            self._wanted.set_result(taken)

    def run_state(self) -> RunState:
        """What it has used and made so far."""
        from mcp_workbench.gateway.suspended_scripts import RunState  # only where it is needed

        kept = {handle: bytes(raw) for handle, raw in self._kept.items()}
        metas = [(tool, bytes(raw)) for tool, raw in self._metas]
        return RunState(self.id, self.clock.left, self._ended, self._calls, kept, metas)

    def place(self, call: OpenScriptCall) -> int:
        """Where the call is in the list of calls."""
        return next(n for n, line in enumerate(self._calls) if line is call.line)

    # Outcomes

    def _conclude(self, made: MadeCall, line: ScriptedCall, end: CallEnd) -> None:
        outcome = end.outcome
        if isinstance(outcome, Completed):
            try:
                value = call_value(outcome.result, self._keep)
            except msgspec.DecodeError as error:
                line.state = "may have run"
                self._throw(made, "OSError", f"the result is malformed: {error}")
                return
            self._keep_meta(made.tool, value.meta)
            if value.failure is None:
                line.state = "ok"
                if self._running is not None:
                    self._running.settle(made.call, value)
                return
            line.state = "failed"
            kind, message = explained(end, value.failure)
        elif isinstance(outcome, Failed):
            line.state = "may have run" if outcome.error.may_have_run else "not sent"
            kind, message = exception_of(outcome.error)
        elif isinstance(outcome, Cancelled):
            line.state = "cancelled, may have run"
            kind, message = "OSError", f"the call was cancelled: {outcome.reason}"
        else:
            line.state = "not sent" if outcome.is_ours else "failed"
            kind, message = explained(end, outcome.read().message)
        self._throw(made, kind, message)

    def _throw(self, made: MadeCall, exception: str, message: str) -> None:
        """Raise an exception where the script waits for this call."""
        text = message if made.tool in message else f"{made.tool}: {message}"
        if self._running is not None:
            self._running.throw(made.call, exception, text.strip())

    def _keep_meta(self, tool: str, meta: msgspec.Raw | None) -> None:
        """Keep `_meta` of a result, as long as there is room in the answer."""
        if meta is not None and len(meta) <= self._meta_room:
            self._meta_room -= len(meta)
            self._metas.append((tool, meta))

    def _keep(self, block: msgspec.Raw) -> str:
        """Keep content that is no text, so that the script can return it."""
        self._kept_bytes += len(block)
        handle = f"content-{len(self._kept) + 1}"
        if self._kept_bytes <= MOST_KEPT:
            self._kept[handle] = block
        return handle

    # The answer

    def _answered(self, finished: Finished) -> ScriptAnswer:
        failure, code = failure_text(finished, self._source.code, self._limits)
        idle = "\n".join(idle_text(function, line) for function, line in finished.idle)
        if not self._calls:  # nothing is lost if it has failed
            failure, idle = failure or idle, ""
        if failure:
            raise ScriptFailed(failure, calls=self._calls, printed=finished.printed, code=code)
        return ScriptAnswer(
            "\n".join(filter(None, (answer_text(finished.printed, finished.value), idle))),
            finished.value,
            finished.printed,
            returned_content(finished.value, self._kept),
            self._metas,
            self._calls,
        )


def failure_text(finished: Finished, code: str, limits: ScriptLimits) -> tuple[str, str]:
    """Return why a script has no answer, with its error code; nothing if it has one."""
    unawaited = unawaited_text(code, finished.unawaited)
    if finished.limit:
        limit = LIMITS[finished.limit]
        values = msgspec.structs.asdict(limits)
        meaning = limit.meaning.format(
            **values,
            megabytes=limits.memory / (1 << 20),
            output_megabytes=limits.output / (1 << 20),
        )
        place = f" ({finished.message})" if finished.message.startswith("line ") else ""
        return (
            f"The script was ended at the limit '{finished.limit}': {meaning}{place}.\n{limit.advice}",
            "script_limit",
        )
    if finished.crash:
        return f"The script's worker has ended: {finished.crash}", "scripts_unavailable"
    if finished.kind:
        raised = shortened(f"{finished.kind}: {finished.message}")
        shown = traceback_text(finished.shown) or raised
        missing = (
            f"These calls were not awaited, so they were not made. Write: {EXAMPLE}\n{unawaited}"
        )
        instead = advice(finished.kind, finished.message, finished.shown)
        parts = [shown, instead, missing if unawaited else ""]
        return "\n".join(part for part in parts if part), ""
    if finished.unawaited:
        instead = awaited_text(code, finished.unawaited)
        never = "A call was never awaited, so it was not made"
        return f"{never}:\n{unawaited}\nWrite: {instead}", ""
    if instead := coroutine_text(bytes(finished.value)):
        return f"The value is a coroutine that was never awaited. Write: {instead}", ""
    return "", ""


def explained(end: CallEnd, text: str) -> tuple[str, str]:
    """Return the exception of a call that its server refused, or whose tool has failed: its text, the signature."""
    if end.definition is None or end.request is None:
        return "RuntimeError", text
    wrong = hint_for(end.definition, end.request)
    if wrong:
        return "TypeError", text if wrong in text else f"{text}\n{wrong}"
    signature = signature_of(end.definition)
    return "RuntimeError", text if signature in text else f"{text}\n{signature}"


def signature_of(definition: Definition) -> str:
    """Return how the tool is called, and what it returns; empty if its definition can't be read."""
    from mcp_workbench.core.catalogue import read_object
    from mcp_workbench.schema.signature import LONG, arguments_shape, signature_within

    if len(definition.raw) > MOST_READ:
        return ""
    try:
        schema = read_object(definition.raw).get("inputSchema")
        return signature_within(LONG, definition.name, arguments_shape(schema)).text
    except (msgspec.DecodeError, RecursionError):
        return ""


def unknown_arguments(definition: Definition, request: CallRequest) -> str:
    """Return which arguments the tool's signature does not have; empty if it has all, or can't be sure.

    Many servers ignore such an argument, and a script would go on with results for something else.
    """
    from mcp_workbench.core.catalogue import read_object
    from mcp_workbench.schema.document import as_object

    if max(len(definition.raw), len(request.params["arguments"])) > MOST_READ:
        return ""
    try:
        schema = as_object(read_object(definition.raw).get("inputSchema"))
        given = read_members(request.params["arguments"])
    except (msgspec.DecodeError, RecursionError):
        return ""
    known = as_object(schema.get("properties"))
    more = schema.get("additionalProperties", None if known else True)
    if more not in (None, False) or _OPEN & set(schema):
        return ""
    unknown = [name for name in given if name not in known]
    if not unknown:
        return ""
    name = unknown[0]
    nearest = did_you_mean(name, [one for one in known if one not in given])
    wrong = f"{request.tool}: unknown argument '{shown_name(name)}'."
    return f"{' '.join(filter(None, (wrong, nearest)))}\n{signature_of(definition)}"


def exception_of(error: WorkbenchError) -> tuple[str, str]:
    """Return the exception for a call that has no result. One that may have run is an OSError, no other is."""
    text = "\n".join(part for part in (error.message, error.hint) if part)
    if error.may_have_run:
        return "OSError", f"{text}\nThe call may have run."
    if error.code.startswith("unknown_"):
        return "LookupError", text
    return ("TypeError" if isinstance(error, InvalidCall) else "RuntimeError"), text


# Names of tools


def tool_named(name: str) -> ToolIdentifier:
    """Return the tool of a name like `toolbox/server/tool`. Raises NotFound."""
    parts = name.split("/", 2)
    if len(parts) < 3 or not all(parts):
        hint = f"A tool has three parts: {EXAMPLE}"
        raise NotFound("unknown_tool", f"'{shown_name(name)}' is no name of a tool", hint=hint)
    return ToolIdentifier(*parts)


def scripted_toolboxes(snapshot: Snapshot) -> list[str]:
    """Return the toolboxes whose tools scripts may call."""
    return [name for name, box in snapshot.toolboxes.items() if box.scripts]


def refusal(snapshot: Snapshot, tool: ToolIdentifier) -> WorkbenchError | None:
    """Return why a script may not call tools of this toolbox; None if it may, or there is no such toolbox."""
    box = snapshot.toolboxes.get(tool.toolbox)
    if box is None or box.scripts:
        return None
    allowed = scripted_toolboxes(snapshot)
    hint = did_you_mean(tool.toolbox, allowed) or f"Scripts may call tools of: {', '.join(allowed)}"
    return NotFound(
        "denied", f"Scripts may not call tools of the toolbox '{tool.toolbox}'", hint=hint
    )
