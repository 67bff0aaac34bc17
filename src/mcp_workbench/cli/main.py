"""Entry point of the command: `serve`, which hosts start, runs without loading click and the rest."""

from __future__ import annotations

import io
import os
import sys

TYPE_CHECKING = False  # as in `typing`, which is slow to load
if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

COMPLETE = "_MCP_WORKBENCH_COMPLETE"  # a shell's completion query, in this variable
PREFIX = "MCP_WORKBENCH_"  # of the variables that stand for options
DONE = 0
INTERRUPTED = 130  # exit status


class ServeOption:
    """One option of `serve`: read here on the fast path, and by click in `serve.py`."""

    def __init__(
        self, name: str, *, fast: bool, repeats: bool = False, choices: tuple[str, ...] = ()
    ) -> None:
        self.name = name
        self.fast = fast  # its variable does not matter then: unset, or read elsewhere
        self.repeats = repeats
        self.choices = choices
        self.variable = f"{PREFIX}SERVE_{name.strip('-').replace('-', '_').upper()}"


TOOLBOX = ServeOption("--toolbox", fast=True, repeats=True)
HTTP = ServeOption("--http", fast=False)
ATTACH = ServeOption("--attach", fast=True, choices=("auto", "always", "never"))
LOG_CALLS = ServeOption("--log-calls", fast=False)
CONFIG = ServeOption("--config", fast=True)  # of every command, with a variable of its own
FAST = {option.name: option for option in (CONFIG, TOOLBOX, ATTACH)}
# Variables that only click reads; `daemon.attach` reads the one of --attach itself.
SERVE_VARIABLES = (TOOLBOX.variable, HTTP.variable, LOG_CALLS.variable, f"{PREFIX}VERBOSE")


def main() -> None:
    try:
        status = _run(sys.argv[1:])
    except KeyboardInterrupt:  # while something was still being loaded
        status = INTERRUPTED
    if status == INTERRUPTED:
        import signal  # a second Ctrl-C would only show a traceback

        signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(status)


def _run(argv: list[str]) -> int:
    fill_closed_streams()
    if COMPLETE in os.environ:
        from mcp_workbench.cli.commands import complete

        return complete()
    options = fast_options(argv)
    status = None if options is None else _serve(options)
    return _command(argv) if status is None else status


def fast_options(argv: list[str]) -> dict[str, list[str]] | None:
    """Returns the options of a plain `serve` by name; None for any other command line."""
    if any(name in os.environ for name in SERVE_VARIABLES):
        return None
    if not argv:
        return None if os.isatty(0) else {}
    if argv[0] != "serve":
        return None
    options: dict[str, list[str]] = {}
    rest = iter(argv[1:])
    for name in rest:
        value = next(rest, "-")
        option = FAST.get(name)
        if option is None or value.startswith("-"):
            return None
        if option.choices and value not in option.choices:
            return None
        options.setdefault(name, []).append(value)
    return options


def _serve(options: dict[str, list[str]]) -> int | None:
    """Serves over stdio; returns None for a broken configuration, which `_command` reports."""
    from mcp_workbench.daemon.attach import attach_host

    config = options.get(CONFIG.name, [None])[-1]
    toolboxes = tuple(options.get(TOOLBOX.name, ()))
    outcome = attach_host(config, toolboxes, options.get(ATTACH.name, [""])[-1])
    if isinstance(outcome, int):
        return outcome
    from mcp_workbench.config.load import chosen_snapshot, owner_notice
    from mcp_workbench.core.errors import WorkbenchError

    try:
        snapshot = chosen_snapshot(config).narrowed(toolboxes)
    except WorkbenchError:
        return None
    if snapshot.warnings and (notice := owner_notice(snapshot)):
        sys.stderr.write(f"{notice}\n")
        sys.stderr.flush()
    from mcp_workbench.app import serve

    resumed = None
    if outcome is not None:
        from mcp_workbench.daemon.crash_journal import Resumed

        resumed = Resumed(outcome)
    return serve(snapshot, opened=toolboxes, resumed=resumed)


def _command(argv: list[str]) -> int:
    text = _constant(argv)
    if text:
        return _print(text, argv)
    from mcp_workbench.cli.commands import run  # click: 9 ms that `serve` does not pay

    return run(argv)


def _constant(argv: list[str]) -> str:
    """Returns what is printed without reading anything, or an empty string."""
    if argv in (["version"], ["--version"]):
        from mcp_workbench import __version__

        return f"mcp-workbench {__version__}\n"
    if len(argv) == 2 and argv[0] == "completion":
        from mcp_workbench.cli.completion_scripts import SCRIPTS

        return SCRIPTS.get(argv[1], "")
    return ""


def _print(text: str, argv: list[str]) -> int:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()  # an error is reported here, and not by Python at its exit
    except OSError as error:
        return unwritten(error, argv)
    return DONE


# Standard streams that are closed, or that fail


def fill_closed_streams() -> None:
    """Opens the null device for each standard stream that is closed, before a pipe takes its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number: this one
            setattr(sys, name, open(number, "w" if number else "r"))  # noqa: PTH123, SIM115


def unwritten(error: OSError, argv: list[str]) -> int:
    """Returns the status after stdout failed: a reader that left is fine, a full disk is reported."""
    abandon(1)
    if isinstance(error, BrokenPipeError):
        return DONE
    lenient_stderr()
    from mcp_workbench.cli.error_reports import report_system  # only after an error

    return report_system(error, argv)


def abandon(number: int) -> None:
    """Redirects a stream to the null device, so that Python does not complain about it at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


def lenient_stderr() -> None:
    """Ignores errors of stderr: what it would have shown is lost, and nothing else."""
    if sys.stderr is not sys.__stderr__ or sys.platform == "win32":  # no file, or a console's own
        return
    encoding = sys.stderr.encoding
    writer = io.BufferedWriter(_Lenient(2, "wb", closefd=False))
    sys.stderr = io.TextIOWrapper(writer, encoding, "backslashreplace", line_buffering=True)


class _Lenient(io.FileIO):
    """A file that drops what it can't write."""

    def write(self, data: ReadableBuffer, /) -> int | None:
        try:
            return super().write(data)
        except OSError:
            abandon(self.fileno())
            return memoryview(data).nbytes
