"""`run`: runs a script that calls tools, from the command line."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec

from mcp_workbench.cli.settings import (
    DONE,
    TOOL_ERROR,
    Decorated,
    Settings,
    calling_options,
    variable,
)
from mcp_workbench.cli.terminal import ProgressLine, plain, say, say_json
from mcp_workbench.core.errors import InvalidCall, ServerError, WorkbenchError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp_workbench.cli.backends import Backend
    from mcp_workbench.core.script_texts import ScriptedCall
    from mcp_workbench.core.spec import ToolIdentifier
    from mcp_workbench.gateway.scripts import CallEnd, ScriptAnswer, ScriptFailed, ScriptLimits

LONGEST = 256 << 10  # bytes of a script
MEGABYTE = 1 << 20


class CallReport(msgspec.Struct, frozen=True):
    """A call in the JSON of `run`."""

    tool: str
    line: int
    state: str


class RunReport(msgspec.Struct, frozen=True, rename="camel"):
    """The document that `run --json` prints."""

    ok: bool
    value: msgspec.Raw
    printed: str
    calls: list[CallReport]
    content: list[msgspec.Raw] = []
    code: str = ""
    error: str = ""


def _limit(
    name: str, kind: click.FloatRange | click.IntRange, default: float, help: str
) -> Callable[[Decorated], Decorated]:
    return click.option(
        f"--{name}",
        type=kind,
        default=default,
        show_default=True,
        help=help,
        **variable(f"RUN_{name.upper()}"),
    )


@click.command()
@click.argument("file", metavar="FILE.py")
@_limit(
    "seconds",
    click.FloatRange(0.1, 3600),
    10.0,
    "How long it may compute, without waiting for calls.",
)
@_limit(
    "total",
    click.FloatRange(1, 86400),
    300.0,
    "Seconds in all, without waiting for answers on the terminal.",
)
@_limit("memory", click.IntRange(10, 4096), 100, "Megabytes that it may need.")
@_limit("calls", click.IntRange(1, 100_000), 50, "Calls that it may make.")
@_limit("parallel", click.IntRange(1, 256), 8, "Calls at the same time; others wait.")
@calling_options("RUN")
@click.pass_obj
def run(  # noqa: PLR0913 - each is an option
    settings: Settings,
    file: str,
    *,
    seconds: float,
    total: float,
    memory: int,
    calls: int,
    parallel: int,
    log_calls: str,
) -> int:
    """Run a script that calls tools, as an agent does with run_script. "-" reads it from stdin.

    A script is Python without files, network and processes; a tool is called with
    await call("toolbox/server/tool", name=value). What it prints and the value of its last line go to
    stdout. It needs the extra 'code', but not "scripts" in the configuration.

    The workbench that `mcp-workbench up` has started is used if it runs. What servers ask meanwhile is
    asked here, on a terminal and without --no-input; so is whether a call is approved.

    Exit status 5 if the script fails; the calls that it made are listed then.

    \b
    Examples:
      mcp-workbench run report.py
      mcp-workbench run report.py --calls 500 --total 1800 --json
    """
    from mcp_workbench.gateway.scripts import ScriptFailed, ScriptLimits  # not for completion

    code = _code(file)
    limits = ScriptLimits(seconds, total, memory * MEGABYTE, calls, parallel)
    try:
        answer = _answered(settings, code, limits, log_calls)
    except ScriptFailed as error:
        _print_failure(settings, error)
        return TOOL_ERROR
    _print_answer(settings, answer)
    return DONE


def _print_failure(settings: Settings, error: ScriptFailed) -> None:
    if settings.json:
        report = RunReport(
            ok=False,
            value=msgspec.Raw(b"null"),
            printed=error.printed,
            calls=_calls(error.calls),
            code=error.code,
            error=error.message,
        )
        say_json(report)
    else:
        click.echo(_shown(error.printed), nl=False)
        say(plain(f"{error.message}\n{error.hint}"), err=True, color=settings.color)


def _print_answer(settings: Settings, answer: ScriptAnswer) -> None:
    if settings.json:
        report = RunReport(
            ok=True,
            value=answer.value or msgspec.Raw(b"null"),
            printed=answer.printed,
            calls=_calls(answer.calls),
            content=answer.content,
        )
        say_json(report)
    elif answer.text:
        click.echo(_shown(answer.text), nl=not answer.text.endswith("\n"))


def _shown(text: str) -> str:
    """Escape sequences of a server must not reach a terminal; a file or a pipe gets the text as it is."""
    return plain(text) if sys.stdout.isatty() else text


def _calls(calls: list[ScriptedCall]) -> list[CallReport]:
    return [CallReport(call.tool, call.line, call.state) for call in calls]


def _code(file: str) -> str:
    try:
        if file == "-":
            data = sys.stdin.buffer.read(LONGEST + 1)
        else:
            with open(file, "rb") as opened:  # noqa: PTH123 - a name as it was typed
                data = opened.read(LONGEST + 1)
        code = data.decode()
    except OSError as error:
        raise InvalidCall(f"can't read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidCall(f"{file} is not UTF-8 text") from None
    if len(data) > LONGEST:
        raise InvalidCall(f"{file} is longer than {LONGEST >> 10} KiB")
    return code


def _answered(settings: Settings, code: str, limits: ScriptLimits, log_calls: str) -> ScriptAnswer:
    """Runs the script, and shows progress meanwhile."""
    from mcp_workbench.cli.backends import BackendOptions, with_backend
    from mcp_workbench.cli.call import person_of
    from mcp_workbench.gateway.script_worker import ScriptWorker
    from mcp_workbench.gateway.scripts import ScriptRun, ScriptSource
    from mcp_workbench.transport.tasks import task_scope

    settings.open_log(reports_servers=True)
    line = ProgressLine(wanted=settings.talkative)
    snapshot = settings.snapshot()
    script: ScriptRun | None = None

    def pause() -> Callable[[], None]:
        return (lambda: None) if script is None else script.clock.pause()

    person = PausingPerson(person_of(settings, line), pause)
    options = BackendOptions(person, log_calls=log_calls)

    async def ran(backend: Backend) -> ScriptAnswer:
        nonlocal script

        async def make(tool: ToolIdentifier, arguments: msgspec.Raw, _number: int) -> CallEnd:
            return await _made(backend, tool, arguments, "" if script is None else script.id)

        def report(count: int, tool: str) -> None:
            line.progress({"progress": count, "message": tool})

        async with task_scope() as scope:
            script = ScriptRun(
                ScriptWorker(scope.start),
                ScriptSource(code, is_flat=snapshot.tool_mode == "dynamic"),
                limits,
                make,
                report,
            )
            with line.waiting("running"):
                return await script.answer()

    try:
        return with_backend(settings, snapshot, ran, options)
    finally:
        line.clear()


async def _made(
    backend: Backend, tool: ToolIdentifier, arguments: msgspec.Raw, parent: str
) -> CallEnd:
    """Makes one call of the script."""
    from mcp_workbench.gateway.interceptors import Completed, Failed, Rejected
    from mcp_workbench.gateway.scripts import CallEnd
    from mcp_workbench.transport.jsonrpc import ErrorObject

    try:
        result = await backend.use_tool(tool, msgspec.json.decode(arguments), _quiet, parent)
    except ServerError as error:
        about = ErrorObject(error.number, error.message)
        return CallEnd(Rejected(msgspec.Raw(error.error), about=about))
    except WorkbenchError as error:
        return CallEnd(Failed(error))
    return CallEnd(Completed(msgspec.json.encode(result)))


def _quiet(_params: dict[str, Any]) -> None:
    """Progress of single calls is not shown."""


class PausingPerson:
    """The person at the terminal; the script's clock stands still while they are asked."""

    def __init__(self, person: Any, pause: Callable[[], Callable[[], None]]) -> None:
        self._person = person
        self._pause = pause

    @property
    def capabilities(self) -> dict[str, Any]:
        return self._person.capabilities

    async def answer(self, question: Any) -> dict[str, Any] | None:
        proceed = self._pause()
        try:
            return await self._person.answer(question)
        finally:
            proceed()
