"""Entry point of the command: `serve`, which hosts start, runs without loading click and the rest."""

from __future__ import annotations

import gc
import io
import os
import sys
from contextlib import suppress

TYPE_CHECKING = False  # as in `typing`, which is slow to load
if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from mcp_workbench.core.spec import Snapshot

COMPLETE = "_MCP_WORKBENCH_COMPLETE"  # a shell's completion query, in this variable
PREFIX = "MCP_WORKBENCH_"  # of the variables that stand for options
DONE = 0
INTERRUPTED = 130  # exit status


class ServeOption:
    """One option of `serve`: read here on the fast path, and by click in `serve.py`."""

    def __init__(self, name: str, *, repeats: bool = False, choices: tuple[str, ...] = ()) -> None:
        self.name = name
        self.repeats = repeats
        self.choices = choices
        self.variable = f"{PREFIX}SERVE_{name.strip('-').replace('-', '_').upper()}"


TOOLBOX = ServeOption("--toolbox", repeats=True)
HTTP = ServeOption("--http")
ATTACH = ServeOption("--attach", choices=("auto", "always", "never"))
LOG_CALLS = ServeOption("--log-calls")
CONFIG = ServeOption("--config")  # of every command, with a variable of its own
OPTIONS = {option.name: option for option in (CONFIG, TOOLBOX, HTTP, ATTACH, LOG_CALLS)}
LOOPBACK = "127.0.0.1"
MOST_PORTS = 65535
# Variables that only click reads; `daemon.attach` reads the one of --attach itself.
SERVE_VARIABLES = (
    *(option.variable for option in (TOOLBOX, HTTP, LOG_CALLS)),
    f"{PREFIX}SERVE_UI",
    f"{PREFIX}VERBOSE",
)


def main() -> None:
    try:
        status = _run(sys.argv[1:])
    except KeyboardInterrupt:  # while something was still being loaded
        status = INTERRUPTED
    if status == INTERRUPTED:
        import signal  # a second Ctrl-C would only show a traceback

        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _end_line()
    sys.exit(status)


def _end_line() -> None:
    """Starts a new line on a terminal, which shows `^C` where the cursor was."""
    if os.isatty(2):
        with suppress(OSError):  # the window was closed
            os.write(2, b"\n")


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
        option = OPTIONS.get(name)
        if option is None or value.startswith("-"):
            return None
        if option.choices and value not in option.choices:
            return None
        options.setdefault(name, []).append(value)
    return options


def _serve(options: dict[str, list[str]]) -> int | None:
    """Serves; returns None if anything is wrong with what was asked for, which `_command` reports."""
    config = options.get(CONFIG.name, [None])[-1]
    toolboxes = tuple(options.get(TOOLBOX.name, ()))
    attach = options.get(ATTACH.name, [""])[-1]
    log_calls = options.get(LOG_CALLS.name, [""])[-1]
    if HTTP.name in options:
        return _serve_http(config, options[HTTP.name][-1], toolboxes, log_calls)
    if os.isatty(0):
        return None  # the command tells the person who typed it what it waits for
    if log_calls and attach == "always":
        return None
    from mcp_workbench.daemon.attach import attach_host

    outcome = attach_host(config, toolboxes, "never" if log_calls else attach)
    if isinstance(outcome, int):
        return outcome
    gc.disable()  # nothing that is loaded now is garbage; `app.run` enables it
    _load_msgspec()
    from mcp_workbench.core.errors import WorkbenchError

    resumed = None
    try:
        snapshot = _snapshot(config, toolboxes)
        if not snapshot.origin and os.isatty(2):
            return None  # the command warns a person of the demo; a host's agent reads the instructions
        from mcp_workbench.app import serve

        if outcome is not None:
            from mcp_workbench.daemon.crash_journal import Resumed

            resumed = Resumed(outcome)
        return serve(snapshot, opened=toolboxes, resumed=resumed, log_calls=log_calls)
    except WorkbenchError:
        return None


def _load_msgspec() -> None:
    """Loads msgspec without typing_extensions, which it would prefer to `typing` where both are there.

    It takes the same names from either, and typing_extensions takes 3 ms to load.
    """
    name = "typing_extensions"
    if name in sys.modules:
        return
    sys.modules[name] = None  # type: ignore[assignment]  # the import fails
    try:
        __import__("msgspec")
    finally:
        del sys.modules[name]


def _serve_http(
    config: str | None, where: str, toolboxes: tuple[str, ...], log_calls: str
) -> int | None:
    address, problem = read_address(where)
    if problem:
        return None
    gc.disable()
    _load_msgspec()
    from mcp_workbench.core.errors import WorkbenchError

    try:
        snapshot = _snapshot(config, toolboxes)
        if not snapshot.origin:
            return None  # the command warns of it
        from mcp_workbench.http_app import serve_http

        return serve_http(snapshot, address, toolboxes=toolboxes, log_calls=log_calls)
    except WorkbenchError:  # before it listens: nothing has been done
        return None


def _snapshot(config: str | None, toolboxes: tuple[str, ...]) -> Snapshot:
    """The configuration; a warning about its owner goes to stderr. Raises a WorkbenchError."""
    from mcp_workbench.config.load import chosen_snapshot, owner_notice

    snapshot = chosen_snapshot(config).narrowed(toolboxes)
    if snapshot.warnings and (notice := owner_notice(snapshot)):
        sys.stderr.write(f"{notice}\n")
        sys.stderr.flush()
    return snapshot


def read_address(value: str) -> tuple[tuple[str, int], str]:
    """`7411`, `localhost:7411` or `[::1]:7411` as host and port; or what is wrong with it."""
    host, _, port = value.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) <= MOST_PORTS):
        return ("", 0), f"'{value}' is not [HOST:]PORT, such as 7411 or 127.0.0.1:7411"
    if ":" in host and not (host[0] == "[" and host[-1] == "]"):
        return ("", 0), f"'{value}': write an IPv6 address as [::1]:7411"
    return (host.strip("[]") or LOOPBACK, int(port)), ""


def _command(argv: list[str]) -> int:
    gc.enable()
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
